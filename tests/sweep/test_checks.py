"""Faults of a space end a sweep before its first trial; keys without effect are named."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from recbole_hyper.config import ConfigError
from recbole_hyper.sweep.checks import TRIES, probes
from recbole_hyper.sweep.space import parse_space
from tests.sweep.test_driver import local

pytestmark = pytest.mark.usefixtures("serial_sweeps")


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"learning_rat": {"grid": [1]}}, "did you mean learning_rate"),
        (
            {"learning_rate": {"grid": [1], "when": {"encoder": {"reads": "n_layer"}}}},
            "'n_layer', which is not a key of a trial; did you mean n_layers",
        ),
        ({"learning_rate": {"grid": []}}, "the grid is empty"),
        (
            {"reg_weight": {"grid": [1.0, 2.0], "when": {"model": "EASER"}}},
            "varies nothing of SASRecCE: no condition of",
        ),
        ({"seed": {"grid": [1]}}, "in the space and fixed"),
        ({"topk": {"grid": [[1], [5]]}}, "cannot be compared"),
        ({"output_dir": {"grid": ["a"]}}, "not a key of a trial"),
        ({"learning_rate": {"grid": ["fast"]}}, "a number"),
        ({"learning_rate": [0.1, "fast"]}, "learning_rate='fast' cannot run.*a number"),
        ({"n_layers": {"grid": [1, 2]}, "n_heads": {"choice": [1, 2, 3]}}, "n_heads=3 cannot run.*does not divide"),
        ({"hidden_dropout_prob": {"uniform": [0.1, 1.5]}}, "hidden_dropout_prob=1.5 cannot run"),
        ({"n_layers": {"quniform": [0, 2, 1]}}, "n_layers=0 cannot run"),
        ({"epochs": {"grid": [1, [2]]}}, r"epochs=\[2\] cannot run"),
        (
            {"loss_type": ["ce", "sce"], "sce_bucket_size_y": {"grid": [-1], "when": {"loss_type": "sce"}}},
            "sce_bucket_size_y=-1",
        ),
    ],
)
def test_faults_of_the_space_end_the_sweep_before_it_begins(
    keys: dict, tmp_path: Path, space: dict, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        local(keys, tmp_path / "s", space, seed=3)
    assert not (tmp_path / "s" / "trials").exists()


def test_trials_of_several_processes_are_refused(keys: dict, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a trial runs in one process: remove num_workers"):
        local({**keys, "num_workers": 2}, tmp_path / "s", {"learning_rate": [0.1]})
    assert not (tmp_path / "s").exists()


def test_keys_that_trials_do_not_read_are_told(
    keys: dict, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    space = {"loss_type": ["ce", "sce"], "sce_mix": [True, False], "reg_weight": [1.0, 2.0]}
    with pytest.raises(ConfigError, match=r"none of 8 trials finished; .*: the time budget ran out$"):
        local(keys, tmp_path / "s", space, sce_n_buckets=2, n_negatives=9, time_budget=1e-9)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning")]
    assert said == [
        "warning: no trial reads reg_weight: it has no effect",
        "warning: no trial reads n_negatives: it has no effect",
        "warning: some trials do not read sce_mix, and may be equal; restrict it with 'when'",
    ]
    assert "sce_n_buckets" not in caplog.text


def test_a_space_may_vary_what_a_part_of_a_plugin_reads(keys: dict, tmp_path: Path) -> None:
    code = """
        from recbole_hyper.registry import register
        from recbole_hyper.losses.ce import CrossEntropy
        @register("losses", "damped")
        class Damped(CrossEntropy):
            def __init__(self, *, share: float = 0.5) -> None:
                super().__init__()
                self.share = share
            def forward(self, states, targets, head, negatives=None):
                return self.share * super().forward(states, targets, head)
    """
    (tmp_path / "mine.py").write_text(textwrap.dedent(code))
    plugins = [str(tmp_path / "mine.py")]
    fixed = {"learning_rate": {"grid": [0.01]}, "share": {"grid": [0.1, 0.9]}}
    first = local(keys, tmp_path / "one", fixed, plugins=plugins, loss_type="damped")
    assert first["trials"] == {"finished": 2}
    varied = {"loss_type": ["ce", "damped"], "share": {"grid": [0.1], "when": {"loss_type": "damped"}}}
    assert local(keys, tmp_path / "two", varied, plugins=plugins)["trials"] == {"finished": 2}


SPLIT = parse_space(
    {
        "kind": {"choice": ["a", "b"]},
        "n": {"quniform": [2, 10, 2]},
        "only_b": {"grid": [1, 2], "when": {"kind": "b"}},
        "never": {"grid": [1], "when": {"kind": "c"}},
    }
)


def test_probes_contain_the_value_and_meet_its_condition() -> None:
    for key in ("kind", "n", "only_b"):
        (domain,) = SPLIT.domains[key]
        for value in domain.ends:
            found = list(probes(SPLIT, {}, key, domain, value))
            assert 0 < len(found) <= TRIES
            assert all(settings[key] == value for settings in found)
            assert [settings for n, settings in enumerate(found) if settings in found[:n]] == []
    first = next(probes(SPLIT, {}, "n", SPLIT.domains["n"][0], 10))
    assert first == {"kind": "a", "n": 10}  # the other keys have their first values


def test_a_value_whose_condition_is_never_met_has_no_probe() -> None:
    assert list(probes(SPLIT, {}, "never", SPLIT.domains["never"][0], 1)) == []
