"""Filters against plain loops and RecBole's k-core."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.data.tables import filters
from recbole_hyper.errors import DataError
from tests.conftest import write_inter
from tests.raising import refused
from tests.reference import filters as reference

PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=120)


FEWEST = st.integers(0, 5)


def codes(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    array = np.asarray(pairs, np.int32).reshape(-1, 2)
    return array[:, 0].copy(), array[:, 1].copy()


@settings(deadline=None, max_examples=40)
@given(PAIRS, FEWEST, FEWEST)
def test_k_core_equals_removing_rows_one_by_one(pairs: list[tuple[int, int]], min_user: int, min_item: int) -> None:
    mask = filters.k_core(*codes(pairs), min_user=min_user, min_item=min_item)
    assert np.flatnonzero(mask).tolist() == reference.k_core(pairs, min_user, min_item)


@settings(deadline=None, max_examples=40)
@given(PAIRS, FEWEST, FEWEST)
def test_single_pass_equals_the_loop(pairs: list[tuple[int, int]], min_user: int, min_item: int) -> None:
    mask = filters.single_pass(*codes(pairs), min_user=min_user, min_item=min_item)
    assert np.flatnonzero(mask).tolist() == reference.single_pass(pairs, min_user, min_item)


@settings(deadline=None, max_examples=40)
@given(PAIRS, FEWEST, FEWEST)
def test_counting_distinct_partners_equals_the_sce_papers_filter(pairs, min_user, min_item) -> None:
    pairs = sorted(pairs, key=lambda pair: pair[0])
    left = reference.distinct_single_pass(pairs, min_user, min_item)
    arguments = {"method": "single_pass", "min_user": min_user, "min_item": min_item, "count": "distinct"}
    if not left:
        with refused(DataError, "removes all"):
            filters.filtered(*codes(pairs), **arguments)  # type: ignore[arg-type]
    else:
        mask = filters.filtered(*codes(pairs), **arguments)  # type: ignore[arg-type]
        assert np.flatnonzero(mask).tolist() == left


@settings(deadline=None)
@given(PAIRS, st.sampled_from(["first", "last"]))
def test_repeats_equal_the_loop(pairs: list[tuple[int, int]], keep: str) -> None:
    pairs = sorted(pairs, key=lambda pair: pair[0])
    assert np.flatnonzero(filters.repeated(*codes(pairs), keep)).tolist() == reference.repeated(pairs, keep)


def test_k_core_of_a_long_chain_is_quick() -> None:
    """Each round removes two rows only, so whole passes would be 10,000 over all rows."""
    length = 20_000
    chain = np.repeat(np.arange(length, dtype=np.int32), 2)
    users, items = chain[:-1], chain[1:]
    mask = filters.k_core(users, items, min_user=2, min_item=2)
    assert not mask.any()


def test_k_core_is_recboles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """user_inter_num_interval and item_inter_num_interval of RecBole's own dataset, on the same rows."""
    from recbole.config import Config
    from recbole.data.dataset import Dataset

    import recbole_hyper  # noqa: F401  (makes recbole work with current libraries)

    generator = np.random.default_rng(4)
    users, items = (
        (generator.zipf(1.3, 4000) % 400).astype(np.int32),
        (generator.zipf(1.3, 4000) % 300).astype(np.int32),
    )
    write_inter(tmp_path, "mine", list(zip(users, items, range(4000), strict=True)))
    monkeypatch.setattr("sys.argv", ["test"])
    values = {
        "data_path": str(tmp_path),
        "load_col": {"inter": ["user_id", "item_id", "timestamp"]},
        "user_inter_num_interval": "[5,inf)",
        "item_inter_num_interval": "[4,inf)",
    }
    dataset = Dataset(Config(model="BPR", dataset="mine", config_dict=values))
    mask = filters.k_core(users, items, min_user=5, min_item=4)
    assert 0 < mask.sum() < 4000
    assert np.flatnonzero(mask).tolist() == dataset.inter_feat["timestamp"].astype(int).tolist()
