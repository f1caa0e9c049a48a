"""The figures of a study: what their lines and axes show, and the files."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from examples import delta_figures as plots
from examples.delta_study import Estimate, Measurement, estimate_of
from recbole_hyper.curvature.disk import curvature_of

RANKS, SIZES, REPEATS = (16, 32, 64), (100, 200), 4


def measured(ranks: tuple[int, ...] = RANKS) -> tuple[list[Measurement], Estimate]:
    generator = np.random.default_rng(0)
    measurements = [
        Measurement(rank, size, repeat, 0, 0.1, 1.0, 0.2 + 0.01 * generator.random(), 0.0)
        for rank in ranks
        for size in SIZES
        for repeat in range(REPEATS)
    ]
    return measurements, estimate_of(measurements)


def values_of(measurements: list[Measurement], rank: int, size: int) -> list[float]:
    return [one.delta_rel for one in measurements if (one.rank, one.sample_size) == (rank, size)]


def test_lines_are_the_means() -> None:
    measurements, estimate = measured()
    by_size = plots.by_sample(measurements, "title").axes[0].get_lines()
    for line, rank in zip(by_size, RANKS, strict=True):
        assert line.get_label() == str(rank)
        assert list(line.get_xdata()) == list(SIZES)
        assert line.get_ydata() == pytest.approx([np.mean(values_of(measurements, rank, size)) for size in SIZES])
    by_rank = plots.by_rank(measurements, estimate, "title").axes[0].get_lines()
    for line, size in zip(by_rank, SIZES, strict=False):
        assert line.get_ydata() == pytest.approx([np.mean(values_of(measurements, rank, size)) for rank in RANKS])


def test_the_right_axis_is_the_curvature() -> None:
    measurements, estimate = measured()
    figure = plots.by_rank(measurements, estimate, "title")
    right = figure.axes[1].yaxis
    ticks = right.get_major_locator()()
    assert len(ticks) > 1
    for tick in ticks:
        assert float(right.get_major_formatter()(tick)) == pytest.approx(curvature_of(tick), rel=5e-3)


def test_every_repeat_is_a_point_of_the_spread() -> None:
    measurements, estimate = measured()
    axes = plots.spread(measurements, estimate, "title").axes[0]
    points = next(line for line in axes.get_lines() if line.get_marker() == ".")
    expected = [value for rank in RANKS for value in values_of(measurements, rank, SIZES[-1])]
    assert list(points.get_ydata()) == expected


def test_the_files_of_the_command_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measurements, estimate = measured()
    assert plots.main([str(tmp_path)]) == 1
    assert "has no finished study of delta" in capsys.readouterr().err
    pd.DataFrame([asdict(one) for one in measurements]).to_csv(tmp_path / "delta.csv", index=False)
    (tmp_path / "delta.json").write_text(json.dumps({"dataset": "tiny", "estimate": asdict(estimate)}))
    assert plots.main([str(tmp_path)]) == 0
    for figure in ("by_sample", "by_rank", "spread"):
        assert (tmp_path / f"delta_{figure}.png").read_bytes()[:4] == b"\x89PNG"
        assert "<svg" in (tmp_path / f"delta_{figure}.svg").read_text()
    assert not list(tmp_path.glob("*.part*"))
