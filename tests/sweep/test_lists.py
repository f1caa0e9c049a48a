"""The bundled spaces give the lists of trials that release 0.2.0 gave: of grids, and what Optuna proposes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recbole_hyper.config import Config
from recbole_hyper.sweep.search import Optuna, list_trials
from recbole_hyper.sweep.space import read_space
from recbole_hyper.sweep.trial import FINISHED

EXPECTED: dict[str, list[Any]] = json.loads(Path(__file__).with_name("lists_of_trials.json").read_text())
SPACES = sorted({tuple(name.split()[:2]) for name in EXPECTED})


def proposed(space: Any, base: Any) -> list[dict[str, Any]]:
    """Twelve proposals, each of which gets a score that its settings decide."""
    pytest.importorskip("optuna")
    search, settings = Optuna(space, 12, 42, base, bigger=True), []
    for trial in search:
        digest = hashlib.sha256(json.dumps(trial.settings, sort_keys=True).encode()).hexdigest()
        search.tell(replace(trial, status=FINISHED, score=int(digest, 16) % 1000 / 1000))
        settings.append(trial.settings)
    return settings


@pytest.mark.parametrize(("name", "model"), SPACES)
def test_the_list_of_a_space(name: str, model: str) -> None:
    base = Config(model, config_dict={"interactions": "given"}).final_config_dict
    for key, (count, digest) in EXPECTED.items():
        space, of_model, budget, search = key.split()
        if (space, of_model) != (name, model):
            continue
        constants, varied = read_space(name, model, budget).split_constants()
        if search == "optuna":
            settings = proposed(varied, base)
        else:
            trials = list_trials(varied, search, 60 if search == "random" else None, 42, base)
            settings = [trial.settings for trial in trials]
        assert len(settings) == count, key
        found = hashlib.sha256(json.dumps([constants, settings]).encode()).hexdigest()[:16]
        assert found == digest, key
