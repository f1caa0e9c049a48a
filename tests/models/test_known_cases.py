"""What a validation knows of its cases is looked up, and the rest is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from recbole_hyper.models.known_cases import KnownCases, Places
from recbole_hyper.models.reranker import Changes
from recbole_hyper.types import Prefixes
from tests.data.test_pair_counts import store_of

STORE = store_of([[1, 2, 3, 4], [2, 1, 5], [3, 2, 1, 2]], 9)


def prefixes(*given: tuple[int, int, int]) -> Prefixes:
    """Return the histories with these rows, starts and ends."""
    rows, starts, ends = np.array(given).reshape(-1, 3).T
    return Prefixes.build(STORE, rows, ends, starts)


def numbers(cases: Prefixes) -> torch.Tensor:
    """Return a state (n, 1) that tells each history from the others."""
    return torch.from_numpy(100 * cases.rows + 10 * cases.starts + cases.ends).float()[:, None]


@pytest.mark.parametrize(("asked", "computed"), [
    ([(1, 0, 2), (0, 0, 3)], []),
    ([(1, 0, 3), (0, 0, 3), (0, 1, 3)], [0, 2]),
    ([(2, 0, 1)], [0]),
    ([], []),
])  # fmt: skip
def test_only_unknown_cases_are_computed(asked: list[tuple[int, int, int]], computed: list[int]) -> None:
    # the second and the third have one history, as cases with several targets after it do
    cases, wanted = prefixes((0, 0, 3), (1, 0, 2), (1, 0, 2)), prefixes(*asked)
    places: list[Any] = []
    known = KnownCases(cases, numbers(cases))
    known.changes = Changes(numbers(cases).long(), numbers(cases)[:, None])

    def encode(some: Places) -> torch.Tensor:
        places.append(some)
        return numbers(wanted[some])

    def read(some: Places) -> Changes:
        return Changes(encode(some).long(), numbers(wanted[some])[:, None])

    assert torch.equal(known.states_of(wanted, encode), numbers(wanted))
    items, values = known.changes_of(wanted, read)
    assert torch.equal(items, numbers(wanted).long())
    assert torch.equal(values, numbers(wanted)[:, None])
    assert [list(some) for some in places] == [computed] * 2 * bool(computed)


def test_before_anything_is_known_all_is_computed() -> None:
    cases = prefixes((0, 0, 3), (1, 0, 2))
    assert torch.equal(KnownCases().states_of(cases, lambda places: numbers(cases[places])), numbers(cases))
