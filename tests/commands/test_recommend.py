"""The command recommend: its options that are more than a word; lists are tested in tests/serving."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from recbole_hyper.cli import main
from recbole_hyper.commands.recommend import _mapping, _users, switch


@pytest.mark.parametrize(("text", "value"), [("true", True), ("True", True), ("FALSE", False)])
def test_a_switch(text: str, value: bool) -> None:
    assert switch(text) is value


@pytest.mark.parametrize("text", ["", "yes", "1"])
def test_other_words_are_no_switch(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is neither true nor false"):
        switch(text)


def test_users_are_all_ids_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _users(None) is _users("all") is None
    assert _users("anna, ben") == ["anna", "ben"]
    assert _users("ids.txt") == Path("ids.txt")  # which is then missing: an id has no suffix
    assert _users("some/where") == Path("some/where")
    assert _users("anna") == ["anna"]
    Path("anna").touch()
    assert _users("anna") == Path("anna")


def test_rules_as_mappings() -> None:
    assert _mapping("at_most", "{category: 2}") == {"category": 2}
    assert _mapping("at_least", "{interactions = 0: 2}") == {"interactions = 0": 2}
    assert _mapping("at_most", "") == {}
    with pytest.raises(ValueError, match=r"--at_most='3': a mapping is needed"):
        _mapping("at_most", "3")
    with pytest.raises(ValueError, match=r"--at_most='\{a: ' is not a mapping: "):
        _mapping("at_most", "{a: ")


def test_users_and_histories_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "nowhere", "--users=a", "--histories=b.csv"]) == 1
    assert "--users and --histories exclude each other" in capsys.readouterr().err
