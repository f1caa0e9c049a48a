"""Reading YAML: numbers, depth, names of the package's files, and merging."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recbole_hyper.errors import ConfigError
from recbole_hyper.files import load_written, read_written_yaml, yaml_text
from recbole_hyper.yaml_files import (
    config_file,
    config_files,
    merged,
    parse_yaml,
    properties_file,
    properties_folder,
    read_yaml,
)
from tests.raising import refused

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just("1e-3")


def test_numbers_and_merged_keys_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("\ufeffa: &all {b: 1e-3, c: 2}\nd: {<<: *all, c: 3}\ne: [5, .inf]\n", encoding="utf-8")
    assert read_yaml(file) == {"a": {"b": 0.001, "c": 2}, "d": {"b": 0.001, "c": 3}, "e": [5, float("inf")]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("-2E+5", -2e5),
        (".5e-2", 5e-3),
        ("1_000.5", 1000.5),
        ("-.inf", float("-inf")),
        ("1e", "1e"),
        ("e3", "e3"),
        ("12", 12),
        ("[5,inf)", None),
        ("~", None),
    ],
)
def test_numbers_as_recbole_reads_them(text: str, value: object) -> None:
    if text == "[5,inf)":
        with refused(ConfigError, "YAML"):
            parse_yaml(text, "here")
        return
    read = parse_yaml(text, "here")
    assert (type(read), read) == (type(value), value)


def test_of_a_duplicate_key_the_last_counts(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        assert parse_yaml("a: 1\nb: {c: 2, c: [3]}\na: 4\n", "twice.yaml") == {"a": 4, "b": {"c": [3]}}
    assert len(caplog.messages) == 2
    assert "twice.yaml: the key 'a'" in caplog.text


def test_depth() -> None:
    assert parse_yaml("[" * 300 + "]" * 300, "here") is not None
    # many intervals, each with one bracket that stays open, are no depth once they are closed elsewhere
    assert len(parse_yaml("\n".join(f"k{n}: '[5,inf)'" for n in range(900)), "here")) == 900
    with refused(ConfigError, "nested", "deeply"):
        parse_yaml("{a: " * 2000, "here")


@pytest.mark.parametrize("text", ["[", "- ", "? ", "{a: "])
def test_a_written_file_that_somebody_nested_ends_no_process(text: str, tmp_path: Path) -> None:
    """libyaml follows nesting on the stack of the process."""
    (tmp_path / "config.yaml").write_text(text * 30_000)
    with refused(ConfigError, "config.yaml", "damaged"):
        read_written_yaml(tmp_path / "config.yaml", "damaged")


@given(st.dictionaries(st.text(), st.recursive(LEAVES, st.lists, max_leaves=8), max_size=4))
def test_what_is_written_is_read_as_it_was(content: dict[str, object]) -> None:
    assert load_written(yaml_text(content)) == parse_yaml(yaml_text(content), "here") == content


def test_files_by_path_or_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    named = properties_folder() / "protocol" / "global_timepoint.yaml"
    assert config_file("global_timepoint") == config_file("global_timepoint.yaml") == named
    Path("global_timepoint").write_text("a: 1\n")
    assert config_file("global_timepoint") == Path("global_timepoint")
    with refused(ConfigError, "'x'"):
        properties_file("x", "protocol", "recipe")


def test_paths_in_a_text(tmp_path: Path) -> None:
    assert config_files("a.yaml  b.yaml") == ["a.yaml", "b.yaml"]
    file = tmp_path / "my keys.yaml"
    file.touch()
    assert config_files(str(file)) == [str(file)]
    assert config_files("") == []


def test_eval_args_are_merged_and_others_replaced() -> None:
    first = {"eval_args": {"split": {"LS": "valid_only"}, "mode": "full"}, "lr_plateau": {"factor": 0.5}}
    second = {"eval_args": {"mode": "uni9"}, "lr_plateau": {"patience": 3}}
    assert merged(first, second) == {
        "eval_args": {"split": {"LS": "valid_only"}, "mode": "uni9"},
        "lr_plateau": {"patience": 3},
    }
    assert first["eval_args"]["mode"] == "full"
    assert merged(first, {"eval_args": None})["eval_args"] is None
