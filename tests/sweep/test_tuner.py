"""What can be said of Ray before it starts, and what is made of its errors."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from recbole_hyper.config import ConfigError
from recbole_hyper.sweep import sweep, tuner
from recbole_hyper.sweep.trial import Trial


def test_cluster_that_is_not_there(keys: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {**keys, "output_dir": str(tmp_path / "s")}
    with pytest.raises(ConfigError, match=r"no Ray cluster at 127.0.0.1:9.*ray start --head"):
        sweep("SASRecCE", "tiny", space={"seed": {"grid": [1]}}, config_dict=config, ray_address="127.0.0.1:9")
    # nothing was tried, so that the folder is free for the same sweep on this machine
    assert not (tmp_path / "s" / "trials").exists()


def test_a_death_behind_other_errors() -> None:
    from ray.exceptions import ActorDiedError, RayTaskError

    died = ActorDiedError()
    error = RuntimeError("Caught unexpected exception")
    error.__cause__ = died
    assert tuner._death(error) is died
    assert tuner._death(RuntimeError("other")) is None
    assert tuner._death(RayTaskError("f", "traceback", ValueError("raised by the trial"))) is None


def test_a_full_disk_in_the_words_of_the_system_and_of_ray() -> None:
    class OutOfDiskError(Exception):
        pass

    assert tuner._is_full_disk(OSError(errno.ENOSPC, "No space left on device"))
    assert tuner._is_full_disk(OutOfDiskError("local disk is full"))
    assert not tuner._is_full_disk(ValueError("no space left in a name"))


def test_ray_can_pickle_a_search_of_a_generator() -> None:
    """Ray pickles the search before the first trial; the proposals of optuna come from a generator."""
    from ray import cloudpickle

    trials = (Trial(number, {"a": number}) for number in range(2))
    search = tuner._searcher("max", lambda: next(trials, None))
    assert search.suggest("x") == {"number": 0, "settings": '{"a": 0}'}
    assert cloudpickle.loads(cloudpickle.dumps(search)) is not None
