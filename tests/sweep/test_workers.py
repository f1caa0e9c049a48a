"""What can be said of Ray before it starts, and what is made of its errors."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from recbole_hyper.cluster import death, is_full_disk
from recbole_hyper.config import ConfigError
from recbole_hyper.sweep import sweep, workers


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
    assert death(error) is died
    assert death(RuntimeError("other")) is None
    assert death(RayTaskError("f", "traceback", ValueError("raised by the trial"))) is None


def test_a_full_disk_in_the_words_of_the_system_and_of_ray() -> None:
    class OutOfDiskError(Exception):
        pass

    assert is_full_disk(OSError(errno.ENOSPC, "No space left on device"))
    assert is_full_disk(OutOfDiskError("local disk is full"))
    assert not is_full_disk(ValueError("no space left in a name"))


def test_asha_stops_the_worst_of_a_rung_and_no_trial_at_its_last_epoch() -> None:
    asha = workers.Asha("max", 4)
    assert not any(asha.stops(name, 1, score) for name, score in (("a", 0.5), ("b", 0.6), ("c", 0.7)))
    assert asha.stops("d", 1, 0.1)
    assert asha.stops("e", 1, -float("inf"))
    assert not any(asha.stops("c", epoch, 0.0) for epoch in (2, 3, 4, 5))
