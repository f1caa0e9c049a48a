"""The grammar of spaces: every kind, conditions, RecBole's files, and what is refused."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.config import ConfigError, all_known_keys, model_class, properties_folder
from recbole_hyper.sweep.space import parse_space, read_space


def grid(content: dict, base: dict | None = None) -> list[dict]:
    return list(parse_space(content).grid(base or {}, np.random.default_rng(0)))


def test_grid_is_the_product_with_the_last_key_fastest() -> None:
    found = grid({"a": {"grid": [1, 2]}, "b": 7, "c": {"grid": ["x", "y", "z"]}})
    assert found == [{"a": a, "b": 7, "c": c} for a, c in itertools.product([1, 2], "xyz")]


def test_condition_on_a_later_key_of_the_space() -> None:
    content = {"k": {"grid": [1, 2], "when": {"loss": ["bce", "gbce"]}}, "loss": {"grid": ["ce", "bce"]}}
    assert grid(content) == [{"loss": "ce"}, {"k": 1, "loss": "bce"}, {"k": 2, "loss": "bce"}]


def test_condition_on_the_configuration_and_alternatives() -> None:
    content = {"size": [{"grid": [32, 64], "when": {"geometry": "poincare"}}, {"grid": [256]}]}
    assert grid(content, {"geometry": "poincare"}) == [{"size": 32}, {"size": 64}]
    assert grid(content, {"geometry": "euclidean"}) == [{"size": 256}]


def test_value_with_condition_and_plain_values_that_look_like_domains() -> None:
    content = {
        "curvature": {"value": "auto", "when": {"geometry": "poincare"}},
        "clip_grad_norm": {"max_norm": 5.0},
        "adam_betas": [0.9, 0.98],
    }
    assert grid(content, {"geometry": "euclidean"}) == [
        {"clip_grad_norm": {"max_norm": 5.0}, "adam_betas": [0.9, 0.98]}
    ]
    assert grid(content, {"geometry": "poincare"})[0]["curvature"] == "auto"


def test_grid_search_draws_what_is_no_grid() -> None:
    found = grid({"a": {"grid": list(range(50))}, "rate": {"loguniform": [1e-5, 1e-2]}})
    rates = [entry["rate"] for entry in found]
    assert len(set(rates)) == 50
    assert all(1e-5 <= rate <= 1e-2 for rate in rates)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_draws_keep_their_bounds(seed: int) -> None:
    space = parse_space(
        {
            "u": {"uniform": [-1.5, 2.0]},
            "l": {"loguniform": [1e-6, 10.0]},
            "q": {"quniform": [0.1, 0.65, 0.1]},
            "n": {"quniform": [1, 7, 2]},
            "c": {"choice": ["x", "y"]},
        }
    )
    drawn = space.sample({}, np.random.default_rng(seed))
    assert -1.5 <= drawn["u"] <= 2.0
    assert 1e-6 <= drawn["l"] <= 10.0
    assert drawn["q"] in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    assert drawn["n"] in (1, 3, 5, 7)
    assert isinstance(drawn["n"], int)
    assert drawn["c"] in ("x", "y")


def test_loguniform_is_uniform_in_the_logarithm() -> None:
    space = parse_space({"l": {"loguniform": [1e-4, 1.0]}})
    generator = np.random.default_rng(0)
    logs = np.log10([space.sample({}, generator)["l"] for _ in range(4000)])
    # counts of four equal quarters, each 1000 with a deviation of 27
    assert np.abs(np.histogram(logs, bins=4, range=(-4, 0))[0] - 1000).max() < 120


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "empty"),
        ({"a": {"grid": []}}, "the grid is empty"),
        ({"a": {"gird": [1]}}, "did you mean grid"),
        ({"a": {"grid": 3}}, "needs a list"),
        ({"a": {"grid": [1, 1]}}, "twice"),
        ({"a": {"grid": [1], "choice": [2]}}, "one of"),
        ({"a": {"uniform": [1]}}, r"needs \[low, high\]"),
        ({"a": {"uniform": [2, 1]}}, "lower one first"),
        ({"a": {"uniform": [0, "x"]}}, "all numbers"),
        ({"a": {"loguniform": [0, 1]}}, "above 0"),
        ({"a": {"quniform": [0, 1, 0]}}, "step"),
        ({"a": {"quniform": [0, 1]}}, "step"),
        ({"a": {"grid": [1], "when": 3}}, "'when' needs"),
        ({"a": {"grid": [1], "when": {"b": 1}}, "b": {"grid": [1], "when": {"a": 1}}}, "circle"),
    ],
)
def test_refused(content: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_space(content)


def test_recbole_hyper_file(tmp_path: Path) -> None:
    file = tmp_path / "hyper.test"
    file.write_text(
        "learning_rate loguniform -8,0\n"
        "embedding_size choice [64,96 , 128]\n\n"
        "mlp_hidden_size choice ['[64]','[64,32]']\n"
        "dropout_prob uniform 0.0,1.0  # kept\n"
        "n_layers quniform 1,4,1\n"
    )
    space = read_space(file)
    assert {key: alternatives[0].kind for key, alternatives in space.domains.items()} == {
        "learning_rate": "loguniform",
        "embedding_size": "grid",
        "mlp_hidden_size": "grid",
        "dropout_prob": "uniform",
        "n_layers": "quniform",
    }
    assert space.domains["learning_rate"][0].values == pytest.approx((math.exp(-8), 1.0))
    assert space.domains["mlp_hidden_size"][0].values == ([64], [64, 32])
    assert space.domains["n_layers"][0].values == (1, 4, 1)


@pytest.mark.parametrize("line", ["a choice __import__('os').getcwd()", "a normal 0,1", "a choice", "a uniform x,y"])
def test_recbole_hyper_file_runs_no_code(tmp_path: Path, line: str) -> None:
    file = tmp_path / "hyper.test"
    file.write_text(line + "\n")
    with pytest.raises(ConfigError, match="line 1"):
        read_space(file)


def test_missing_file_names_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "sce-small.yaml").write_text("a: {grid: [1]}\n")
    with pytest.raises(ConfigError, match=r"did you mean sce-small.yaml"):
        read_space(tmp_path / "sce-smal.yaml")


def test_every_space_of_the_project_is_read_and_has_a_small_version() -> None:
    files = sorted((properties_folder() / "sweep").glob("*.yaml"))
    assert len(files) >= 14
    names = {file.stem for file in files}
    for file in files:
        space = read_space(file)
        text = file.read_text(encoding="utf-8")
        assert text.startswith("# recbole-hyper sweep "), f"{file.name} must begin with its command"
        model = re.search(r"--model=(\w+) ", text)
        assert model, f"{file.name} must name a model"
        assert model_class(model[1])
        assert set(space.keys) <= all_known_keys(), f"{file.name}: {set(space.keys) - all_known_keys()}"
        if not file.stem.endswith("-small"):
            assert f"{file.stem}-small" in names, f"{file.name} needs a small version"
        elif space.is_finite:
            assert len(list(space.grid({"geometry": "poincare"}, np.random.default_rng(0)))) <= 12
