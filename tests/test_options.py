"""Options: that parts, settings and model files agree, and that no default is stated twice."""

from pathlib import Path
from typing import Annotated, Any

import pytest
from annotated_types import Gt
from pydantic import Field

from recbole_hyper import registry, settings
from recbole_hyper.config.parts import PARTS, part_of
from recbole_hyper.errors import ConfigError
from recbole_hyper.options import OPEN, Option, arguments, check_options, options_of
from recbole_hyper.values import PositiveFloat, PositiveInt, alternatives, in_words
from recbole_hyper.yaml_files import properties_folder, read_yaml
from tests.raising import refused

PACKAGE = Path(settings.__file__).parent
FILES = sorted((properties_folder() / "model").glob("*.yaml"))


def test_a_wrong_value_is_told_with_what_is_expected() -> None:
    with refused(ConfigError, "n_layers=0"):
        check_options(settings.declared(), {"unknown": 0, "n_layers": 0})


def named_parts() -> list[tuple[str, str]]:
    return [(key, name) for key, (kind, _) in PARTS.items() for name in registry.names(kind)]


@pytest.mark.parametrize(("key", "name"), named_parts())
def test_a_part_states_each_option_with_values_and_meaning(key: str, name: str) -> None:
    for option in part_of(key, name).options().values():
        assert option.kind is not Any, option
        assert option.about, option
        assert option.default is OPEN or option.allows(option.default), option
        # one key has one range, whatever part it is of
        declared = settings.declared()[option.key].kind
        assert {*alternatives(option.kind)} == {*alternatives(declared)}, option
    check_options(settings.declared(), part_of(key, name).defaults())


def test_every_setting_has_values_a_meaning_and_a_default_that_it_may_have() -> None:
    for key, option in settings.SETTINGS.items():
        assert key == option.key
        assert option.about
        assert option.default is OPEN or option.allows(option.default), key


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_file_of_a_model_says_what_departs_from_its_parts(path: Path) -> None:
    """No default is stated twice: a line that changes nothing is not there."""
    content, model = read_yaml(path), registry.resolve("models", path.stem)
    defaults: dict[str, Any] = {key: one.default for key, one in settings.SETTINGS.items()} | model.defaults()
    for key, name in model.parts.items():
        defaults |= part_of(key, name).defaults()
    defaults |= model.parts
    assert [key for key, value in content.items() if defaults[key] == value] == []
    check_options(settings.declared(), content)


def test_no_other_file_states_a_default_of_a_part() -> None:
    folders = {path.name for path in properties_folder().iterdir() if path.is_dir()}
    assert folders == {"model", "protocol", "reproduce", "sweep"}


class Plain(registry.Part):
    """What a plugin may write: no word about its options."""

    def __init__(self, *, a=2, b=True, c: int = 1, d: float | None = None, e="x", f: float) -> None:  # type: ignore[no-untyped-def]
        pass


def test_an_argument_is_an_option_by_its_annotation_or_its_default() -> None:
    found = Plain.options()
    assert {name: one.kind for name, one in found.items()} == {
        "a": float, "b": bool, "c": int, "d": float | None, "e": Any, "f": float
    }  # fmt: skip
    assert {name: one.default for name, one in found.items() if one.default is not OPEN} == Plain.defaults()
    for name, value in (("a", "x"), ("b", 1), ("c", 0.5), ("d", "any")):
        with pytest.raises(ConfigError, match=f"{name}={value!r}: .* is expected"):
            found[name].check(value)
    for name, value in (("a", 0.5), ("b", False), ("c", 3), ("d", None), ("e", 1)):
        found[name].check(value)


def test_bounds_of_an_annotation_need_no_option() -> None:
    def part(*, rate: Annotated[float, Gt(0)] = 1.0, share: Annotated[float | None, Field(ge=0)] = None) -> None: ...

    found = options_of(part)
    assert [found["rate"].allows(value) for value in (0.5, 0, True, "1")] == [True, False, False, False]
    assert [found["share"].allows(value) for value in (0, -1)] == [True, False]
    assert in_words(found["rate"].kind) == "a number above 0"


def test_arguments_are_picked_by_key_and_none_keeps_the_default_unless_it_is_a_value() -> None:
    class Stated(registry.Part):
        def __init__(
            self,
            *,
            width: Annotated[PositiveInt | None, Option("a width", key="my_width")] = 3,
            rate: Annotated[Annotated[PositiveFloat, Option("a rate")], "of this part; a paper"] = 0.5,
        ) -> None:
            pass

    stated = options_of(Stated)
    assert (stated["width"].key, stated["width"].about, stated["rate"].about) == (
        "my_width", "a width", "of this part; a paper"
    )  # fmt: skip
    assert Stated.defaults() == {"my_width": 3, "rate": 0.5}
    assert arguments(stated, {"my_width": None, "rate": None, "width": 9}) == {"width": None, "rate": 0.5}
    assert arguments(stated, {"rate": 2, "other": 1}) == {"width": 3, "rate": 2}
