"""Vectors for a database, of geometries from outside the package."""

import numpy as np
import torch
from torch import Tensor

from recbole_hyper.config import ConfigError
from recbole_hyper.geometry.base import Geometry, ItemTerms, LiftedStates
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.serving.export import vectors_of
from tests.raising import refused


class Doubled(Geometry):
    """Twice the dot product."""

    curved = has_link = False

    def lift_states(self, states: Tensor, **options: object) -> LiftedStates:
        return LiftedStates(2 * states)

    def lift_items(self, weight: Tensor, offset: Tensor | None, **options: object) -> ItemTerms:
        return ItemTerms()


class Cubed(Doubled):
    """With a link, but without a description of its scores."""

    has_link = True

    def link(self, inner: Tensor, exponent: Tensor | None = None) -> Tensor:
        return inner**3


def test_without_a_link_the_product_is_the_score() -> None:
    head, states = OutputHead(Doubled(), torch.randn(9, 4)), torch.randn(3, 4)
    found = vectors_of(head)
    query = head.geometry.search_states(states, offset=False)
    np.testing.assert_allclose(query.numpy() @ found.vectors.T, head.logits(states)[:, 1:].detach(), rtol=1e-5)
    assert found.description == {
        "metric": "inner_product",
        "query": "q = lift_states(F) of Doubled, F the state (d,) of the encoder",
        "score": "<q, vector>",
        "exact": True,
    }
    assert found.factors == {}


def test_with_a_link_the_geometry_must_say_how_its_score_follows() -> None:
    with refused(ConfigError, "search_score"):
        vectors_of(OutputHead(Cubed(), torch.randn(9, 4)))
    described = type("Described", (Cubed,), {"search_score": "<q, vector>^3"})
    found = vectors_of(OutputHead(described(), torch.randn(9, 4)))
    assert (found.description["score"], found.description["exact"]) == ("<q, vector>^3", False)
