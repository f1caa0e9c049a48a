"""Runs and sweeps are found in folders; what cannot be read is skipped with one line."""

from pathlib import Path

import pytest

from recbole_hyper.cli import main
from recbole_hyper.report.build import build_report
from recbole_hyper.report.collect import ReportError, collect
from recbole_hyper.report.tables import warnings_of
from tests.raising import refused
from tests.report.conftest import write_run


def test_folders_within_one_another_count_once(folders: Path) -> None:
    assert len(collect([folders, folders / "sweep", folders / "run-1"]).entries) == len(collect([folders]).entries)


FOREIGN = [
    "[]", "", "{", "3", '"text"', "{}", '{"accuracy": 0.9}', '{"model": "SASRecCE", "dataset": "tiny", "config": []}',
    '{"model": "SASRecCE", "dataset": "tiny", "config": {}, "valid": {"ndcg@10": "high"}}',
    '{"model": "SASRecCE", "dataset": "tiny", "config": {}, "seed": [1]}',
    '{"model": "SASRecCE", "dataset": "tiny", "config": {}, "seconds": [1]}', "[" * 5000, "\x00",
]  # fmt: skip


def test_results_of_other_programs_are_left_out_with_a_line_each(tmp_path, capsys) -> None:
    write_run(tmp_path / "good")
    files = [write_run(tmp_path / f"bad-{number:02d}") / "result.json" for number in range(len(FOREIGN))]
    for file, text in zip(files, FOREIGN, strict=True):
        file.write_text(text)
    page = build_report([tmp_path], tmp_path / "report").read_text()
    lines = sorted(capsys.readouterr().err.splitlines())
    assert len(lines) == len(files)
    for file, line in zip(files, lines, strict=True):
        assert line.startswith(f"warning: skipped: {file}")
        assert str(file) in page
    assert [entry.folder.name for entry in collect([tmp_path]).entries] == ["good"]


@pytest.mark.parametrize("name", ["sweep.yaml", "sweep.json", "trials/0000-x/result.json", "trials/0000-x/trial.json"])
@pytest.mark.parametrize("text", ["[]", "!!python/object:os.system x", "trials: 3", '{"trials": 3}'])
def test_a_damaged_file_of_a_sweep_is_named(name: str, text: str, folders: Path) -> None:
    (folders / "sweep" / name).write_text(text)
    found = collect([folders])
    (problem,) = found.problems
    assert str(folders / "sweep" / name) in problem
    assert problem in warnings_of(found)


def test_nothing_to_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with refused(ReportError, "folder"):
        collect([tmp_path / "nothing"])
    assert main(["report", str(tmp_path)]) == 1
    assert "no run was found" in capsys.readouterr().err
