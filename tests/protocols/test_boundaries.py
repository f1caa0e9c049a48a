"""Points in time: units, dates, quantiles, durations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.protocols.base import make_split
from recbole_hyper.protocols.boundaries import boundary, date
from tests.protocols.splits import config_of, store_of
from tests.raising import refused


def test_the_unit_of_times_is_known_by_their_size() -> None:
    days = np.arange(1_600_000_000, 1_700_000_000, 86_400, dtype=np.float64)
    for where in ("2022-05-01", "2022-05-01 10:00:00", "2022-05-01T10:00:00Z", "10 days", "4 months", "1 year", 0.9):
        expected = boundary(days, where)
        for unit in (1e3, 1e6, 1e9):
            assert boundary(days * unit, where) / unit == pytest.approx(expected, abs=1e-5)
            with refused(ValueError, "2020-09-13", "2023-11-14"):
                boundary(days * unit, "9999-01-01")


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (1_700_000_000.0, "2023-11-14 22:13:20"),
        (1_700_000_000e9, "2023-11-14 22:13:20"),
        (9.9e10, "5107-03-10 08:00:00"),
        (17.0, "17"),
        (1e300, "1e+300"),
        (float("-inf"), "-inf"),
        (float("nan"), "nan"),
    ],
)
def test_a_date_is_shown_for_any_number(time: float, text: str) -> None:
    assert date(time) == text


@settings(derandomize=True, deadline=None)
@given(st.floats())
def test_a_date_never_raises(time: float) -> None:
    assert date(time)


def test_times_that_no_calendar_reaches_can_be_cut_by_quantile_only() -> None:
    times = np.linspace(0.0, 1e300, 50)
    assert 0 < boundary(times, 0.5) < 1e300
    with refused(ValueError, "'4 months'", "1e+300"):
        boundary(times, "4 months")


def test_nanoseconds_can_be_split_by_quantiles() -> None:
    triples = [(f"u{t % 3}", f"i{t % 5}", 1.7e18 + 86_400e9 * t) for t in range(60)]
    split = make_split(store_of(triples), config_of({"GT": {"valid": 0.5, "test": 0.8}}))
    assert split.counts["validation starts"].startswith("2023-12-1")


def test_durations_count_back_from_the_end() -> None:
    day = 86400.0
    triples = [(f"u{d % 2}", f"i{d % 4}", d * day) for d in range(100)]
    config = config_of({"GT": {"valid": "6 weeks", "test": "10 days"}}, eval_args={"successive": True})
    split = make_split(store_of(triples), config)
    assert split.points == {"valid": 57 * day, "test": 89 * day}
    milliseconds = [(u, i, 1e12 + t * 1000) for u, i, t in triples]
    split = make_split(store_of(milliseconds), config)
    assert split.points == {"valid": 1e12 + 57 * day * 1000, "test": 1e12 + 89 * day * 1000}
