"""The files around the package agree: versions, the list of targets, and the example of a release."""

import re
import subprocess
from pathlib import Path

import pytest

import recbole_hyper
from tests.conftest import script

ROOT = Path(__file__).parents[1]


def test_every_place_states_the_version_of_the_package() -> None:
    release = script(ROOT / ".github" / "release.py")
    assert release.problems(recbole_hyper.__version__) == []
    assert len(release.problems("9.9.9")) == len(release.PLACES) == 4


def test_make_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.search(r"^\.PHONY: (.*)$", text, flags=re.MULTILINE)[1].split()) - {"help"}
    assert targets - set(re.findall(r"^# make ([\w-]+)", text, flags=re.MULTILINE)) == set()


def test_every_folder_of_the_repository_is_known() -> None:
    """A command that was run here once left a folder of arrays, and a commit took it along."""
    done = subprocess.run(["git", "ls-tree", "-d", "--name-only", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a checkout")
    known = "benchmarks dataset docs examples paper properties recbole_hyper results tests .ci .github"
    assert set(done.stdout.split()) <= set(known.split())
