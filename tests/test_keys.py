"""Keys: what values match, and that YAML files, parts and the schema say the same."""

import re
from collections import Counter
from pathlib import Path

import pytest

from recbole_hyper import keys, registry
from recbole_hyper.config import properties_folder, read_yaml
from recbole_hyper.errors import ConfigError

FOLDERS = ("encoder", "geometry", "loss", "model")
FILES = [
    properties_folder() / "overall.yaml",
    *(path for folder in FOLDERS for path in sorted((properties_folder() / folder).glob("*.yaml"))),
]
# read by RecBole alone
RECBOLES = {"repeatable"}
LINE = re.compile(r"^(\w+): .*? # \(")


@pytest.mark.parametrize(
    ("values", "good", "bad"),
    [
        ("int >= 1", [1, 10**12], [0, -1, 1.0, True, "1", None, float("inf")]),
        ("int >= 1 or ~", [1, None], [0, "~", False]),
        ("int in [0, 15]", [0, 15], [-1, 16, 1.5]),
        ("float > 0", [1, 1e-9], [0, -1.0, float("nan"), float("inf"), True, "1"]),
        ("float", [-3, 0.5], [None, "x", float("nan")]),
        ("float in [0, 1)", [0, 0.5], [1, -0.1]),
        ("float in (0, 1) or ~", [0.95, None], [0, 1]),
        ("float > 0, auto or learn", [1, "auto", "learn"], ["automatic", 0, None]),
        ("two floats in [0, 1)", [[0.9, 0.98]], [[0.9], [0.9, 1.0], 0.9, (0.9, 0.9), [0.9, "0.9"]]),
        ("bool", [True, False], [1, 0, "True", None]),
        ("all, last or random", ["all", "random"], ["", "All", None, ["all"]]),
        ("str or int", ["0", 1], [None, True, 1.5]),
        ("interval or ~", ["[5,inf)", "(0,1];[3,4]", None], ["5", "[5", "[6,5]", "[a,b]"]),
        ("part", ["ce", int], [None, 3]),
        ("dict or ~", [{}, None], [[], "{}"]),
    ],
)
def test_words_for_values(values: str, good: list, bad: list) -> None:
    assert [value for value in good if not keys.matches(values, value)] == []
    assert [value for value in bad if keys.matches(values, value)] == []


def test_a_wrong_value_is_told_with_what_is_expected() -> None:
    with pytest.raises(ConfigError, match=r"n_layers=0: a whole number of at least 1 is expected"):
        keys.check({"unknown": 0, "n_layers": 0})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("int >= 1 or ~", "a whole number of at least 1 or ~"),
        ("float32 > 0, auto or learn", "a number above 0 that float32 holds, auto or learn"),
        ("two floats in [0, 1)", "two numbers in [0, 1)"),
        ("float in (0, 1) or ~", "a number in (0, 1) or ~"),
        ("bool", "true or false"),
        ("all, last or random", "all, last or random"),
    ],
)
def test_values_in_words(values: str, words: str) -> None:
    assert keys.in_words(values) == words


def test_every_word_of_the_schema_is_one_that_is_meant() -> None:
    words = Counter(word for key in keys.KEYS.values() for word in keys._alternatives(key.values))
    kinds = [word for word in words if word in keys._KINDS or "int" in word or "float" in word]
    assert all(word in keys._KINDS or keys._RANGE.fullmatch(word.replace("two floats", "float")) for word in kinds)
    assert all(re.fullmatch(r"\w+", word) for word in set(words) - set(kinds))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_yaml_files_name_keys_of_the_schema_with_its_words(path: Path) -> None:
    """The comment of a key begins with what its values may be, in the words of the schema."""
    content = read_yaml(path)
    assert [key for key in content if key not in keys.KEYS and key not in RECBOLES] == []
    keys.check(content)
    commented = [(match[1], line) for line in path.read_text().splitlines() if (match := LINE.match(line))]
    assert [line for key, line in commented if f" # ({keys.KEYS[key].values})" not in line] == []


@pytest.mark.parametrize("kind", ["encoders", "losses", "geometry"])
def test_every_option_of_a_part_is_a_key(kind: str) -> None:
    folder = {"encoders": "encoder", "losses": "loss", "geometry": "geometry"}[kind]
    missing = []
    for name in registry.names(kind):
        for option in registry.resolve(kind, name).option_parameters():
            spelled = registry.option_keys(option, name, folder)
            # the length of histories is MAX_ITEM_LIST_LENGTH; a part is told its curvature by the head
            if option != "max_length" and not any(key in keys.KEYS for key in spelled):
                missing.append((name, option))
    assert missing == []
