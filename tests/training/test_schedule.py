"""Learning rates over the steps of a training: the formula, a resume, a refit, and what is refused."""

import math
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

from recbole_hyper.config import ConfigError
from recbole_hyper.runs.run import run
from recbole_hyper.training.optim import RateSchedule
from tests.raising import refused
from tests.training.common import settings

COSINE = {"lr_schedule": "cosine", "warmup_ratio": 0.25, "learning_rate": 0.02, "epochs": 8, "stopping_step": 20}


@pytest.mark.parametrize("shape", ["cosine", "linear", None])
@pytest.mark.parametrize("warmup", [0.0, 0.3])
def test_rates_of_every_step_are_the_formula(shape: str | None, warmup: float) -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    groups = [{"params": first.parameters(), "lr": 0.1}, {"params": second.parameters(), "lr": 0.02}]
    optimizer = torch.optim.Adam(groups)
    schedule = RateSchedule(optimizer, shape, warmup, epochs=4)
    for epoch in range(4):
        for step in range(5):
            schedule.set_rates(epoch, step, 5)
            done = (5 * epoch + step + 0.5) / 20
            if done < warmup:
                wanted = done / warmup
            else:
                left = 1 - (done - warmup) / (1 - warmup)
                wanted = {"cosine": math.sin(math.pi / 2 * left) ** 2, "linear": left, None: 1.0}[shape]
            rates = [group["lr"] for group in optimizer.param_groups]
            assert rates == pytest.approx([0.1 * wanted, 0.02 * wanted], rel=1e-9)
            assert all(rate > 0 for rate in rates)


def test_a_refit_follows_the_rates_of_the_run_that_chose_its_epochs(cycle: Path, tmp_path: Path) -> None:
    result = run(
        "SASRecCE", "cycle", config_dict=settings(cycle, tmp_path / "run", **COSINE, refit=True, exclude_seen=False)
    )
    chosen, again = (pd.read_csv(tmp_path / "run" / name / "train.csv")["learning_rate"] for name in (".", "refit"))
    assert len(again) == result["refit_epochs"] == result["best_epoch"] + 1
    # a refit may have more steps in an epoch, whose last is then nearer to the end of the epoch
    assert again.tolist() == pytest.approx(chosen[: len(again)].tolist(), rel=0.2)


def test_a_schedule_is_not_stretched_by_a_resume(random_data: Path, tmp_path: Path) -> None:
    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", **{**COSINE, "epochs": 2}))
    with refused(ConfigError, "epochs=2"):
        run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", **COSINE, resume=True))


@pytest.mark.parametrize("keys", [{"lr_schedule": "cosine"}, {"warmup_ratio": 0.25}])
def test_two_rules_for_one_rate_are_refused(keys: dict, random_data: Path, tmp_path: Path) -> None:
    with refused(ConfigError, *keys, "lr_plateau="):
        run("SASRecCE", "random", config_dict=settings(random_data, tmp_path, **keys, lr_plateau={"factor": 0.5}))
