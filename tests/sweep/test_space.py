"""The grammar of spaces: Ray's functions, RecBole's files, what a trial leaves out, and what is refused."""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from recbole_hyper.cli import main
from recbole_hyper.config import ConfigError
from recbole_hyper.config.resolve import all_known_keys, model_class
from recbole_hyper.sweep.checks import readable
from recbole_hyper.sweep.space import read_space
from recbole_hyper.sweep.trial import Plan
from recbole_hyper.yaml_files import properties_folder, read_yaml
from tests.raising import refused
from tests.sweep.conftest import FAST


def grid(content: dict) -> list[dict]:
    return list(read_space(content).grid(np.random.default_rng(0)))


def grid_of(model: str, content: dict, **fixed: str) -> list[dict]:
    """The settings of a model's trials, with those that are equal."""
    plan = Plan(model, "none", {"interactions": "given", **fixed}, Path("none"))
    return list(readable(plan, read_space(content)).grid(np.random.default_rng(0)))


def test_grid_is_the_product_with_the_last_key_fastest() -> None:
    found = grid({"a": {"grid_search": [1, 2]}, "b": 7, "c": {"grid_search": ["x", "y", "z"]}})
    assert found == [{"a": a, "c": c} for a, c in itertools.product([1, 2], "xyz")]


def test_a_trial_leaves_out_what_its_parts_do_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    losses = {"sce_mix": {"grid_search": [True, False]}, "loss_type": {"grid_search": ["ce", "sce"]}}
    ce, both = {"loss_type": "ce"}, [{"sce_mix": mix, "loss_type": "sce"} for mix in (True, False)]
    assert grid_of("SASRecCE", losses) == [ce, both[0], ce, both[1]]
    # the parts of the model and of the fixed keys
    dropout = {"dropout_prob": {"grid_search": [0.1, 0.2]}, "learning_rate": {"grid_search": [0.1]}}
    assert grid_of("SASRecCE", dropout) == [{"learning_rate": 0.1}]
    assert "SASRecCE does not read dropout_prob" in capsys.readouterr().out
    assert len(grid_of("SASRecCE", dropout, encoder="gru")) == 2
    with refused(ConfigError, "varies nothing that EASER reads: dropout_prob, learning_rate"):
        grid_of("EASER", dropout)


def test_what_is_no_function_of_ray_is_the_same_in_every_trial() -> None:
    content = {"clip_grad_norm": {"max_norm": 5.0}, "topk": [1, 5], "curvature": "auto", "a": {"choice": [1]}}
    space = read_space(content)
    assert space.constants == {key: content[key] for key in ("clip_grad_norm", "topk", "curvature")}
    assert [*space.domains] == ["a"]


def test_a_draw_is_new_for_every_combination_wherever_it_stands() -> None:
    found = grid({"rate": {"loguniform": [1e-5, 1e-2]}, "a": {"grid_search": list(range(50))}})
    rates = [entry["rate"] for entry in found]
    assert len(set(rates)) == 50
    assert all(1e-5 <= rate <= 1e-2 for rate in rates)
    assert {tuple(entry) for entry in found} == {("rate", "a")}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"a": {"grid_search": []}}, "a: grid_search"),
        ({"a": {"grid_serch": [1]}}, "did you mean grid_search"),
        ({"a": {"grid_search": 3}}, "a: grid_search"),
        *(({"a": {"uniform": values}}, "lower bound first") for values in ([2, 1], [1])),
        ({"a": {"uniform": [0, "x"]}}, "numbers"),
        ({"a": {"uniform": [0.0, math.nan]}}, "numbers"),
        ({"a": {"uniform": [0.0, 1.0, 2.0]}}, "a: uniform"),
        ({"a": {"loguniform": [0, 1]}}, "a: loguniform"),
        ({"a": {"randint": [1, 10**20]}}, "a: randint"),
        ({"a": {"quniform": [0, 1, 0]}}, "a: quniform"),
        ({"a": {"quniform": [0, 1]}}, "a: quniform"),
        ({"a": {"quniform": [1, 7, 2]}}, "a: quniform"),
    ],
)
def test_refused(content: dict, named: str) -> None:
    with refused(ConfigError, named):
        read_space(content)


def test_recbole_hyper_file(tmp_path: Path) -> None:
    file = tmp_path / "hyper.test"
    file.write_text(
        "learning_rate loguniform -8,0\n"
        "embedding_size choice [64,96 , 128]\n\n"
        "mlp_hidden_size choice ['[64]','[64,32]']\n"
        "dropout_prob uniform 0.0,1.0  # kept\n"
        "n_layers quniform 1,4,1\n"
        "n_heads quniform 2,8,2\n"
    )
    content = dict(read_space(file).content)
    assert content.pop("learning_rate") == {"loguniform": [pytest.approx(math.exp(-8)), 1.0]}
    assert content == {
        "embedding_size": {"grid_search": [64, 96, 128]},
        "mlp_hidden_size": {"grid_search": [[64], [64, 32]]},
        "dropout_prob": {"uniform": [0.0, 1.0]},
        "n_layers": {"randint": [1, 5]},
        "n_heads": {"qrandint": [2, 8, 2]},
    }


@pytest.mark.parametrize("line", ["a choice __import__('os').getcwd()", "a normal 0,1", "a choice", "a uniform x,y"])
def test_recbole_hyper_file_runs_no_code(tmp_path: Path, line: str) -> None:
    file = tmp_path / "hyper.test"
    file.write_text(line + "\n")
    with refused(ConfigError, "line 1"):
        read_space(file)


def test_a_space_of_the_project_goes_by_its_name_and_a_file_comes_first(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_space("sce") == read_space(properties_folder() / "sweep" / "sce.yaml") == read_space("sce.yaml")
    (tmp_path / "sce").write_text("n_layers choice [1,2]\n")
    assert [*read_space("sce").domains] == ["n_layers"]
    with refused(ConfigError, "did you mean sasrec-ce"):
        read_space("sasrec-cee")


@pytest.mark.usefixtures("serial_sweeps")
def test_the_command_sweeps_the_small_space_under_a_protocol_by_name(data, tmp_path, capsys) -> None:
    space = {"learning_rate": {"grid_search": [0.1, 0.2]}}
    (tmp_path / "both.yaml").write_text(
        yaml.safe_dump({**space, "small": {"learning_rate": {"grid_search": [0.3]}, **FAST}})
    )
    assert read_space(tmp_path / "both.yaml").content == space
    options = ["--use_gpu=False", f"--data_path={data}", f"--output_dir={tmp_path / 'out'}"]
    named = ["--model=SASRecCE", "--dataset=tiny", f"--space={tmp_path / 'both.yaml'}", "--budget=small"]
    assert main(["sweep", *named, "--config_files=global_timepoint", *options]) == 0
    asked = read_yaml(tmp_path / "out" / "sweep.yaml")
    assert asked["space"]["learning_rate"] == {"grid_search": [0.3]}
    assert asked["fixed"]["eval_args"]["split"] == {"GT": {"valid": 0.9, "test": 0.95}}
    assert main(["sweep", *named, "--config_files=global_time", *options]) == 1
    assert "did you mean global_timepoint?" in capsys.readouterr().err


@pytest.mark.parametrize("small", [{}, {"small": {}}, {"small": 3}])
def test_the_small_budget_needs_a_small_space(small: dict) -> None:
    with refused(ConfigError, "no small space", "--budget=small"):
        read_space({"a": {"grid_search": [1]}, **small}, "small")
    with refused(ConfigError, "budget='tiny'"):
        read_space({"a": {"grid_search": [1]}}, budget="tiny")


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
            space = read_space(file.stem, budget)
            assert set(space.content) <= all_known_keys()
        assert len(list(space.grid(np.random.default_rng(0)))) <= 12
