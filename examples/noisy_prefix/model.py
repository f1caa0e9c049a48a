"""The classifier of sentence pairs for the noisy-prefix task, Euclidean or hyperbolic."""

import math

import torch
from torch import Tensor, nn

from examples.noisy_prefix.layers import EuclideanPairLayer, HyperbolicMLR, MoebiusPairLayer
from recbole_hyper.encoders.moebius_gru import MoebiusGRU
from recbole_hyper.hyperbolic._math import exp0, log0
from recbole_hyper.hyperbolic.manifold import ball_parameter, poincare_ball

GEOMETRIES = ("poincare", "euclidean")
TYPES = ("hyp", "eucl")


def check_above_zero(**values: float) -> None:
    """Raise ValueError, with its name, for a value that is not a finite number above 0."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ValueError(f"{name}={value!r}: a finite number above 0 is needed")


class PrefixClassifier(nn.Module):
    """Embeds both sentences, encodes them with GRUs, joins the last states and classifies.

    ``geometry="poincare"``: Moebius GRU, :class:`MoebiusPairLayer` with the squared distance as a feature,
    hyperbolic MLR. ``geometry="euclidean"``: torch.nn.GRU, :class:`EuclideanPairLayer`, linear layer.

    The arguments are keys of settings.yaml; word 0 is padding. With ``embedding_type`` "eucl" words are tangent
    vectors; with ``decision_type`` "eucl" the pair layer and the classifier read log_0 of the states. ValueError for a
    value that is not allowed.
    """

    def __init__(
        self,
        *,
        geometry: str = "poincare",
        n_words: int = 100,
        embedding_size: int = 5,
        hidden_size: int = 5,
        projection_size: int = 5,
        n_layers: int = 1,
        share_encoder: bool = True,
        use_distance: bool = True,
        embedding_type: str = "hyp",
        decision_type: str = "hyp",
        curvature: float = 1.0,
        initializer_range: float = 0.1,
    ) -> None:
        super().__init__()
        if geometry not in GEOMETRIES:
            raise ValueError(f"geometry={geometry!r} is unknown; allowed: {', '.join(GEOMETRIES)}")
        for name, value in (("embedding_type", embedding_type), ("decision_type", decision_type)):
            if value not in TYPES:
                raise ValueError(f"{name}={value!r} is unknown; allowed: {', '.join(TYPES)}")
        sizes = {"n_words": n_words, "embedding_size": embedding_size, "hidden_size": hidden_size}
        for name, size in {**sizes, "projection_size": projection_size, "n_layers": n_layers}.items():
            if size < 1:
                raise ValueError(f"{name}={size}: a whole number of at least 1 is needed")
        check_above_zero(curvature=curvature, initializer_range=initializer_range)
        self.curved = geometry == "poincare"
        self.curved_words = self.curved and embedding_type == "hyp"
        self.curved_decision = self.curved and decision_type == "hyp"
        self.curvature = curvature
        start = initializer_range * torch.randn(n_words + 1, embedding_size)
        self.words: nn.Parameter
        if self.curved_words:
            self.ball = poincare_ball(curvature)
            self.words = ball_parameter(exp0(start, curvature), self.ball)
        else:
            self.words = nn.Parameter(start)

        def encoder() -> nn.Module:
            if not self.curved:
                return nn.GRU(embedding_size, hidden_size, n_layers)
            inputs = "ball" if self.curved_words else "tangent"
            return MoebiusGRU(embedding_size, hidden_size, n_layers, curvature=curvature, inputs=inputs)

        self.encoders = nn.ModuleList([encoder() for _ in range(1 if share_encoder else 2)])
        self.join: nn.Module
        self.classifier: nn.Module
        if self.curved_decision:
            self.join = MoebiusPairLayer(hidden_size, projection_size, use_distance=use_distance, curvature=curvature)
            self.classifier = HyperbolicMLR(projection_size, 2, curvature=curvature)
        else:
            self.join = EuclideanPairLayer(hidden_size, projection_size, use_distance=use_distance)
            self.classifier = nn.Linear(projection_size, 2)

    def _encode(self, encoder: nn.Module, sentences: Tensor, lengths: Tensor) -> Tensor:
        """Return the (B, hidden) state after the last word of each sentence."""
        words = self.words.as_subclass(Tensor)[sentences.t()]
        if isinstance(encoder, MoebiusGRU):
            return encoder(words, lengths=lengths)[1][-1]
        states = encoder(words)[0]
        return states[lengths - 1, torch.arange(len(lengths), device=states.device)]

    def forward(self, first: Tensor, first_lengths: Tensor, second: Tensor, second_lengths: Tensor) -> Tensor:
        """Return the (B, 2) logits of sentences (B, L) int64 with lengths (B,)."""
        if len(self.encoders) == 1:  # both sentences in one batch take half as many steps
            lengths = torch.cat([first_lengths, second_lengths])
            x, y = self._encode(self.encoders[0], torch.cat([first, second]), lengths).chunk(2)
        else:
            x = self._encode(self.encoders[0], first, first_lengths)
            y = self._encode(self.encoders[1], second, second_lengths)
        if self.curved and not self.curved_decision:
            x, y = log0(x, self.curvature), log0(y, self.curvature)
        return self.classifier(self.join(x, y))
