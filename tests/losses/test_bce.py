"""The losses of a target and its own negatives against loops: value and gradients."""

import pytest

from recbole_hyper import registry
from tests.losses.sampled import GEOMETRIES, FixedNegatives, assert_same, problem, with_duplicates
from tests.reference import losses as reference

HOW = {
    "bce": {"exclude_seen": True, "replacement": True},
    "bce_plus": {"exclude_seen": True, "replacement": False},
    "gbce": {"exclude_seen": False, "replacement": True},
}


@pytest.mark.usefixtures("_pieces", "_ways")
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize(
    ("name", "t"), [("bce", None), ("bce_plus", None), ("gbce", 0.0), ("gbce", 0.75), ("gbce", 1.0)]
)
@pytest.mark.parametrize("size", [1.0, 80.0])
def test_equals_the_loop(geometry: str, k: int, name: str, t: float | None, size: float) -> None:
    states, targets, head = problem(geometry, size=size)
    table = with_duplicates(targets, head.n_items, k)
    given = (head.logits(states), targets.tolist(), table.tolist())
    alpha = k / (head.n_items - 2)
    beta = alpha * (t * (1 - 1 / alpha) + 1 / alpha) if t else 1.0
    by_loop = reference.binary_cross_entropy_plus(*given, beta)
    expected = (reference.binary_cross_entropy(*given) if name == "bce" else by_loop).mean()
    negatives = FixedNegatives(table)
    loss = registry.resolve("losses", name)(n_negatives=k, **({} if t is None else {"t": t}))
    assert_same(loss(states, targets, head, negatives), expected, states, head)
    assert negatives.requested == {"k": k, **HOW[name]}
