"""Faults of a space end a sweep before its first trial; keys without effect are named."""

import textwrap
from pathlib import Path
from typing import Any

import pytest

from recbole_hyper.config import ConfigError
from tests.raising import refused
from tests.sweep.conftest import local

pytestmark = pytest.mark.usefixtures("serial_sweeps")


def tried(*values: Any) -> dict[str, Any]:
    return {"grid_search": [*values]}


@pytest.mark.parametrize(
    ("space", "named"),
    [
        ({"learning_rat": tried(1)}, "did you mean learning_rate"),
        ({"reg_weight": tried(1.0, 2.0)}, "varies nothing that SASRecCE reads: reg_weight"),
        ({"seed": tried(1)}, "seed is in the space and fixed"),
        ({"topk": tried([1], [5])}, "topk, so the scores of trials cannot be compared"),
        ({"output_dir": tried("a")}, "the sweep sets it"),
    ],
)
def test_faults_of_the_space_end_the_sweep_before_it_begins(keys, tmp_path, space, named) -> None:
    with refused(ConfigError, named):
        local(keys, tmp_path / "s", space, seed=3)
    assert not (tmp_path / "s" / "trials").exists()


def test_values_that_cannot_run_are_the_reasons_of_failed_trials(keys: dict, tmp_path: Path) -> None:
    with refused(ConfigError, "none of 2 trials finished", "learning_rate='slow'", "learning_rate='fast'"):
        local(keys, tmp_path / "s", {"learning_rate": tried("slow", "fast")})


def test_keys_that_trials_do_not_read_are_left_out(keys, tmp_path, capsys) -> None:
    space = {"loss_type": tried("ce", "sce"), "sce_mix": tried(True, False), "reg_weight": tried(1.0, 2.0)}
    # one of ce, two of sce
    with refused(ConfigError, "none of 3 trials finished"):
        local(keys, tmp_path / "s", space, sce_n_buckets=2, time_budget=1e-9)
    assert "SASRecCE does not read reg_weight: left out of the space" in capsys.readouterr().out


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
    keys |= {"plugins": [str(tmp_path / "mine.py")], "epochs": 1}
    varied = {"loss_type": tried("ce", "damped"), "share": tried(0.1, 0.9)}
    assert local(keys, tmp_path / "s", varied)["trials"] == {"finished": 3}
