"""Options: what values match, that parts, settings and model files agree, and that no default is stated twice."""

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import pytest

from recbole_hyper import cli, options, registry, settings
from recbole_hyper.config import Config
from recbole_hyper.config.checks import check_ranges
from recbole_hyper.config.parts import PARTS, part_defaults, part_options
from recbole_hyper.errors import ConfigError
from recbole_hyper.models.base import build_part
from recbole_hyper.options import OPEN, Option, arguments, options_of
from recbole_hyper.yaml_files import properties_folder, read_yaml

PACKAGE = Path(settings.__file__).parent
FILES = sorted((properties_folder() / "model").glob("*.yaml"))
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
    assert [value for value in good if not options.matches(values, value)] == []
    assert [value for value in bad if options.matches(values, value)] == []


def test_a_wrong_value_is_told_with_what_is_expected() -> None:
    with pytest.raises(ConfigError, match=r"n_layers=0: a whole number of at least 1 is expected"):
        check_ranges({"unknown": 0, "n_layers": 0}, settings.declared())


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("int >= 1 or ~", "a whole number of at least 1 or ~"),
        ("float32 > 0, auto or learn", "a number above 0 in the range of float32, auto or learn"),
        ("two floats in [0, 1)", "two numbers in [0, 1)"),
        ("float in (0, 1) or ~", "a number in (0, 1) or ~"),
        ("bool", "true or false"),
        ("all, last or random", "all, last or random"),
    ],
)
def test_values_in_words(values: str, words: str) -> None:
    assert options.in_words(values) == words


def test_every_word_for_values_is_one_that_is_meant() -> None:
    stated = [one.values for one in settings.declared().values() if one.values]
    words = Counter(word for values in stated for word in options._alternatives(values))
    kinds = [word for word in words if word in options._KINDS or "int" in word or "float" in word]
    ranges = [word.replace("two floats", "float") for word in kinds if word not in options._KINDS]
    assert all(map(options._RANGE.fullmatch, ranges))
    assert all(re.fullmatch(r"\w+", word) for word in set(words) - set(kinds))


def named_parts() -> list[tuple[str, str]]:
    return [(key, name) for key, (kind, _) in PARTS.items() for name in registry.names(kind)]


@pytest.mark.parametrize(("key", "name"), named_parts())
def test_a_part_states_each_option_with_values_and_meaning(key: str, name: str) -> None:
    for option in part_options(key, name).values():
        assert option.values, option
        assert option.about, option
        assert option.default is OPEN or option.allows(option.default), option
        # one key has one range, whatever part it is of
        assert set(options._alternatives(option.values)) == set(
            options._alternatives(settings.declared()[option.key].values)
        ), option
    check_ranges(part_defaults(key, name), settings.declared())


def test_every_setting_has_values_a_meaning_and_a_default_that_it_may_have() -> None:
    for key, option in settings.SETTINGS.items():
        assert key == option.key
        assert option.about
        assert option.default is OPEN or option.allows(option.default), key


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_file_of_a_model_says_what_departs_from_its_parts(path: Path) -> None:
    """No default is stated twice: a line that changes nothing is not there; comments begin with what values may be."""
    content, model = read_yaml(path), registry.resolve("models", path.stem)
    defaults: dict[str, Any] = {key: one.default for key, one in settings.SETTINGS.items()} | registry.defaults(model)
    for key, name in model.parts.items():
        defaults |= part_defaults(key, name)
    defaults |= model.parts
    assert [key for key, value in content.items() if defaults[key] == value] == []
    check_ranges(content, settings.declared())
    commented = [(match[1], line) for line in path.read_text().splitlines() if (match := LINE.match(line))]
    wrong = [line for key, line in commented if f" # ({settings.declared()[key].values})" not in line]
    assert wrong == []


def test_no_other_file_states_a_default_of_a_part() -> None:
    folders = {path.name for path in properties_folder().iterdir() if path.is_dir()}
    assert folders == {"model", "protocol", "reproduce", "sweep"}


class Plain(registry.Part):
    """What a plugin may write: no word about its options."""

    def __init__(self, *, a=2, b=True, c: int = 1, d: float | None = None, e="x", f: float) -> None:  # type: ignore[no-untyped-def]
        pass


def test_an_argument_is_an_option_by_its_annotation_or_its_default() -> None:
    found = Plain.options()
    assert {name: one.values for name, one in found.items()} == {
        "a": "float", "b": "bool", "c": "int", "d": "", "e": "", "f": "float"
    }  # fmt: skip
    assert {name: one.default for name, one in found.items() if one.default is not OPEN} == Plain.defaults()
    for name, value in (("a", "x"), ("b", 1), ("c", 0.5)):
        with pytest.raises(ConfigError, match=f"{name}={value!r}: .* is expected"):
            found[name].check(value)
    for name, value in (("a", 0.5), ("b", False), ("c", 3), ("d", "any"), ("e", 1)):
        found[name].check(value)


def test_arguments_are_picked_by_key_and_none_keeps_the_default_unless_it_is_a_value() -> None:
    class Stated(registry.Part):
        def __init__(
            self,
            *,
            width: Annotated[int | None, Option("int >= 1 or ~", "a width", key="my_width")] = 3,
            rate: Annotated[Annotated[float, Option("float > 0", "a rate")], "of this part; a paper"] = 0.5,
        ) -> None:
            pass

    stated = options_of(Stated)
    assert (stated["width"].key, stated["width"].about, stated["rate"].about) == (
        "my_width", "a width", "of this part; a paper"
    )  # fmt: skip
    assert Stated.defaults() == {"my_width": 3, "rate": 0.5}
    assert arguments(stated, {"my_width": None, "rate": None, "width": 9}) == {"width": None}
    assert arguments(stated, {"rate": 2, "other": 1}) == {"rate": 2}


def test_a_value_passes_six_files_from_the_command_line_to_the_part() -> None:
    """Files in which the value itself is a variable; others pass on the mapping of all keys."""
    passed = set()
    package = f"{PACKAGE}/"

    def note(frame: Any, event: str, argument: Any) -> None:
        for place in (frame, frame.f_back):
            if place is not None and place.f_code.co_filename.startswith(package):
                values = [value for value in place.f_locals.values() if isinstance(value, str | float)]
                if "0.2537" in values or 0.2537 in values:
                    passed.add(place.f_code.co_filename.removeprefix(package))

    model = registry.resolve("models", "SASRecCE")
    Config(model, config_dict={"interactions": "given"})  # imports are not traced
    sys.setprofile(note)
    try:
        typed = cli._parse(["run", "--model=SASRecCE", "--temperature=0.2537"]).keys
        geometry = build_part("geometry", Config(model, config_dict={**typed, "interactions": "given"}))
    finally:
        sys.setprofile(None)
    assert geometry.temperature == 0.2537
    # models/base.py builds the part from all keys
    assert sorted({*passed, "models/base.py"}) == [
        "cli.py",
        "config/binding.py",
        "config/checks.py",
        "geometry/euclidean.py",
        "models/base.py",
        "options.py",
    ]
