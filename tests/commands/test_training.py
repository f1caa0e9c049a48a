"""The commands run, sweep and reproduce: options that are more than a word."""

import argparse

import pytest

from recbole_hyper.cli import main
from recbole_hyper.commands.training import duration
from tests.raising import refused


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("1.5h", 5400), ("1h30m", 5400), ("1h1m1s", 3661)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "soon", "1d", "1.2.3m", "-5", "1h30"])
def test_other_words_are_no_durations(text: str) -> None:
    with refused(argparse.ArgumentTypeError, "90s", "30m", "1h30m"):
        duration(text)


@pytest.mark.parametrize("text", ["cpu", "cpu=x", "cpu=1,ram=2", "", "cpu=1;gpu=1"])
def test_resources_that_cannot_be_read(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--model=Pop", "--dataset=d", f"--resources={text}"]) == 1
    assert f"error: resources={text!r}: cpu=NUMBER and gpu=NUMBER are expected" in capsys.readouterr().err


def test_reproduce_without_a_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 1
    assert "name a recipe; recbole-hyper reproduce --list lists them" in capsys.readouterr().err
