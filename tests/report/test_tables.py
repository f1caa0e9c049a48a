"""Every number in a report's tables comes from the folders."""

from pathlib import Path

import pytest

from recbole_hyper.report.collect import collect
from recbole_hyper.report.tables import leaderboard, trial_table, warnings_of
from tests.report.conftest import write_run, write_scored_run


def test_leaderboard(folders: Path) -> None:
    board = leaderboard(collect([folders]))
    full = board[board.protocol == "leave-one-out, full ranking, seen items excluded"]
    assert full.model.tolist() == ["gSASRec", "SASRecCE"]
    assert full["ndcg@10"].tolist() == pytest.approx([0.35, 0.15])
    assert full["ndcg@10 std"].tolist() == pytest.approx([0.0707107, 0.0707107])
    assert full.seeds.tolist() == [2, 2]
    assert full["peak MiB"].tolist() == [80.0, 80.0]
    # sampled candidates are another group, however high
    assert board[board["ndcg@10"] == 0.9].protocol.tolist() == [
        "leave-one-out, 99 drawn candidates (uni99), seen items excluded"
    ]


def test_the_same_seed_twice_counts_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name)
    assert leaderboard(collect([tmp_path])).seeds.tolist() == [1]


def test_trials_show_failures(folders: Path) -> None:
    table = trial_table(collect([folders]))
    assert table.status.tolist() == ["finished"] * 3 + ["failed"]
    assert table.hidden_size.tolist() == [32, 64, 64, 128]
    assert table.reason.iloc[3].startswith("out of memory")
    assert table["peak MiB"].tolist()[:3] == [100, 200, 90]


def test_warnings(folders: Path) -> None:
    write_run(folders / "other", data_fingerprint="xyz", commit="fedc")
    notes = " ".join(warnings_of(collect([folders])))
    assert "2 fingerprints" in notes
    assert "2 versions of the code" in notes
    assert "1 trials of the sweep sweep failed" in notes


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
        write_scored_run(tmp_path / f"ease-{number}", 0.1, model="EASER", **more)
        more = {"curvature": 1.0 + number, "train_batch_size": 32, "learning_rate": weight / 1000}
        write_scored_run(tmp_path / f"bpr-{number}", 0.1, model="BPR", **more)
    write_scored_run(tmp_path / "pure", 0.1, model="PureSVDN", rank=16, scaling=0.5, learning_rate=7.0, curvature=3.0)
    board = leaderboard(collect([tmp_path]))
    assert sorted(board["settings"]) == [
        "", "learning_rate=0.008", "learning_rate=0.064", "reg_weight=64", "reg_weight=8",
    ]  # fmt: skip
