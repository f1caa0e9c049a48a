"""The study's measurements against single calls; faults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import recbole_hyper.curvature.study as study
from recbole_hyper.curvature.gromov import euclidean_distances, gromov_delta
from recbole_hyper.curvature.study import Measurement, measure_samples


def plain(measurements: list[Measurement]) -> list[Measurement]:
    return [replace(measurement, seconds=0.0) for measurement in measurements]


@pytest.mark.parametrize("whole", [True, False])
def test_trials_equal_single_calls(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not whole:
        monkeypatch.setattr(study, "_WHOLE_BYTES", 0)
    vectors = np.random.default_rng(0).standard_t(2, size=(300, 12))
    measurements = measure_samples(vectors, ranks=[3, 12], sample_sizes=[50, 200], repeats=3, seed=5, threads=2)
    assert [(t.rank, t.sample_size, t.repeat) for t in measurements] == [
        (k, m, r) for k in (3, 12) for m in (50, 200) for r in range(3)
    ]
    for measurement in measurements:
        order = np.random.default_rng([5, measurement.repeat]).permutation(300)[: measurement.sample_size]
        single = gromov_delta(vectors[order, : measurement.rank])
        assert measurement.base == order[0]
        assert measurement.delta_rel == pytest.approx(single.delta_rel, rel=1e-9)
        assert measurement.diameter == pytest.approx(single.diameter, rel=1e-9)
    every = measure_samples(vectors, ranks=[3], sample_sizes=[50], repeats=2, seed=5, every_base=True)
    for measurement in every:
        order = np.random.default_rng([5, measurement.repeat]).permutation(300)[:50]
        assert measurement.delta == pytest.approx(gromov_delta(vectors[order, :3], base="all").delta, rel=1e-9)


def test_progress_is_told() -> None:
    calls: list[tuple[int, int]] = []
    vectors = np.random.default_rng(1).normal(size=(60, 6))
    measure_samples(
        vectors, ranks=[2, 6], sample_sizes=[30, 60], repeats=3, progress=lambda done, of: calls.append((done, of))
    )
    assert calls == [(2, 12), (4, 12), (6, 12), (8, 12), (10, 12), (12, 12)]


VECTORS = np.random.default_rng(3).normal(size=(20, 4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vectors": VECTORS, "ranks": [5]}, r"ranks \[5\]: .* from 1 to 4"),
        ({"vectors": VECTORS, "sample_sizes": [21]}, r"sample sizes \[21\]: .* from 1 to 20"),
        ({"vectors": VECTORS, "sample_sizes": [3]}, "at least 4 points"),
        ({"vectors": VECTORS, "sample_sizes": []}, "at least one value"),
        ({"vectors": VECTORS[:3]}, "at least 4 points, got 3"),
        ({"vectors": VECTORS, "repeats": 0}, "repeats must be at least 1"),
        ({"vectors": VECTORS * np.nan}, "NaN"),
        ({"vectors": VECTORS * 0}, "coincide"),
        ({}, "not both"),
    ],
)
def test_faults(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure_samples(**arguments)


def test_defaults_are_cut_at_the_data() -> None:
    measurements = measure_samples(VECTORS, repeats=1)
    assert {measurement.rank for measurement in measurements} == {4}
    assert {measurement.sample_size for measurement in measurements} == {20}
    assert euclidean_distances(VECTORS).max() == pytest.approx(measurements[0].diameter)
