"""Options that several encoders share. An encoder can replace the meaning, and adds the source of its default."""

from typing import Annotated

from recbole_hyper.options import RANKING, Option

Layers = Annotated[int, Option("int >= 1", "layers or blocks")]
Heads = Annotated[int, Option("int >= 1", "attention heads; divides hidden_size")]
InnerSize = Annotated[int | None, Option("int >= 1 or ~", "width inside the feed-forward part; ~ is hidden_size")]
HiddenDropout = Annotated[float, Option("float in [0, 1) or auto", "dropout outside the attention weights")]
AttentionDropout = Annotated[float, Option("float in [0, 1) or auto", "dropout of attention weights")]
GRUDropout = Annotated[float, Option("float in [0, 1)", "dropout of the embeddings and between layers")]
Activation = Annotated[str, Option("relu, gelu or swish", "inside the feed-forward part")]
NormPlacement = Annotated[str, Option("query, pre or post", "query: papers' code; pre; post: RecBole")]
ScaleEmbeddings = Annotated[bool, Option("bool", "item embeddings times sqrt(hidden_size); papers' code")]
NormEps = Annotated[float, Option("float > 0", "added to the variance")]
Initializer = Annotated[str, Option("xavier or normal", "of item vectors and matrices")]
InitializerRange = Annotated[float, Option("float > 0", "standard deviation of initializer: normal")]
GRUSize = Annotated[int | None, Option("int >= 1 or ~", "width of the GRU; ~ is hidden_size")]
Dense = Annotated[bool, Option("bool", "linear map after the GRU")]
Length = Annotated[int, Option("int >= 1 or auto", "newest items of a history that a model sees")]
HeadWidth = Annotated[int | None, Option("int >= 1 or ~", "~ is hidden_size / n_heads")]
WindowAtEval = Annotated[bool, Option("bool", "keep the windows of attention outside training", decides=(RANKING,))]
