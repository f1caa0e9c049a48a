"""A row names what sets it apart, and a curve joins only runs that differ in its axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recbole_hyper.report.build import build_report
from recbole_hyper.report.collect import collect
from recbole_hyper.report.differences import differing, legend_text, read_settings
from recbole_hyper.report.figures import cost_figure, curve_figure, parameter_figure, size_figure
from recbole_hyper.report.tables import cost_table, embedding_sizes, entry_labels, leaderboard
from tests.report.conftest import write_run, write_sweep

CONFIG = {"n_layers": 2, "train_batch_size": 32, "curvature": 1.0, "epochs": 9, "topk": [10]}


def at(folder: Path, value: float, seed: int = 1, epochs: int = 2, model: str = "SASRecCE", **config: Any) -> None:
    write_run(
        folder, model=model, seed=seed, valid={"ndcg@10": value}, test={"ndcg@10": value}, epochs=epochs,
        best_valid_score=value, config={**CONFIG, "seed": seed, **config},
    )  # fmt: skip


@pytest.fixture
def sizes(tmp_path: Path) -> Path:
    """Two sizes with two batch sizes each, one of them with two seeds; and a size that was tried with other epochs."""
    for batch, at_16, at_32 in ((32, 0.1, 0.3), (64, 0.4, 0.2)):
        at(tmp_path / f"{batch}-16", at_16, train_batch_size=batch, hidden_size=16)
        at(tmp_path / f"{batch}-32", at_32, train_batch_size=batch, hidden_size=32)
    at(tmp_path / "64-32-seed", 0.4, seed=2, train_batch_size=64, hidden_size=32)
    at(tmp_path / "long", 0.9, epochs=90, train_batch_size=64, hidden_size=64, **{"learning_rate": 0.001})
    config = {**CONFIG, "epochs": 90, "train_batch_size": 64, "hidden_size": 128}
    write_run(tmp_path / "longer", valid={"ndcg@10": 0.99}, config=config)
    return tmp_path


def test_a_curve_joins_runs_that_differ_in_size_alone(sizes: Path) -> None:
    table = embedding_sizes(cost_table(collect([sizes])))
    found = {
        (row["curve"], row["hidden_size"]): (round(row["valid ndcg@10"], 6), row["seeds"], row["optimum"])
        for row in table.to_dict("records")
    }
    assert found == {
        ("train_batch_size=32, epochs=9", 16): (0.1, 1, False),
        ("train_batch_size=32, epochs=9", 32): (0.3, 1, True),
        ("train_batch_size=64, epochs=9", 16): (0.4, 1, False),
        ("train_batch_size=64, epochs=9", 32): (0.3, 2, False),
        # the run of 90 epochs is of another curve, of one size, and not shown
        ("train_batch_size=64, epochs=9", 64): (0.9, 1, True),
    }


def test_no_legend_names_two_things_alike(sizes: Path) -> None:
    found = collect([sizes])
    costs = cost_table(found)
    long = [entry for entry in found.entries if entry.history]
    figures = [
        size_figure(embedding_sizes(costs), "valid ndcg@10", "a"),
        curve_figure(long, "b"),
        curve_figure([*long[:2], *long[:2]], "the same twice"),
        cost_figure(costs, "ndcg@10", "c"),
    ]
    for figure in figures:
        assert figure is not None
        legend = (figure.legends or [figure.axes[0].get_legend()])[0]
        names = [text.get_text() for text in legend.get_texts()]
        assert names
        if figure is not figures[2]:
            assert len(set(names)) == len(names)
    costs_axes = figures[3].axes
    assert [axis.get_xlabel() for axis in costs_axes] == ["peak memory, MiB", "training time, s"]
    assert entry_labels(long)[0] == "SASRecCE, hidden_size=16, train_batch_size=32, epochs=9, seed 1"


def test_rows_name_what_differs_and_the_epochs(sizes: Path) -> None:
    board = leaderboard(collect([sizes])).set_index("folder")
    row = board.loc[str(sizes / "32-16")]
    assert (row["settings"], row["epochs"]) == ("hidden_size=16, train_batch_size=32, epochs=9", 2)
    assert board.loc[str(sizes / "long"), "epochs"] == 90
    # two seeds of one configuration are one row
    assert board["seeds"].tolist().count(2) == 1


def test_keys_that_a_model_does_not_read_are_not_named(tmp_path: Path) -> None:
    for number, weight in enumerate((8.0, 64.0)):
        more = {"reg_weight": weight, "learning_rate": 0.1 / (1 + number), "curvature": 1.0 + number}
        at(tmp_path / f"ease-{number}", 0.1, model="EASER", **more)
        more = {"curvature": 1.0 + number, "train_batch_size": 32, "learning_rate": weight / 1000}
        at(tmp_path / f"bpr-{number}", 0.1, model="BPR", **more)
    at(tmp_path / "pure", 0.1, model="PureSVDN", rank=16, scaling=0.5, learning_rate=7.0, curvature=3.0)
    board = leaderboard(collect([tmp_path]))
    assert sorted(board["settings"]) == [
        "", "learning_rate=0.008", "learning_rate=0.064", "reg_weight=64", "reg_weight=8",
    ]  # fmt: skip


def test_reading_of_settings() -> None:
    config = {"curvature": 1.0, "reg_weight": 3.0, "output_dir": "x", "train_batch_size": 2}
    assert read_settings("EASER", config) == {"reg_weight": 3.0}
    assert read_settings("SASRecCE", config) == {key: config[key] for key in config if key != "output_dir"}
    assert read_settings("a foreign model", config) == read_settings("SASRecCE", config)
    assert differing([{"a": 1, "hidden_size": 2, "b": [1]}, {"a": 1, "hidden_size": 3}]) == ["hidden_size", "b"]
    assert legend_text("cost $x$, " + "a=1, " * 20).count("\n") == 2
    assert r"\$x\$" in legend_text("$x$")


def test_lines_over_a_key_of_a_sweep_join_trials_that_differ_in_it_alone(tmp_path: Path) -> None:
    base = {"status": "finished", "seconds": 1.0, "MiB": 1}
    trials = [
        {**base, "score": score, "hidden_size": size, "more": {"n_layers": layers}}
        for layers, size, score in ((1, 16, 0.1), (1, 32, 0.2), (2, 16, 0.5), (2, 32, 0.4), (3, 64, 0.9))
    ]
    found = collect([write_sweep(tmp_path / "s", trials)])
    figure = parameter_figure(found.sweeps[0])
    assert figure is not None
    assert [line.get_ydata().tolist() for line in figure.axes[0].lines] == [[0.1, 0.2], [0.5, 0.4]]
    assert figure.axes[0].get_xlabel() == "hidden_size"


def test_the_page_of_such_runs(sizes: Path, tmp_path: Path) -> None:
    text = build_report([sizes], tmp_path / "report").read_text()
    assert '<td class="long" data-value="hidden_size=16, train_batch_size=32, epochs=9">' in text
    assert '<td class="long" data-value="hidden_size=128, train_batch_size=64, epochs=90">' in text
    assert "differ only in the embedding size" in text
