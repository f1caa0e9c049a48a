"""The best items of a state among very many: exactly, or through a graph of neighbours."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recbole_hyper.errors import ConfigError, require, whole
from recbole_hyper.evaluation.ranking import NonFiniteScoreError
from recbole_hyper.files import read_json, replaced, write_json
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.geometry.poincare import Poincare
from recbole_hyper.matmul import float32_products

Items = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
States = Tensor | npt.NDArray[Any]
#: of each state, the item numbers that it must not get
Exclusions = Sequence[npt.ArrayLike]

# rows and scores of a block: these stay in the cache between the product and the selection
_ROWS = 128
_SCORES = 1 << 19
# states below which torch's own product is faster than oneDNN's, which brings the items into another order first
_FEW = 8


class ItemIndex(ABC):
    """Finds items for states of one head, on a CPU in float32; valid until the head is trained further.

    Args:
        head: of a trained model.
        items: item numbers, in any order, that alone may be found; None is all.

    Raises:
        ValueError: no items, or a number that is none of an item.
    """

    @torch.no_grad()
    def __init__(self, head: OutputHead, items: npt.ArrayLike | None = None) -> None:
        self._n_all = head.n_items
        # the numbers of the rows that are searched, where these are not all
        self._numbers = None if items is None else _chosen(items, self._n_all)
        rows = slice(None) if self._numbers is None else torch.from_numpy(self._numbers)
        weight, offset = head.weight.detach().to("cpu", torch.float32)[rows], head.offset
        offset = None if offset is None else offset.detach().to("cpu", torch.float32)[rows]
        #: of the items that are searched
        self.head = OutputHead(head.geometry, weight, offset=offset, curvature=head.curvature_value)
        #: number of items that can be found, and padding
        self.n_items = self.head.n_items

    @torch.no_grad()
    def search(self, states: States, k: int, exclude: Exclusions | None = None) -> tuple[Items, Scores]:
        """Return the best items (n, k) of states (n, d) and their scores (n, k), best first, ties in item order.

        Padding is never among them. Where fewer than k are left, a list ends with 0 and -inf.

        Args:
            states: (n, d) tensor or array.
            k: between 1 and the number of items.
            exclude: for each state the item numbers that are left out, in any order and number; None leaves out none.

        Raises:
            ValueError: another shape of states, a k out of range, exclusions that are not one list a state or name an
                item that is none.
            NonFiniteScoreError: states or items that are not finite.
        """
        given = torch.as_tensor(states).to("cpu", torch.float32)
        if given.dim() != 2 or given.shape[1] != self.head.weight.shape[1]:
            raise ValueError(f"states have shape {tuple(given.shape)}; (n, {self.head.weight.shape[1]}) is needed")
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k < self.n_items:
            raise ValueError(f"k={k!r}: between 1 and {self.n_items - 1} items can be found")
        offsets, excluded = _flat(exclude, len(given), self._n_all)
        if self._numbers is not None:
            rows = np.searchsorted(self._numbers, excluded).clip(max=self.n_items - 1)
            excluded = np.where(self._numbers[rows] == excluded, rows, 0)  # padding is never found anyway
        found, scores = self._search(given, int(k), offsets, excluded)
        if self._numbers is not None:
            found = self._numbers[found]
        return found, np.where(found == 0, np.float32(-np.inf), scores)

    @abstractmethod
    def _search(self, states: Tensor, k: int, offsets: Items, excluded: Items) -> tuple[Items, Scores]:
        """Return items (n, k), 0 where none is left, and scores; row i lacks excluded[offsets[i]:offsets[i + 1]]."""


def _chosen(items: npt.ArrayLike, n_items: int) -> Items:
    """Return padding and the items in ascending order, each once."""
    numbers = np.unique(np.asarray(items, dtype=np.int64).reshape(-1))
    if not len(numbers):
        raise ValueError("items names no item, so that nothing can be found")
    _require_items("items", numbers[(numbers < 1) | (numbers >= n_items)], n_items)
    return np.concatenate([[0], numbers])


def _require_items(name: str, wrong: Items, n_items: int) -> None:
    if len(wrong):
        raise ValueError(f"{name} names item {wrong[0]}; items are 1 to {n_items - 1}")


def _flat(exclude: Exclusions | None, n: int, n_items: int) -> tuple[Items, Items]:
    """Return offsets (n + 1,) and items of the lists, one after another."""
    if exclude is None:
        return np.zeros(n + 1, dtype=np.int64), np.empty(0, dtype=np.int64)
    lists = [np.asarray(one, dtype=np.int64).reshape(-1) for one in exclude]
    if len(lists) != n:
        raise ValueError(f"exclude has {len(lists)} lists for {n} states")
    items = np.concatenate([np.empty(0, dtype=np.int64), *lists])
    _require_items("exclude", items[(items < 0) | (items >= n_items)], n_items)
    return np.concatenate([[0], np.cumsum([len(one) for one in lists], dtype=np.int64)]).astype(np.int64), items


class ExactIndex(ItemIndex):
    """All items, block by block: the product of a block and the selection from it, while it is in the cache.

    Its scores are those of ``head.frozen()``; it holds one copy of the lifted items, of a flat head none.
    """

    @torch.no_grad()
    def __init__(self, head: OutputHead, items: npt.ArrayLike | None = None) -> None:
        super().__init__(head, items)
        self._frozen = self.head.frozen()
        self._typical = _typical(self._frozen.items(False)[0].scale)

    def _search(self, states: Tensor, k: int, offsets: Items, excluded: Items) -> tuple[Items, Scores]:
        from recbole_hyper.kernels.ranks import LOWEST  # numba is imported when something is searched

        best = np.full((len(states), k), LOWEST, dtype=np.float32)
        top = np.zeros((len(states), k), dtype=np.int64)
        plain = torch.autocast("cpu", enabled=False)
        with float32_products(states.device) if len(states) >= _FEW else plain:
            for start in range(0, len(states), _ROWS):
                rows = slice(start, start + _ROWS)
                part = offsets[start : start + _ROWS + 1]
                bad = self._search_rows(states[rows], part, excluded, best[rows], top[rows])
                if bad.any():
                    raise NonFiniteScoreError(
                        f"scores of state {start + int(bad.argmax())} are not finite; the model has diverged"
                    )
        return top, best

    def _search_rows(
        self, states: Tensor, offsets: Items, excluded: Items, best: Scores, top: Items
    ) -> npt.NDArray[np.bool_]:
        """Fill ``best`` and ``top`` (n, k) for n states; returns (n,) True where a score is not finite."""
        from recbole_hyper.kernels.linked import best_linked_rows
        from recbole_hyper.kernels.ranks import best_rows

        geometry = self.head.geometry
        lifted, terms, vectors, factored = self._frozen.lift(states)
        # the bound of that kernel is one of asinh, for products that need no exponents
        scale = terms.scale.numpy() if type(geometry) is Poincare and terms.scale is not None else None
        bad = np.zeros(len(states), dtype=np.bool_)
        size = max(4096, _SCORES // len(states))
        for first in range(1, self.n_items, size):  # item 0 is padding
            part = slice(first, first + size)
            if scale is not None and not factored:
                inner = (lifted.vectors @ vectors[part].t()).numpy()
                bad |= best_linked_rows(inner, scale[part], self._typical, first, offsets, excluded, best, top)
            else:
                scores = geometry.combine(lifted, terms.rows(part), vectors[part]).contiguous()
                bad |= best_rows(scores.numpy(), first, offsets, excluded, best, top)
        return bad


def _typical(scale: Tensor | None) -> Scores:
    """Return three scales (3,) that are typical of the upper half of the items', where best items stand; 1 for none."""
    if scale is None or len(scale) < 2:
        return np.ones(3, dtype=np.float32)
    found = torch.quantile(scale[1 :: max(1, len(scale) // 10_000)], torch.tensor([0.5, 0.9, 0.99]))
    return found.clamp(min=torch.finfo(torch.float32).tiny).numpy()


class HNSWIndex(ItemIndex):
    """Candidates from a graph of neighbours (faiss), then their exact scores: a share of the items is looked at.

    Searched are the vectors of ``geometry.search_items``: for a Euclidean head the items themselves, with their offset
    as one more coordinate; for the Poincare head the scaled lifts, whose order is near that of the scores. Needs the
    extra ``index``. The same head gives the same index, and an index the same answers, with any number of threads.
    ``head`` and ``items`` are those of :class:`ItemIndex`.

    Args:
        neighbours: links of an item; more of them find more and take longer to build.
        ef_construction: items looked at when one is linked; likewise.
        candidates: items per state that are scored exactly, at least k; also the length of the search (efSearch).
        index: a built faiss index, in place of building one.

    Raises:
        ConfigError: faiss is not installed, or a number below 1.
    """

    def __init__(
        self,
        head: OutputHead,
        items: npt.ArrayLike | None = None,
        *,
        neighbours: int = 16,
        ef_construction: int = 100,
        candidates: int = 128,
        index: Any = None,
    ) -> None:
        super().__init__(head, items)
        require("index", "index=hnsw", "faiss")
        options = {"neighbours": neighbours, "ef_construction": ef_construction, "candidates": candidates}
        self.options = {name: whole(name, value) for name, value in options.items()}
        self.candidates = candidates
        self._index = self._build(neighbours, ef_construction) if index is None else index

    def _vectors(self) -> Scores:
        """Return what is indexed, (n_items - 1, width)."""
        head = self.head
        found = head.geometry.search_items(head.weight, head.offset, curvature=head.curvature_value)
        return np.ascontiguousarray(found[1:].numpy(), dtype=np.float32)

    def _build(self, neighbours: int, ef_construction: int) -> Any:
        import faiss

        vectors = self._vectors()
        index = faiss.IndexHNSWFlat(vectors.shape[1], neighbours, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = ef_construction
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)  # threads would link the items in another order each time
        try:
            index.add(vectors)
        finally:
            faiss.omp_set_num_threads(threads)
        return index

    def _search(self, states: Tensor, k: int, offsets: Items, excluded: Items) -> tuple[Items, Scores]:
        head = self.head
        queries = head.geometry.search_states(states, curvature=head.curvature_value, offset=head.offset is not None)
        top = np.zeros((len(states), k), dtype=np.int64)
        best = np.full((len(states), k), -np.inf, dtype=np.float32)
        counts = np.diff(offsets)
        # those that exclude as many go together: one long history makes no other search longer
        order = np.argsort(counts, kind="stable")
        for start in range(0, len(order), _ROWS):
            rows = order[start : start + _ROWS]
            wanted = min(max(self.candidates, k) + int(counts[rows].max()), self.n_items - 1)
            found = self._candidates(queries[torch.from_numpy(rows)], wanted)
            lists = [excluded[offsets[row] : offsets[row + 1]] for row in rows]
            top[rows], best[rows] = self._best(states[torch.from_numpy(rows)], found, lists, k)
        return top, best

    def _candidates(self, queries: Tensor, wanted: int) -> Items:
        """Return ``wanted`` items (n, wanted) of each query in ascending order, 0 where the graph led to fewer."""
        import faiss

        parameters = faiss.SearchParametersHNSW(efSearch=wanted)  # type: ignore[attr-defined]
        found = self._index.search(np.ascontiguousarray(queries.numpy()), wanted, params=parameters)[1]
        return np.sort(found + 1, axis=1)

    def _best(self, states: Tensor, found: Items, excluded: Sequence[Items], k: int) -> tuple[Items, Scores]:
        """Return the k best of the candidates ``found`` (n, m) by their exact scores."""
        scores = self.head.pair_logits(states, torch.from_numpy(found)).numpy()
        if not np.isfinite(scores).all():
            raise NonFiniteScoreError("scores are not finite; the model has diverged")
        for row, items in enumerate(excluded):
            scores[row, np.isin(found[row], items)] = -np.inf
        scores[found == 0] = -np.inf
        if found.shape[1] < k:
            found = np.pad(found, ((0, 0), (0, k - found.shape[1])))
            scores = np.pad(scores, ((0, 0), (0, k - scores.shape[1])), constant_values=-np.inf)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores = np.take_along_axis(scores, order, axis=1)
        return np.where(np.isneginf(scores), 0, np.take_along_axis(found, order, axis=1)), scores

    def save(self, path: str | Path) -> None:
        """Write the index to ``path`` (such as ``RUN/index.hnsw``) and what it was built from to ``path`` + .json."""
        import faiss

        path = Path(path)
        with replaced(path) as part:
            faiss.write_index(self._index, str(part))
        write_json(_beside(path), {**self.options, "vectors": self._fingerprint()})

    @classmethod
    def load(cls, head: OutputHead, path: str | Path, items: npt.ArrayLike | None = None) -> HNSWIndex:
        """Read an index that was built for ``head`` and ``items``.

        Raises:
            ConfigError: it was built for other item vectors, cannot be read, or faiss is not installed.
        """
        require("index", "index=hnsw", "faiss")
        import faiss

        path = Path(path)
        described = read_json(_beside(path))
        try:
            index = faiss.read_index(str(path))
        except RuntimeError as error:
            raise ConfigError(f"{path} is no index that faiss can read; build it again ({error})") from error
        names = ("neighbours", "ef_construction", "candidates")
        made = cls(head, items, index=index, **{name: described[name] for name in names if name in described})
        if described.get("vectors") != made._fingerprint() or index.ntotal != made.n_items - 1:
            raise ConfigError(f"{path} was built for other item vectors; build it again for this model")
        return made

    def _fingerprint(self) -> str:
        return hashlib.sha256(self._vectors().tobytes()).hexdigest()


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def recall(index: ItemIndex, exact: ItemIndex, states: States, k: int) -> float:
    """Return the share of the k best items of ``exact`` that ``index`` finds, over all states."""
    found, truth = index.search(states, k)[0], exact.search(states, k)[0]
    hits = sum(np.isin(one, other).sum() for one, other in zip(truth, found, strict=True))
    return float(hits / truth.size)
