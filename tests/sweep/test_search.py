"""Lists of trials are repeatable; optuna learns from trials of before a resume."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from recbole_hyper.sweep.search import Optuna, list_trials
from recbole_hyper.sweep.space import read_space
from recbole_hyper.sweep.trial import FAILED, FINISHED, Trial

MIXED = read_space({"a": {"grid_search": [1, 2, 3]}, "rate": {"loguniform": [1e-4, 1e-1]}})
FINITE = read_space({"a": {"grid_search": [1, 2, 3]}, "b": {"choice": ["x", "y"]}})


def test_equal_seeds_give_equal_trials_and_more_samples_only_add() -> None:
    short = list_trials(MIXED, "random", 5, 7)
    assert short == list_trials(MIXED, "random", 5, 7)
    assert list_trials(MIXED, "random", 9, 7)[:5] == short
    assert list_trials(MIXED, "random", 5, 8) != short
    assert [trial.number for trial in short] == [0, 1, 2, 3, 4]


def test_grid_repeats_only_where_something_is_drawn() -> None:
    assert len(list_trials(MIXED, "grid", 4, 0)) == 12
    assert len(list_trials(read_space({"a": {"grid_search": [1, 2]}}), "grid", 4, 0)) == 2


def test_random_search_of_a_finite_space_repeats_nothing_and_ends() -> None:
    trials = list_trials(FINITE, "random", 100, 0)
    assert len(trials) == 6
    assert len({trial.name for trial in trials}) == 6


def test_name_depends_on_settings_not_on_their_order() -> None:
    assert Trial(3, {"a": 1, "b": 2}).name == Trial(3, {"b": 2, "a": 1}).name
    assert Trial(3, {"a": 1}).name != Trial(3, {"a": 2}).name


def distance(settings: dict) -> float:
    """A score whose best setting is x = 0.3, kind "good"."""
    return -abs(settings["x"] - 0.3) - (0.5 if settings["kind"] == "bad" else 0.0) - abs(settings["n"] - 4) * 0.05


OPTUNA_SPACE = read_space(
    {
        "kind": {"choice": ["good", "bad"]},
        "x": {"uniform": [0.0, 1.0]},
        "n": {"randint": [1, 9]},
        "m": {"grid_search": [1, 2]},
    }
)


def optuna_search(number: int, earlier: Sequence[Trial] = (), seed: int = 0) -> list[Trial]:
    pytest.importorskip("optuna")
    search = Optuna(OPTUNA_SPACE, number, seed, bigger=True, earlier=earlier)
    trials = []
    for trial in search:
        trials.append(replace(trial, status=FINISHED, score=distance(trial.settings)))
        search.tell(trials[-1])
    return trials


def test_optuna_finds_more_than_chance() -> None:
    best = max(trial.score or -9 for trial in optuna_search(60))
    assert best > -0.1
    assert all(isinstance(trial.settings["n"], int) for trial in optuna_search(20))


def test_optuna_gives_the_number_of_a_trial_without_record_to_another() -> None:
    ended = [trial for trial in optuna_search(6) if trial.number not in (1, 4)]
    assert [trial.number for trial in optuna_search(8, ended)] == [1, 4, 6, 7]


def test_optuna_goes_on_after_a_resume() -> None:
    ended = optuna_search(30)
    unfinished = [Trial(30, {"kind": "good", "x": 0.9, "n": 1, "m": 2})]
    failed = replace(ended[-1], status=FAILED, score=None)
    trials = optuna_search(40, [*ended[:-1], failed, *unfinished])
    assert [trial.number for trial in trials] == list(range(30, 40))
    assert trials[0].settings == unfinished[0].settings
    # what it proposes next is near the best of before, not a fresh start
    assert sum(trial.settings["kind"] == "good" for trial in trials[1:]) >= 7
