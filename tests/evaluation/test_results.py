"""The files of a run, and what they say of their origin."""

import inspect
import shutil
import subprocess
from pathlib import Path

import pytest

from recbole_hyper.evaluation import results


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_commit_is_that_of_this_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the package in the environment of another project has none; its own checkout has one."""
    project, package = tmp_path / "project", tmp_path / "project" / ".venv" / "recbole_hyper"
    package.mkdir(parents=True)
    shutil.copy(results.__file__, package / "results.py")
    (project / ".gitignore").write_text(".venv/\n")
    git(project, "init")
    git(project, "add", ".gitignore")
    git(project, "commit", "-m", "a project")
    monkeypatch.setattr(results, "__file__", str(package / "results.py"))
    monkeypatch.setattr(results, "commit", inspect.unwrap(results.commit))
    assert results.commit() is None
    git(project, "add", "--force", ".venv")
    git(project, "commit", "-m", "the package is part of it")
    assert results.commit() == git(project, "rev-parse", "HEAD")
    (package / "results.py").write_text("changed\n")
    assert results.commit() == git(project, "rev-parse", "HEAD") + "+"
    monkeypatch.setenv("PATH", "")
    assert results.commit() is None


@pytest.mark.parametrize(
    ("best", "epochs", "text"), [(33, 46, "best epoch 33 of 0 to 45"), (-1, 0, "no epoch"), (None, None, "no epoch")]
)
def test_epochs_are_counted_from_0(best: int | None, epochs: int | None, text: str) -> None:
    assert results.epochs_text({"best_epoch": best, "epochs": epochs}) == text
