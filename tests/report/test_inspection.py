"""A run inspected: known vectors give known numbers; every kind of model; nothing is drawn that is not there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from recbole_hyper import run
from recbole_hyper.cli import main
from recbole_hyper.hyperbolic._math import exp0
from recbole_hyper.report.inspection import groups_table, in_ball, inspect_run
from tests.conftest import LEARN, SMALL
from tests.reference.planted import successors


def test_distances_are_those_of_the_ball() -> None:
    generator = np.random.default_rng(3)
    for curvature in (0.02, 1.0, 4.0):
        tangents = torch.from_numpy(generator.normal(size=(6, 4)))
        points = exp0(tangents, curvature)
        found = in_ball(tangents.norm(dim=1).numpy(), curvature)
        root = curvature**0.5
        radius = points.norm(dim=1).numpy() * root
        np.testing.assert_allclose(found["radius"], radius, rtol=1e-9)
        np.testing.assert_allclose(found["distance"], 2 / root * np.arctanh(radius), rtol=1e-9)


def test_groups_hold_every_item_once() -> None:
    popularity = np.sort(np.random.default_rng(1).random(250))[::-1]
    items = pd.DataFrame({"item_id": "x", "popularity": popularity / popularity.sum(), "norm": np.arange(250.0)})
    text = groups_table(items)
    assert [line.split()[:3] for line in text.splitlines()[2:7]] == [
        ["1", "to", "3"], ["4", "to", "13"], ["14", "to", "50"], ["51", "to", "125"], ["126", "to", "250"],
    ]  # fmt: skip
    assert "rank correlation of norm and popularity: -1.000" in text
    assert "1 to 1" in groups_table(items.head(1))


def test_a_run_with_a_ball(walk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    result = run("HSASRecCE", "walk", config_dict={**LEARN, "data_path": str(walk), "output_dir": str(out)})
    capsys.readouterr()
    assert main(["inspect", str(out)]) == 0
    text = capsys.readouterr().out
    for part in ("HSASRecCE on walk", "transformer, poincare, ce", "120 users, 60 items, 1,080 interactions", "radius"):
        assert part in text
    assert f"{result['test']['ndcg@10']:.4f}" in text
    names = {path.name for path in (out / "inspect").iterdir()}
    assert names == {
        "items.csv",
        *(f"{name}.{kind}" for name in ("curves", "norms", "ball") for kind in ("svg", "png")),
    }
    items = pd.read_csv(out / "inspect" / "items.csv")
    assert set(items.item_id) == set(successors())
    assert items.popularity.is_monotonic_decreasing
    assert items.popularity.sum() == pytest.approx(1, abs=1e-4)
    assert ((items.radius > 0) & (items.radius < 1)).all()
    rows = [line for line in text.splitlines() if line.count(", ") == 4 and line.startswith("i")]
    assert [row.split()[0] for row in rows] == items.item_id.head(5).tolist()


@pytest.mark.parametrize(("model", "columns"), [("SASRecCE", ["norm"]), ("Pop", []), ("BPR", ["norm"])])
def test_other_models_show_what_they_have(random_data: Path, tmp_path: Path, model: str, columns: list[str]) -> None:
    out = tmp_path / "run"
    run(model, "random", config_dict={**SMALL, "data_path": str(random_data), "output_dir": str(out)})
    text = inspect_run(out, tmp_path / "figures")
    assert pd.read_csv(tmp_path / "figures" / "items.csv").columns.tolist() == ["item_id", "popularity", *columns]
    assert not (tmp_path / "figures" / "ball.svg").exists()
    assert (tmp_path / "figures" / "norms.svg").is_file() == bool(columns)
    assert "curvature" not in text
    assert not (out / "inspect").exists()


def test_a_folder_without_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tmp_path)]) == 1
    assert "no finished run" in capsys.readouterr().err
