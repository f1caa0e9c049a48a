"""Types of values: what they allow, without converting anything, and their description."""

from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Le
from pydantic import Field

from recbole_hyper.values import (
    Auto,
    Betas,
    InnerShare,
    Interval,
    PartName,
    PositiveFloat,
    PositiveFloat32,
    PositiveInt,
    ShareBelow1,
    allows,
    in_words,
)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (PositiveInt, [1, 10**12], [0, -1, 1.0, True, "1", None, float("inf")]),
        (PositiveInt | None, [1, None], [0, "~", False]),
        (Annotated[int, Ge(0), Le(15)], [0, 15], [-1, 16, 1.5]),
        (PositiveFloat, [1, 1e-9], [0, -1.0, float("nan"), float("inf"), True, "1", 10**400]),
        (float, [-3, 0.5], [None, "x", float("nan")]),
        (ShareBelow1, [0, 0.5], [1, -0.1]),
        (InnerShare | None, [0.95, None], [0, 1]),
        (PositiveFloat | Literal["auto", "learn"], [1, "auto", "learn"], ["automatic", 0, None]),
        (PositiveFloat32, [1e-37, 1], [1e-39, 1e300, 0, -1]),
        (Betas, [[0.9, 0.98]], [[0.9], [0.9, 1.0], 0.9, (0.9, 0.9), [0.9, "0.9"]]),
        (bool, [True, False], [1, 0, "True", None]),
        (Literal["all", "last", "random"], ["all", "random"], ["", "All", None, ["all"]]),
        (str | int, ["0", 1], [None, True, 1.5]),
        (Interval | None, ["[5,inf)", "(0,1];[3,4]", "[-inf,inf]", None], ["5", "[5", "[6,5]", "[a,b]", 5]),
        (PartName, ["ce", int], [None, 3]),
        (dict | None, [{}, None], [[], "{}"]),
        (Annotated[float, Field(gt=0)], [1], [0, "1"]),
        (Any, [None, object], []),
    ],
)
def test_values_of_a_type(kind: Any, good: list, bad: list) -> None:
    assert [value for value in good if not allows(kind, value)] == []
    assert [value for value in bad if allows(kind, value)] == []


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (PositiveInt | None, "a whole number of at least 1 or ~"),
        (Annotated[int, Field(gt=0)], "a whole number of at least 1"),
        (PositiveFloat32 | Literal["auto", "learn"], "a number above 0 in the range of float32, auto or learn"),
        (Betas, "two numbers in [0, 1)"),
        (InnerShare | None, "a number in (0, 1) or ~"),
        (Annotated[float, Le(3)], "a number of at most 3"),
        (bool, "true or false"),
        (PositiveFloat | Auto, "a number above 0 or auto"),
        (Literal["all", "last", "random"], "all, last or random"),
        (list[int] | str, "a list or text"),
        (Any, ""),
    ],
)
def test_a_type_in_words(kind: Any, words: str) -> None:
    assert in_words(kind) == words
