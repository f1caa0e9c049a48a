"""The disk's relative delta and the curvature formula against the published numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recbole_hyper.curvature.disk import curvature_of, disk_delta_rel
from tests.raising import refused
from tests.reference import gromov


def test_published_values() -> None:
    assert disk_delta_rel(1e-5) == pytest.approx(0.0722, abs=5e-5)
    assert disk_delta_rel(1e-12) == pytest.approx(0.0311, abs=5e-5)
    # ML-1M: the two published curvatures come from nearly one delta_rel (.2517 and .2518)
    assert curvature_of(0.2517, 1e-12) == pytest.approx(0.015283691692054992, rel=1e-3)
    assert curvature_of(0.2517, 1e-5) == pytest.approx(0.08226903980753697, rel=2e-3)


@given(st.floats(1e-6, 1.0), st.floats(1e-15, 0.5))
def test_definition(delta_rel: float, eps: float) -> None:
    c = curvature_of(delta_rel, eps)
    assert c == pytest.approx(gromov.curvature_of(delta_rel, eps), rel=1e-12)


def test_limits_and_faults() -> None:
    assert curvature_of(0.0) == math.inf
    for call in (
        lambda: curvature_of(1.5),
        lambda: curvature_of(-0.1),
        lambda: disk_delta_rel(0.0),
        lambda: disk_delta_rel(1.0),
        lambda: curvature_of(math.nan),
    ):
        with refused(ValueError, "got"):
            call()
