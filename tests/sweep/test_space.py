"""The grammar of spaces: every kind, conditions, RecBole's files, and what is refused."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from ray import tune

from recbole_hyper.cli import main
from recbole_hyper.config import ConfigError
from recbole_hyper.config.resolve import all_known_keys, model_class
from recbole_hyper.sweep.space import list_keys, parse_space, read_space
from recbole_hyper.yaml_files import properties_folder, read_yaml
from tests.sweep.conftest import FAST


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


def test_a_condition_may_ask_for_what_a_part_reads() -> None:
    content = {"dropout_prob": {"grid": [0.1, 0.2], "when": {"encoder": {"reads": "dropout_prob"}}}}
    assert grid(content, {"encoder": "gru"}) == [{"dropout_prob": 0.1}, {"dropout_prob": 0.2}]
    assert grid(content, {"encoder": "transformer"}) == grid(content, {}) == [{}]
    # of the space itself, beside a name
    content["dropout_prob"]["when"] = {"encoder": [{"reads": "dropout_prob"}, "fmlp"]}
    found = grid({"encoder": ["moebius_gru", "fmlp", "ligr"], **content})
    assert [entry["encoder"] for entry in found] == ["moebius_gru", "moebius_gru", "fmlp", "fmlp", "ligr"]
    assert parse_space(parse_space(content).content) == parse_space(content)
    assert parse_space(content).keys == ["dropout_prob", "encoder"]


@pytest.mark.parametrize("when", [{"n_layers": {"reads": "a"}}, {"encoder": {"read": "a"}}, {"encoder": {"reads": 3}}])
def test_a_condition_of_another_form_is_refused(when: dict) -> None:
    expected = r"'when' has .* \{reads: KEY\} is expected, and only for encoder, geometry, loss_type"
    with pytest.raises(ConfigError, match=expected):
        parse_space({"dropout_prob": {"grid": [0.1], "when": when}})


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


def test_a_draw_is_new_for_every_combination_wherever_it_stands() -> None:
    rate = {"loguniform": [1e-5, 1e-2]}
    found = grid({"rate": rate, "a": {"grid": [1, 2]}, "b": {"grid": [3, 4], "when": {"a": 2}}})
    assert [(entry["a"], entry.get("b")) for entry in found] == [(1, None), (2, 3), (2, 4)]
    assert len({entry["rate"] for entry in found}) == 3
    assert [list(entry) for entry in found][1] == ["rate", "a", "b"]
    # a draw that decides which grids there are comes before them
    split = {"kind": {"choice": ["x", "y"]}, "a": {"grid": [1, 2], "when": {"kind": ["x", "y"]}}}
    assert len({entry["kind"] for entry in grid(split)}) == 1


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_draws_keep_their_bounds(seed: int) -> None:
    space = parse_space(
        {
            "u": {"uniform": [-1.5, 2.0]},
            "l": {"loguniform": [1e-6, 10.0]},
            "q": {"quniform": [0.1, 0.6, 0.1]},
            "n": {"quniform": [2, 8, 2]},
            "m": {"quniform": [1, 3, 1]},
            "c": {"choice": ["x", "y"]},
        }
    )
    generator = np.random.default_rng(seed)
    drawn = space.settings(lambda _, domain: domain.draw(generator), {})
    assert -1.5 <= drawn["u"] <= 2.0
    assert 1e-6 <= drawn["l"] <= 10.0
    assert round(drawn["q"], 12) in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    assert drawn["n"] in (2, 4, 6, 8)
    assert drawn["m"] in (1, 2, 3)
    assert isinstance(drawn["n"], int)
    assert drawn["c"] in ("x", "y")


def test_loguniform_is_uniform_in_the_logarithm() -> None:
    space = parse_space({"l": {"loguniform": [1e-4, 1.0]}})
    generator = np.random.default_rng(0)
    logs = np.log10([space.settings(lambda _, domain: domain.draw(generator), {})["l"] for _ in range(4000)])
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
        ({"a": {"uniform": [2, 1]}}, "lower bound first"),
        ({"a": {"uniform": [0, "x"]}}, "all finite numbers"),
        ({"a": {"loguniform": [0, 1]}}, "above 0"),
        ({"a": {"quniform": [0, 1, 0]}}, "step"),
        ({"a": {"quniform": [0, 1]}}, "step"),
        ({"a": {"quniform": [1, 7, 2]}}, "must be multiples of its step"),
        ({"a": tune.sample_from(lambda config: 1)}, "a space cannot have Function"),
        ({"a": tune.randn(0, 1)}, "a space cannot have Float"),
        ({"a": {"grid": [1], "when": 3}}, "'when' needs"),
        ({"a": {"grid": [1], "when": {"b": 1}}, "b": {"grid": [1], "when": {"a": 1}}}, "circle"),
    ],
)
def test_refused(content: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_space(content)


def test_domains_of_ray_in_python() -> None:
    space = parse_space(
        {
            "a": tune.grid_search([1, 2]),
            "b": tune.choice(["x", "y"]),
            "c": tune.uniform(0.0, 0.5),
            "d": tune.loguniform(1e-4, 1e-2),
            "e": tune.quniform(0.2, 0.6, 0.2),
            "f": tune.randint(1, 4),
            "g": tune.qrandint(2, 8, 2),
        }
    )
    kinds = {key: (domain.kind, domain.values) for key, (domain,) in space.domains.items()}
    assert kinds == {
        "a": ("grid", (1, 2)),
        "b": ("choice", ("x", "y")),
        "c": ("uniform", (0.0, 0.5)),
        "d": ("loguniform", (1e-4, 1e-2)),
        "e": ("quniform", (0.2, 0.6, 0.2)),
        "f": ("quniform", (1, 3, 1)),
        "g": ("quniform", (2, 8, 2)),
    }
    # what sweep.yaml keeps gives the same space again
    assert parse_space(yaml.safe_load(yaml.safe_dump(space.content))) == space
    for key in "fg":
        (domain,) = space.domains[key]
        generator = np.random.default_rng(0)
        assert {domain.draw(generator) for _ in range(200)} == {1, 2, 3} if key == "f" else {2, 4, 6, 8}


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
    (tmp_path / "mine.yaml").write_text("a: {grid: [1]}\n")
    with pytest.raises(ConfigError, match=r"did you mean mine\.yaml\?"):
        read_space(tmp_path / "mines.yaml")
    with pytest.raises(ConfigError, match=r"'sasrec-cee' does not exist .*did you mean sasrec-ce or"):
        read_space("sasrec-cee")


def test_a_space_of_the_project_goes_by_its_name_and_a_file_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = read_space("sce")
    assert named == read_space(properties_folder() / "sweep" / "sce.yaml") == read_space("sce.yaml")
    (tmp_path / "sce").write_text("n_layers choice [1,2]\n")
    assert read_space("sce").keys == ["n_layers"]


def test_the_small_budget_takes_the_small_space_and_the_full_one_leaves_it_out(tmp_path: Path) -> None:
    text = "n_layers: {grid: [1, 2]}\nsmall:\n  hidden_size: [8, 16]\n  epochs: 2\n"
    file = tmp_path / "both.yaml"
    file.write_text(text)
    assert read_space(file).keys == ["n_layers"]
    small = read_space(file, budget="small")
    assert list(small.grid({}, np.random.default_rng(0))) == [
        {"hidden_size": 8, "epochs": 2},
        {"hidden_size": 16, "epochs": 2},
    ]


@pytest.mark.usefixtures("serial_sweeps")
def test_the_command_sweeps_the_small_space_under_a_protocol_by_name(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = {"learning_rate": {"grid": [0.1, 0.2]}, "small": {"learning_rate": {"grid": [0.3]}}}
    (tmp_path / "both.yaml").write_text(yaml.safe_dump({**space, "small": {**space["small"], **FAST}}))
    options = ["--use_gpu=False", f"--data_path={data}", f"--output_dir={tmp_path / 'out'}"]
    named = ["--model=SASRecCE", "--dataset=tiny", f"--space={tmp_path / 'both.yaml'}", "--budget=small"]
    assert main(["sweep", *named, "--config_files=global_timepoint", *options]) == 0
    asked = read_yaml(tmp_path / "out" / "sweep.yaml")
    assert asked["space"]["learning_rate"] == {"grid": [0.3]}
    assert asked["fixed"]["eval_args"]["split"] == {"GT": {"valid": 0.9, "test": 0.95}}
    assert main(["sweep", *named, "--config_files=global_time", *options]) == 1
    assert "did you mean global_timepoint?" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["a: {grid: [1]}\n", "a: {grid: [1]}\nsmall: {}\n", "a: {grid: [1]}\nsmall: 3\n"])
def test_the_small_budget_needs_a_small_space(text: str, tmp_path: Path) -> None:
    (tmp_path / "full.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"full\.yaml has no small space; .*leave out --budget=small"):
        read_space(tmp_path / "full.yaml", budget="small")
    with pytest.raises(ConfigError, match="budget='tiny' is unknown; allowed: full, small"):
        parse_space({"a": {"grid": [1]}}, budget="tiny")


def test_every_space_of_the_project_is_read_and_has_a_small_version() -> None:
    files = sorted((properties_folder() / "sweep").glob("*.yaml"))
    assert len(files) >= 14
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert text.startswith("# recbole-hyper sweep "), f"{file.name} must begin with its command"
        # a sweep without --space takes that of tune
        assert file.stem == "tune" or f"--space={file.stem}" in text.splitlines()[0]
        model = re.search(r"--model=(\w+) ", text)
        assert model, f"{file.name} must name a model"
        assert model_class(model[1])
        for budget in ("full", "small"):
            space = read_space(file.stem, budget=budget)
            known = all_known_keys() | {"encoder"}  # a model names its encoder in its class
            assert set(space.keys) <= known, f"{file.name}: {set(space.keys) - known}"
        if all(domain.is_finite for domains in space.domains.values() for domain in domains):
            assert len(list(space.grid({"geometry": "poincare"}, np.random.default_rng(0)))) <= 12


def test_which_keys_take_a_list() -> None:
    lists = list_keys("SASRecCE")
    assert {"topk", "metrics", "adam_betas", "mlp_hidden_size", "unload_col"} <= lists
    assert not lists & {"learning_rate", "seed", "sce_n_buckets", "memory_limit", "loss_type", "curvature", "epochs"}
    # a number for most models, a list for two of RecBole's
    assert "reg_weight" not in list_keys("EASER")
    assert "reg_weight" in list_keys("HGN")
