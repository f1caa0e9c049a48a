"""Both indexes: the items that a sort of all scores would give, ties, exclusions and faults."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from recbole_hyper.errors import ConfigError
from recbole_hyper.evaluation.ranking import NonFiniteScoreError
from recbole_hyper.geometry.base import Geometry
from recbole_hyper.geometry.euclidean import Euclidean
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.geometry.poincare import Poincare
from recbole_hyper.serving import index as module
from recbole_hyper.serving.index import ExactIndex, HNSWIndex, recall

HEADS = [(Euclidean, False), (Euclidean, True), (Poincare, False), (Poincare, True)]


def head_of(
    geometry: type[Geometry], offset: bool, n_items: int = 700, scale: float = 1.0, curvature: float = 0.3
) -> OutputHead:
    generator = torch.Generator().manual_seed(3)
    weight = nn.Parameter(scale * torch.randn(n_items, 6, generator=generator))
    made = OutputHead(geometry(), weight, offset=offset, curvature=curvature)
    if made.offset is not None:
        nn.init.normal_(made.offset, std=0.5, generator=generator)
    return made


def states_of(count: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(count, 6, generator=torch.Generator().manual_seed(4))


def sorted_items(head: OutputHead, states: Tensor, k: int, exclude: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """All scores, a stable sort."""
    scores = head.frozen().scores(states).clone()
    scores[:, 0] = -torch.inf
    for row, items in enumerate(exclude):
        scores[row, items] = -torch.inf
    values, items = scores.sort(dim=1, descending=True, stable=True)
    return items.masked_fill(values == -torch.inf, 0)[:, :k].numpy(), values[:, :k].numpy()


@pytest.mark.parametrize(("geometry", "offset"), HEADS)
@pytest.mark.parametrize(("scale", "curvature"), [(1.0, 0.3), (0.01, 1e-3), (40.0, 1.0), (1.0, 30.0)])
def test_exact_search_is_a_sort(
    geometry: type[Geometry], offset: bool, scale: float, curvature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where exponents are taken out, with blocks that end anywhere."""
    monkeypatch.setattr(module, "_ROWS", 5)
    head = head_of(geometry, offset, scale=scale, curvature=curvature)
    states = states_of(12, scale)
    exclude = [list(range(1, 60 * row)) for row in range(12)]
    wanted, values = sorted_items(head, states, 9, exclude)
    items, scores = ExactIndex(head).search(states, 9, exclude)
    np.testing.assert_allclose(scores, values, rtol=1e-5, atol=1e-5)
    # products of other shapes may round otherwise: an item may differ only where scores are equal to that
    differs = items != wanted
    assert differs.mean() < 0.02
    np.testing.assert_array_equal((items == 0), (wanted == 0))


@pytest.mark.parametrize("bias", [0.0, 8.0, -8.0])
def test_blocks_are_ruled_out_by_a_bound_of_asinh_alone(bias: float) -> None:
    """A catalogue of many blocks, scales from 1e-3 to 1e3, all scores of one sign or of both."""
    head = head_of(Poincare, True, n_items=40_000, curvature=0.05)
    with torch.no_grad():
        head.weight.mul_(torch.logspace(-3, 3, 40_000)[torch.randperm(40_000), None])
        head.offset.add_(bias)  # type: ignore[union-attr]
    states = states_of(6)
    wanted, values = sorted_items(head, states, 10, [])
    items, scores = ExactIndex(head).search(states, 10)
    np.testing.assert_allclose(scores, values, rtol=1e-5)
    assert (items == wanted).mean() > 0.95


def test_equal_scores_stand_in_item_order() -> None:
    weight = nn.Parameter(torch.ones(6000, 6))
    items, _ = ExactIndex(OutputHead(Euclidean(), weight)).search(torch.ones(2, 6), 4, [[2], []])
    assert items.tolist() == [[1, 3, 4, 5], [1, 2, 3, 4]]


@pytest.mark.parametrize("kind", [ExactIndex, HNSWIndex])
def test_a_list_ends_where_nothing_is_left(kind: type) -> None:
    index = kind(head_of(Poincare, True, n_items=8))
    items, scores = index.search(states_of(2), 5, [[1, 2, 3, 4, 5, 5], []])
    assert set(items[0, :2]) == {6, 7}
    assert items[0, 2:].tolist() == [0, 0, 0]
    assert np.isneginf(scores[0, 2:]).all()
    assert 0 not in items[1]
    assert kind(head_of(Euclidean, False, n_items=8)).search(states_of(2)[:0], 3)[0].shape == (0, 3)


@pytest.mark.parametrize(("geometry", "offset"), HEADS)
@pytest.mark.parametrize("kind", [ExactIndex, HNSWIndex])
def test_only_chosen_items_are_found(kind: type, geometry: type[Geometry], offset: bool) -> None:
    head, states = head_of(geometry, offset), states_of(5)
    chosen = np.array([650, 3, 77, 3, 512, 9, 400, 12])
    items, scores = kind(head, chosen).search(states, 5, [[77, 4, 699], [], [1], [650, 3, 77], []])
    others = sorted(set(range(700)) - set(chosen))
    lists = [[*others, *more] for more in ([77], [], [], [650, 3, 77], [])]
    wanted, values = sorted_items(head, states, 5, lists)
    np.testing.assert_array_equal(items, wanted)
    np.testing.assert_allclose(scores, values, atol=1e-4)
    with pytest.raises(ValueError, match="items names item 700; items are 1 to 699"):
        kind(head, [3, 700])
    with pytest.raises(ValueError, match="items names no item"):
        kind(head, [])


@pytest.mark.parametrize(("geometry", "offset"), HEADS)
def test_hnsw_finds_most_and_scores_exactly(geometry: type[Geometry], offset: bool, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    head, states = head_of(geometry, offset, n_items=3000), states_of(40)
    exact, index = ExactIndex(head), HNSWIndex(head, candidates=100)
    assert recall(index, exact, states, 10) > 0.9
    exclude = [row[:3] for row in exact.search(states, 10)[0]]
    items, scores = index.search(states, 10, exclude)
    assert not any(np.isin(one, other).any() for one, other in zip(items, exclude, strict=True))
    np.testing.assert_allclose(scores, head.frozen().scores(states).gather(1, torch.from_numpy(items)), atol=1e-4)
    # the same again, from another build and from a file
    index.save(tmp_path / "index.hnsw")
    for other in (HNSWIndex(head, candidates=100), HNSWIndex.load(head, tmp_path / "index.hnsw")):
        np.testing.assert_array_equal(other.search(states, 10, exclude)[0], items)


def test_an_index_of_other_vectors_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    HNSWIndex(head_of(Euclidean, False)).save(tmp_path / "index.hnsw")
    with pytest.raises(ConfigError, match="built for other item vectors; build it again"):
        HNSWIndex.load(head_of(Euclidean, False, scale=2.0), tmp_path / "index.hnsw")
    (tmp_path / "index.hnsw").write_bytes(b"broken")
    with pytest.raises(ConfigError, match="no index that faiss can read"):
        HNSWIndex.load(head_of(Euclidean, False), tmp_path / "index.hnsw")


def test_what_cannot_be_searched_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    head = head_of(Poincare, True, n_items=8)
    index = ExactIndex(head)
    for k in (0, 8, 2.5, True):
        with pytest.raises(ValueError, match="between 1 and 7 items can be found"):
            index.search(states_of(2), k)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"states have shape \(2, 5\); \(n, 6\) is needed"):
        index.search(torch.zeros(2, 5), 3)
    with pytest.raises(ValueError, match="exclude has 1 lists for 2 states"):
        index.search(states_of(2), 3, [[1]])
    with pytest.raises(ValueError, match="exclude names item 8; items are 1 to 7"):
        index.search(states_of(2), 3, [[1], [8]])
    states = states_of(3)
    states[1, 2] = torch.nan
    for geometry in (Euclidean, Poincare):
        with pytest.raises(NonFiniteScoreError, match="scores of state 1 are not finite"):
            ExactIndex(head_of(geometry, True)).search(states, 3)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ConfigError, match=r"needs the package faiss .*pip install 'recbole-hyper\[index\]'"):
        HNSWIndex(head)
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="candidates=0: a whole number of at least 1 is needed"):
        HNSWIndex(head, candidates=0)
