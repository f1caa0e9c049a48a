"""Options that several encoders share. An encoder can replace the meaning, and adds the source of its default."""

from typing import Annotated, Literal

from recbole_hyper.options import RANKING, Option
from recbole_hyper.values import PositiveFloat, PositiveInt, ShareBelow1

Layers = Annotated[PositiveInt, Option("layers or blocks")]
Heads = Annotated[PositiveInt, Option("attention heads; divides hidden_size")]
InnerSize = Annotated[PositiveInt | None, Option("width inside the feed-forward part; ~ is hidden_size")]
HiddenDropout = Annotated[ShareBelow1, Option("dropout outside the attention weights", auto=True)]
AttentionDropout = Annotated[ShareBelow1, Option("dropout of attention weights", auto=True)]
GRUDropout = Annotated[ShareBelow1, Option("dropout of the embeddings and between layers")]
Activation = Annotated[Literal["relu", "gelu", "swish"], Option("inside the feed-forward part")]
NormPlacement = Annotated[Literal["query", "pre", "post"], Option("query: papers' code; pre; post: RecBole")]
ScaleEmbeddings = Annotated[bool, Option("item embeddings times sqrt(hidden_size); papers' code")]
NormEps = Annotated[PositiveFloat, Option("added to the variance")]
Initializer = Annotated[Literal["xavier", "normal"], Option("of item vectors and matrices")]
InitializerRange = Annotated[PositiveFloat, Option("standard deviation of initializer: normal")]
GRUSize = Annotated[PositiveInt | None, Option("width of the GRU; ~ is hidden_size")]
Dense = Annotated[bool, Option("linear map after the GRU")]
Length = Annotated[PositiveInt, Option("newest items of a history that a model sees", auto=True)]
HeadWidth = Annotated[PositiveInt | None, Option("~ is hidden_size / n_heads")]
WindowAtEval = Annotated[bool, Option("keep the windows of attention outside training", decides=(RANKING,))]
