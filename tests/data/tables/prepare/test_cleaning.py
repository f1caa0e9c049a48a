"""Cleaning: each step by hand, and their order."""

from pathlib import Path

import pytest

from recbole_hyper.data.tables.prepare import public
from recbole_hyper.data.tables.prepare.cleaning import Cleaning, apply, check_times, gap_seconds, seconds
from recbole_hyper.errors import DataError
from tests.data.tables.raw import CODED, T, interactions, lines_of
from tests.raising import refused


def kept(cleaning: Cleaning) -> list[tuple[int, int, float]]:
    data, _ = apply(interactions(CODED), cleaning)
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
    _, steps = apply(interactions(CODED), Cleaning(since="10", duplicates="first", filter="k_core", min_user=2))
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
        (Cleaning(since="2030-01-01"), "since 2030-01-01 removes all 6 interactions; choose an earlier --since"),
        (Cleaning(threshold=9.0), "lower --threshold"),
    ],
)
def test_nothing_left_is_an_error(cleaning: Cleaning, message: str) -> None:
    with refused(DataError, "removes all 6", message):
        apply(interactions(CODED), cleaning)


def test_a_threshold_needs_ratings() -> None:
    data = interactions(CODED)
    data.ratings = None
    with refused(DataError, "needs ratings"):
        apply(data, Cleaning(threshold=3.0))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2019-01-01", 1_546_300_800.0),
        ("2019-12-31 00:00:00", 1_577_750_400.0),
        ("1546300800.5", 1_546_300_800.5),
        ("2024-01-02", 1_704_153_600.0),
        ("10", 10.0),
        ("2020-01-01T10:00+02:00", 1_577_865_600.0),
        ("202401.0", 202_401.0),
    ],
)
def test_times_on_the_command_line(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["202401", "2024", "20240102", "2024-13-50"])
def test_times_that_mean_two_things_or_none(text: str) -> None:
    with refused(DataError, text, "a date"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "gap"),
    [("60 ", 60), ("+60", 60), ("1.5h", 5400), ("30min", 1800), ("2h 30m", 9000), ("01:30:00", 5400), (".5", 0.5)],
)
def test_pauses_between_sessions(text: str, gap: float) -> None:
    assert gap_seconds(text) == gap


@pytest.mark.parametrize("text", ["60,5", "1,5h", "-5", "0", "1e3", "5 furlongs", "", "min"])
def test_pauses_that_cannot_be_read(text: str) -> None:
    with refused(DataError, f"session_gap={text!r}"):
        gap_seconds(text)


@pytest.mark.parametrize("key", ["since", "until", "session_gap"])
def test_positions_and_steps_are_not_compared_with_seconds(key: str) -> None:
    cleaning = Cleaning(**{key: "2"})
    with refused(DataError, f"--{key}=2", "order of the file"):
        check_times(cleaning, "positions")
    apply(interactions(CODED), cleaning, "steps")
    text = "30min" if key == "session_gap" else "2020-01-01"
    with refused(DataError, f"--{key}={text}", "steps"):
        check_times(Cleaning(**{key: text}), "steps")


def test_steps_are_compared_with_the_number_itself() -> None:
    rows = [(0, 0, 1.0, 40_000.0), (0, 1, 1.0, 20_240_101.0), (0, 2, 1.0, 20_240_103.0)]
    data, _ = apply(interactions(rows), Cleaning(since="40001", until="20240102"), "steps")
    assert data.times.tolist() == [20_240_101.0]


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


def test_sessions_and_exact_copies(tmp_path: Path) -> None:
    raw = tmp_path / "raw.csv"
    times = [0, 600, 3000, 3000, 3000, 5000]
    raw.write_text(
        "user,item,time\n" + "".join(f"a,i{n // 3},{T + time}\n" for n, time in enumerate(times)) + f"b,x,{T}\n"
    )
    found = [line.split("\t")[:2] for line in lines_of(raw, tmp_path, changes={"session_gap": "30min"})]
    assert found == [["a#1", "i0"], ["a#1", "i0"], *[["a#2", "i0"]], *[["a#2", "i1"]] * 2, ["a#3", "i1"], ["b#1", "x"]]
    found = lines_of(raw, tmp_path, changes={"duplicates": "exact"})
    assert [line.split("\t")[1] for line in found] == ["i0", "i0", "i0", "i1", "i1", "x"]
    with refused(DataError, "'soon'", "session_gap="):
        lines_of(raw, tmp_path, changes={"session_gap": "soon"})
