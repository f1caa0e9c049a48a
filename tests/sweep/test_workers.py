"""What can be said of Ray before it starts, and what is made of its errors."""

import contextlib
import errno
from pathlib import Path
from typing import Any

import pytest

from recbole_hyper.cluster import cluster, death, is_full_disk
from recbole_hyper.config import ConfigError
from recbole_hyper.sweep import sweep, workers
from tests.raising import refused


def test_cluster_that_is_not_there(keys: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {**keys, "output_dir": str(tmp_path / "s")}
    with refused(ConfigError, "127", "1:9", "--head"):
        sweep("SASRecCE", "tiny", space={"seed": {"grid_search": [1]}}, config_dict=config, ray_address="127.0.0.1:9")
    # nothing was tried, so that the folder is free for the same sweep on this machine
    assert not (tmp_path / "s" / "trials").exists()


def test_one_trial_at_a_time_needs_no_ray(keys: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recbole_hyper.sweep.workers.cluster", None)
    config = {**{key: keys[key] for key in keys if key != "seed"}, "output_dir": str(tmp_path / "s"), "epochs": 1}
    space = {"seed": {"grid_search": [1, 2]}}
    outcome = sweep("SASRecCE", "tiny", space=space, config_dict=config, max_concurrent=1)
    assert outcome["trials"] == {"finished": 2}
    assert not workers.Options(max_concurrent=1, ray_address="127.0.0.1:9").alone


@pytest.mark.parametrize("n_failures", [1, 2])
def test_a_ray_that_starts_slowly(n_failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises a bare Exception, which ended a sweep in 35 lines of traceback."""
    import ray

    calls: list[dict[str, Any]] = []

    def init(**arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) <= n_failures:
            raise Exception("The current node timed out during startup.\nThis could happen because ...")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with contextlib.ExitStack() as stack:
        if n_failures == 2:
            error = stack.enter_context(pytest.raises(ConfigError))
        stack.enter_context(cluster(None))
    assert len(calls) == 2
    if n_failures == 2:
        assert "no Ray cluster at this machine: The current node timed out" in str(error.value)
        assert "\n" not in str(error.value)


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
    asha = workers.Asha("max")
    assert not any(asha.stops(name, 1, score) for name, score in (("a", 0.5), ("b", 0.6), ("c", 0.7)))
    assert asha.stops("d", 1, 0.1)
    assert asha.stops("e", 1, -float("inf"))
    assert not any(asha.stops("c", epoch, 0.0) for epoch in (2, 3, 4, 5))
