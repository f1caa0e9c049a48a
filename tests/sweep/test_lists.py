"""The bundled spaces give the lists of trials that release 0.2.0 gave: of grids, and what Optuna proposes."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recbole_hyper.sweep.checks import readable
from recbole_hyper.sweep.search import Optuna, list_trials
from recbole_hyper.sweep.space import read_space
from recbole_hyper.sweep.trial import FINISHED, Plan

EXPECTED: dict[str, list[Any]] = json.loads(Path(__file__).with_name("lists_of_trials.json").read_text())
SPACES = sorted({tuple(name.split()[:2]) for name in EXPECTED})


def proposed(space: Any) -> list[dict[str, Any]]:
    """Twelve proposals, each of which gets a score that its settings decide."""
    pytest.importorskip("optuna")
    search, settings = Optuna(space, 12, 42, bigger=True, earlier=()), []
    for trial in search:
        digest = hashlib.sha256(json.dumps(trial.settings, sort_keys=True).encode()).hexdigest()
        search.tell(replace(trial, status=FINISHED, score=int(digest, 16) % 1000 / 1000))
        settings.append(trial.settings)
    return settings


@pytest.mark.parametrize(("name", "model"), SPACES)
def test_the_list_of_a_space(name: str, model: str) -> None:
    plan = Plan(model, "none", {"interactions": "given"}, Path("none"))
    for key, (count, digest) in EXPECTED.items():
        space, of_model, budget, search = key.split()
        if (space, of_model) != (name, model):
            continue
        varied = readable(plan, read_space(name, budget))
        if search == "optuna":
            settings = proposed(varied)
        else:
            trials = list_trials(varied, search, 60 if search == "random" else None, 42)
            settings = [trial.settings for trial in trials]
        assert len(settings) == count, key
        found = hashlib.sha256(json.dumps([varied.constants, settings]).encode()).hexdigest()[:16]
        assert found == digest, key
