"""The command delta: which interactions it uses, and the mean over ranks."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

from recbole_hyper.commands.delta import mean_over_ranks, training_matrix
from recbole_hyper.curvature.disk import curvature_of
from recbole_hyper.curvature.study import measure_samples
from tests.conftest import write_inter

ROWS = [("a", "x", 1), ("a", "y", 2), ("b", "x", 3), ("b", "z", 9), ("c", "y", 10)]


def options(data: Path, quantile: float) -> argparse.Namespace:
    return argparse.Namespace(dataset="few", data_path=str(data), config_files=[], train_quantile=quantile)


def test_only_interactions_before_the_quantile_are_used(tmp_path: Path) -> None:
    data = write_inter(tmp_path, "few", ROWS)
    matrix, count = training_matrix(options(data, 1.0))
    assert (matrix.shape, matrix.nnz, count) == ((3, 3), 5, 5)
    # the last two interactions are later, so that c has none and the item z has no user
    matrix, count = training_matrix(options(data, 0.7))
    assert count == 5
    assert sorted(map(sorted, matrix.toarray().astype(int).tolist())) == [[0, 0, 1], [0, 1, 1]]


@pytest.mark.parametrize("quantile", [0.0, -1.0, 1.5])
def test_a_quantile_outside_its_range(quantile: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a number above 0 and up to 1 is needed"):
        training_matrix(options(tmp_path, quantile))


def test_the_mean_is_that_of_the_largest_sample() -> None:
    vectors = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    measured = measure_samples(vectors, ranks=[2, 4, 6], sample_sizes=[10, 20], repeats=2, seed=1, every_base=False)
    assert len(measured) == 12
    mean = mean_over_ranks(measured, [1e-5])
    assert mean["delta_rel"] == pytest.approx(np.mean([m.delta_rel for m in measured if m.sample_size == 20]))
    assert mean["curvature_by_eps"] == {"1e-05": pytest.approx(curvature_of(mean["delta_rel"], 1e-5))}
