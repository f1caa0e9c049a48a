"""The command prepare: its options that are more than a word; the work itself is tested in tests/data."""

import argparse
import io
import re
import sys
from pathlib import Path

import pytest

from recbole_hyper.cli import main
from recbole_hyper.commands.prepare import _changes, name_of, named_columns
from recbole_hyper.errors import DataError
from tests.raising import refused


def test_columns_by_field() -> None:
    assert named_columns(" user_id = who ,item_id=what,timestamp=the time") == {
        "user_id": "who",
        "item_id": "what",
        "timestamp": "the time",
    }
    assert named_columns("") is named_columns(None) is None
    with refused(DataError, "user_id"):
        named_columns("user_id=a,user_id=b")


@pytest.mark.parametrize("text", ["who", "user_id=", "user=who", "user_id=a,,item_id=b"])
def test_columns_that_cannot_be_read(text: str) -> None:
    with refused(DataError, "user_id=COLUMN,item_id=COLUMN"):
        named_columns(text)


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({}, {}),
        ({"k_core": 5}, {"filter": "k_core", "min_user": 5, "min_item": 5}),
        ({"k_core": 0}, {"filter": "none", "min_user": 0, "min_item": 0}),
        ({"k_core": 5, "min_item": 2}, {"filter": "k_core", "min_user": 5, "min_item": 2}),
        ({"filter": "single_pass", "min_user": 3}, {"filter": "single_pass", "min_user": 3}),
    ],
)
def test_k_core_is_short_for_three_options(options: dict, changes: dict) -> None:
    assert _changes(argparse.Namespace(**{"k_core": None, **options})) == changes


def test_a_data_set_of_recbole_needs_no_work(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["prepare", "ml-100k"]) == 0
    assert "ml-100k comes with the installed recbole package" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "--list"]) == 0
    printed = capsys.readouterr().out
    assert "\nRaw formats (--format):\n" in printed
    assert "  ml-1m " in printed
    assert main(["prepare"]) == 2
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("orders.csv", "orders"),
        ("a b.csv.gz", "a-b"),
        ("/x/my.orders.csv", "my"),
        (".hidden", "hidden"),
        ("ü1.csv", "1"),
    ],
)
def test_a_source_without_a_name_takes_that_of_the_file(source: str, name: str) -> None:
    assert name_of(source) == name


def test_a_file_without_letters_needs_a_name() -> None:
    with refused(DataError, "NAME", "--source=---.csv"):
        name_of("---.csv")


def test_a_file_is_prepared_under_its_name(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("orders.csv").write_text("user,item,time,event\na,x,2020-01-01,v\n")
    assert main(["prepare", "--source=orders.csv"]) == 0
    assert (tmp_path / "dataset" / "orders" / "orders.inter").is_file()
    assert main(["prepare", "--source=orders.csv", "--where=event = 'q'"]) != 0
    assert "orders.csv: none of the 1 rows meets the condition" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--encoding=", "--separator="])
def test_an_empty_option_is_an_error(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = tmp_path / "orders.csv"
    raw.write_text("user,item,time\na,x,2020-01-01\n")
    assert main(["prepare", "o", f"--source={raw}", f"--output={tmp_path}", option]) != 0
    assert f"{option} is empty; leave it out" in capsys.readouterr().err


class Terminal(io.StringIO):
    """Keeps what it gets; it is a file if ``shown`` is False."""

    def __init__(self, shown: bool) -> None:
        super().__init__()
        self.shown = shown

    def isatty(self) -> bool:
        return self.shown


@pytest.mark.parametrize("shown", [True, False])
def test_a_terminal_gets_bars_with_the_time_left(shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "".join(f"u{number % 7},i{number % 11},{1_700_000_000 + number}\n" for number in range(60))
    (tmp_path / "orders.csv").write_text("user,item,time\n" + rows)
    terminal = Terminal(shown)
    monkeypatch.setattr(sys, "stderr", terminal)
    words = ["prepare", "shop", f"--source={tmp_path / 'orders.csv'}", f"--output={tmp_path}"]
    assert main(words) == 0
    bars = re.findall(r"(\S+): 100%\|[^|]*\| .*?\[\d\d:\d\d<\d\d:\d\d, .*?/s\]", terminal.getvalue())
    assert bars == (["orders.csv"] if shown else [])
