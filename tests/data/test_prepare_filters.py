"""Filters against plain loops, the cleaning's order of steps, and RecBole's own k-core."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.data import filters
from recbole_hyper.data.interactions import Interactions
from recbole_hyper.data.prepare import public
from recbole_hyper.data.prepare.cleaning import Cleaning, apply, seconds
from recbole_hyper.data.prepare.statistics import Published, describe, notes, rows
from recbole_hyper.errors import DataError
from tests.reference import filters as reference

PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=120)
FEWEST = st.integers(0, 5)


def codes(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    array = np.asarray(pairs, np.int32).reshape(-1, 2)
    return array[:, 0].copy(), array[:, 1].copy()


@settings(deadline=None, max_examples=300)
@given(PAIRS, FEWEST, FEWEST)
def test_k_core_equals_removing_rows_one_by_one(pairs: list[tuple[int, int]], min_user: int, min_item: int) -> None:
    mask = filters.k_core(*codes(pairs), min_user=min_user, min_item=min_item)
    assert np.flatnonzero(mask).tolist() == reference.k_core(pairs, min_user, min_item)


@settings(deadline=None, max_examples=200)
@given(PAIRS, FEWEST, FEWEST)
def test_single_pass_equals_the_loop(pairs: list[tuple[int, int]], min_user: int, min_item: int) -> None:
    mask = filters.single_pass(*codes(pairs), min_user=min_user, min_item=min_item)
    assert np.flatnonzero(mask).tolist() == reference.single_pass(pairs, min_user, min_item)


@settings(deadline=None, max_examples=200)
@given(PAIRS, FEWEST, FEWEST)
def test_counting_distinct_partners_equals_the_sce_papers_filter(
    pairs: list[tuple[int, int]], min_user: int, min_item: int
) -> None:
    pairs = sorted(pairs, key=lambda pair: pair[0])
    left = reference.distinct_single_pass(pairs, min_user, min_item)
    arguments = {"method": "single_pass", "min_user": min_user, "min_item": min_item, "count": "distinct"}
    if not left:
        with pytest.raises(DataError, match="removes all"):
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
    """Each round removes two rows only, so whole passes would be 100,000 over all rows."""
    length = 200_000
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
    folder = tmp_path / "mine"
    folder.mkdir()
    lines = "".join(f"{u}\t{i}\t{n}\n" for n, (u, i) in enumerate(zip(users, items, strict=True)))
    (folder / "mine.inter").write_text("user_id:token\titem_id:token\ttimestamp:float\n" + lines)
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


def interactions(rows: list[tuple[int, int, float, float]]) -> Interactions:
    users, items, ratings, times = (np.asarray(column) for column in zip(*rows, strict=True))
    tokens = pa.array([f"t{n}" for n in range(10)])
    return Interactions(
        users.astype(np.int32), items.astype(np.int32), times.astype(float), ratings.astype(np.float32), tokens, tokens
    )


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 400), st.integers(1, 6), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_the_order_is_numpys(rows: int, users: int, times: int, seed: int) -> None:
    """With short and long histories, ties, and users without any row."""
    generator = np.random.default_rng(seed)
    data = [(int(generator.integers(users)), row, float(row), float(generator.normal())) for row in range(rows)]
    some = interactions([(1, 0, 0.0, 0.0), *data])
    some.times = np.round(some.times * times)
    expected = np.lexsort((some.times, some.users))
    columns = [some.users[expected], some.items[expected], some.times[expected], some.ratings[expected]]
    some.sort()
    for column, wanted in zip((some.users, some.items, some.times, some.ratings), columns, strict=True):
        assert column.tolist() == wanted.tolist()


ROWS = [(1, 0, 5.0, 30.0), (0, 1, 2.0, 10.0), (1, 0, 4.0, 10.0), (0, 2, 3.0, 10.0), (1, 2, 1.0, 20.0), (2, 2, 5.0, 0.0)]


def kept(cleaning: Cleaning) -> list[tuple[int, int, float]]:
    data, _ = apply(interactions(ROWS), cleaning)
    return list(zip(data.users.tolist(), data.items.tolist(), data.times.tolist(), strict=True))


def test_rows_are_grouped_by_user_and_ordered_by_time_with_ties_as_they_came() -> None:
    assert kept(Cleaning()) == [(0, 1, 10), (0, 2, 10), (1, 0, 10), (1, 2, 20), (1, 0, 30), (2, 2, 0)]


@pytest.mark.parametrize(
    ("cleaning", "rows"),
    [
        (Cleaning(duplicates="first"), [(0, 1, 10), (0, 2, 10), (1, 0, 10), (1, 2, 20), (2, 2, 0)]),
        (Cleaning(duplicates="last"), [(0, 1, 10), (0, 2, 10), (1, 2, 20), (1, 0, 30), (2, 2, 0)]),
        (Cleaning(threshold=3.0), [(0, 2, 10), (1, 0, 10), (1, 0, 30), (2, 2, 0)]),
        (Cleaning(since="10", until="20"), [(0, 1, 10), (0, 2, 10), (1, 0, 10), (1, 2, 20)]),
        (Cleaning(filter="k_core", min_user=2, min_item=2), [(1, 0, 10), (1, 0, 30)]),
        (Cleaning(filter="single_pass", min_user=3, min_item=2), [(1, 0, 10), (1, 2, 20), (1, 0, 30)]),
        (
            Cleaning(filter="single_pass", min_user=3, min_item=2, duplicates="first", duplicates_after_filter=True),
            [(1, 0, 10), (1, 2, 20)],
        ),
        (
            Cleaning(filter="single_pass", min_user=1, min_item=2, duplicates="first"),
            [(0, 2, 10), (1, 2, 20), (2, 2, 0)],
        ),
    ],
)
def test_each_step_by_hand(cleaning: Cleaning, rows: list[tuple[int, int, float]]) -> None:
    assert kept(cleaning) == rows


def test_steps_are_counted_in_order() -> None:
    _, steps = apply(interactions(ROWS), Cleaning(since="10", duplicates="first", filter="k_core", min_user=2))
    assert steps == [
        ("read", 6),
        ("since 10", 5),
        ("first of repeated pairs", 4),
        ("k_core, users >= 2, items >= 0 interactions", 4),
    ]


@pytest.mark.parametrize(
    ("cleaning", "message"),
    [
        (Cleaning(filter="k_core", min_user=50, min_item=2), "removes all 6 interactions; lower"),
        (Cleaning(since="2030-01-01"), "since 2030-01-01 leaves none of 6 interactions; give an earlier --since"),
        (Cleaning(threshold=9.0), "leaves none.*lower --threshold"),
    ],
)
def test_nothing_left_is_an_error(cleaning: Cleaning, message: str) -> None:
    with pytest.raises(DataError, match=message):
        apply(interactions(ROWS), cleaning)


def test_a_threshold_needs_ratings() -> None:
    data = interactions(ROWS)
    data.ratings = None
    with pytest.raises(DataError, match="needs ratings"):
        apply(data, Cleaning(threshold=3.0))


@pytest.mark.parametrize(
    ("text", "value"),
    [("2019-01-01", 1_546_300_800.0), ("2019-12-31 00:00:00", 1_577_750_400.0), ("1546300800.5", 1_546_300_800.5)],
)
def test_times_on_the_command_line(text: str, value: float) -> None:
    assert seconds(text) == value


DAY = 1_577_750_400.0  # 2019-12-31


@pytest.mark.parametrize(
    ("until", "last"),
    [
        ("2019-12-31", DAY + 86_399.5),
        ("2019/12/31", DAY + 86_399.5),
        ("2019-12", DAY + 86_399.5),
        ("2019-12-30", DAY - 1),
        ("2019-12-31 00:00:00", DAY),
        ("2019-12-31 12:00:00", DAY + 43_200),
        ("2019-12-31 12:00:00Z", DAY + 43_200),
        ("1577750400", DAY),
    ],
)
def test_until_a_date_alone_includes_the_whole_day(until: str, last: float) -> None:
    times = [DAY - 1, DAY, DAY + 1, DAY + 43_200, DAY + 43_201, DAY + 86_399.5, DAY + 86_400]
    data, _ = apply(interactions([(0, 0, 1.0, time) for time in times]), Cleaning(since="2019-01-01", until=until))
    assert data.times.max() == last


def test_the_yelp_recipe_ends_at_midnight_as_the_papers_code() -> None:
    entry = public.entries()["yelp"]
    assert entry is not None
    assert entry.cleaning.until is not None
    assert seconds(entry.cleaning.until, last=True) == DAY


def test_statistics_by_hand() -> None:
    data, _ = apply(interactions(ROWS), Cleaning())
    found = describe(data)
    assert (found.users, found.items, found.interactions, found.repeated) == (3, 3, 6, 1)
    assert found.density == pytest.approx(6 / 9)
    assert (found.mean_length, found.min_length, found.max_length) == (2.0, 1, 3)
    # neighbours of one user: (0,0) tied, (1,1) twice not
    assert found.tied == pytest.approx(1 / 3)
    assert (found.first_time, found.last_time) == (0.0, 30.0)
    same = Published("same", users=3, items=3, interactions=6)
    other = Published("other", users=4, note="misprint")
    assert notes(found, [same]) == []
    assert notes(found, [same, other]) == ["* differs from this file", "other: misprint"]
    users, items, *_, first, last = rows(found, [same, other])
    assert users == {"": "users", "this file": "3", "same": "3", "other": "4 *"}
    assert items == {"": "items", "this file": "3", "same": "3", "other": None}
    assert (first["this file"], last["this file"]) == ("1970-01-01", "1970-01-01 00:00:30")
    assert rows(found, [], positions=True)[-1] == {"": "times", "this file": "positions"}
