"""The command recommend: its options that are more than a word; lists are tested in tests/serving."""

import argparse
from pathlib import Path

import pytest

from recbole_hyper import load, run
from recbole_hyper.cli import main
from recbole_hyper.commands import words
from recbole_hyper.commands.recommend import _mapping, ids_or_file, switch
from recbole_hyper.data.tables.inputs import read_boosts
from recbole_hyper.errors import ConfigError
from tests.conftest import SMALL, write_inter
from tests.raising import refused


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("u1, u2,", ["u1", "u2"]), ("[u1,u2]", ["u1", "u2"]), (" [u1] ", ["u1"]), ("", []), ("[]", []),
        ("[x],u1", ["[x]", "u1"]), ("u1,[x]", ["u1", "[x]"]), ("[x],[y]", ["[x]", "[y]"]),
    ],
)  # fmt: skip
def test_brackets_around_all_words_go_and_those_of_an_id_stay(text: str, found: list[str]) -> None:
    assert words(text) == found


@pytest.mark.parametrize(("text", "value"), [("true", True), ("True", True), ("FALSE", False)])
def test_a_switch(text: str, value: bool) -> None:
    assert switch(text) is value


@pytest.mark.parametrize("text", ["", "yes", "1"])
def test_other_words_are_no_switch(text: str) -> None:
    with refused(argparse.ArgumentTypeError, "neither", "false"):
        switch(text)


def test_ids_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ids_or_file("users", None) is None
    assert ids_or_file("users", "anna, ben") == ["anna", "ben"]
    # ids have dots and slashes
    for one in ("anna@example.org", "17850.0", "123.456", "some/where", "a.txt"):
        assert ids_or_file("users", one) == [one]
        assert ids_or_file("items", f"x,{one}") == ["x", one]
    Path("anna").touch()
    assert ids_or_file("users", "anna") == ids_or_file("users", "@anna") == Path("anna")
    Path("folder").mkdir()
    assert ids_or_file("users", "folder") == ["folder"]
    with refused(ValueError, "--users=@gone"):
        ids_or_file("users", "@gone")
    for empty in ("", ",", " "):
        with pytest.raises(ValueError, match=f"--items={empty}: no id; write ids as --items=a,b, or a file"):
            ids_or_file("items", empty)


def test_typed_ids(folder: Path, tmp_path: Path, capsys, caplog: pytest.LogCaptureFixture) -> None:
    def table(*words: str) -> list[list[str]]:
        assert main(["recommend", str(folder), *words]) == 0
        return [line.split() for line in capsys.readouterr().out.splitlines()[2:-1]]

    rows = table("--users=u1,anna@example.org", "--k=2")
    assert [row[0] for row in rows] == ["u1", "u1", "anna@example.org", "anna@example.org"]
    assert "--users: not in the data: 'anna@example.org'" in caplog.text
    assert "1 users are unknown to the model and got the most popular items" in caplog.text
    rows = table("--users=u1,u2", "--items=i2,i3,i7", "--k=3", "--exclude_seen=False")
    assert {row[2] for row in rows} <= {"i2", "i3", "i7"}
    assert "i2" not in {row[2] for row in table("--users=u1", "--exclude=i2", "--k=10", "--exclude_seen=False")}
    (tmp_path / "x.csv").write_text("user_id,item_id\n1,i2\n")
    table("--users=u1", f"--exclude={tmp_path / 'x.csv'}")
    assert "exclude: none of its users (the first: 1) gets a list" in caplog.text
    assert main(["recommend", str(folder), "--users=ids.txt"]) == 1
    assert "error: --users: there is neither a file nor a user 'ids.txt'" in capsys.readouterr().err
    assert main(["recommend", str(folder), "--users="]) == 1
    assert "error: --users=: no id" in capsys.readouterr().err


def test_histories_whose_times_have_an_unknown_name(folder, tmp_path, capsys) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("user_id,item_id,when,price\nanna,i3,20,1\nanna,i5,10,2\n")
    assert main(["recommend", str(folder), f"--histories={file}", "--k=1"]) == 0
    said = capsys.readouterr().out
    assert "which have no times (unused columns: when, price; " in said
    assert main(["recommend", str(folder), f"--histories={file}", "--k=1", "--columns=timestamp=when"]) == 0
    assert "histories sorted by the column 'when'" in capsys.readouterr().out
    file.write_text("user_id,item_id\nanna,i3\nanna,i5\n")
    assert main(["recommend", str(folder), f"--histories={file}", "--k=1"]) == 0
    assert "histories sorted like the rows, which have no times" in capsys.readouterr().out


def test_the_first_row_of_an_item_counts(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The last row of a boost counted, but the first row of a catalogue."""
    (tmp_path / "boost.csv").write_text("item_id,boost\ni7,30\ni2,-1\ni7,-30\n")
    assert read_boosts(tmp_path / "boost.csv", {}) == {"i7": 30.0, "i2": -1.0}
    assert "1 rows repeat an item; its first row counts" in caplog.text
    model = load(folder)
    model.use_catalogue({"item_id": ["i1", "i2", "i1"], "kind": ["a", "b", "c"]})
    assert "the catalogue has 1 rows that repeat an item; its first row counts" in caplog.text
    assert model.recommend(histories=[["i3"]], k=1, rules={"where": "kind = 'a'"})["item_id"].tolist() == ["i1"]
    for wrong in ({"item_id": ["i1"], "kind": ["a", "b"]}, [1, 2], "catalogue.csv", {"i1": {"kind": "a"}}):
        with pytest.raises(ConfigError):
            model.use_catalogue(wrong)


def test_lists_are_as_long_as_a_small_catalogue(folder, tmp_path, capsys) -> None:
    write_inter(tmp_path / "data", "tiny", [(f"u{n}", f"i{(n + k) % 5}", k) for n in range(9) for k in range(4)])
    run("Pop", "tiny", config_dict={**SMALL, "data_path": str(tmp_path / "data"), "output_dir": str(tmp_path / "run")})
    words = ["recommend", str(tmp_path / "run"), "--users=u1", "--exclude_seen=False"]
    capsys.readouterr()
    assert main(words) == 0
    assert len([line for line in capsys.readouterr().out.splitlines() if line.startswith("u1 ")]) == 5
    assert main([*words, "--k=10"]) == 1
    assert "error: k=10: between 1 and 5 items can be recommended" in capsys.readouterr().err


def test_rules_as_mappings() -> None:
    assert _mapping("at_most", "{category: 2}") == {"category": 2}
    assert _mapping("at_least", "{interactions = 0: 2}") == {"interactions = 0": 2}
    assert _mapping("at_most", "") == {}
    with refused(ValueError, "'3'", "--at_most="):
        _mapping("at_most", "3")
    with refused(ValueError, "'{a: '", "--at_most="):
        _mapping("at_most", "{a: ")


def test_users_and_histories_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "nowhere", "--users=a", "--histories=b.csv"]) == 1
    assert "--users and --histories exclude each other" in capsys.readouterr().err
