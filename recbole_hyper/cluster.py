"""Connects to a Ray cluster, for the runs of sweeps and comparisons; Ray is imported when it is needed."""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from typing import Any

from recbole_hyper.errors import ConfigError

CONNECT_SECONDS = 5.0
# Ray reads these when it is imported: no usage reports, and workers stay in the current folder
RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
}


@contextlib.contextmanager
def cluster(address: str | None) -> Iterator[Any]:
    """Connect to the Ray cluster at ``address``, or start one here; yields the ray module. ConfigError without one."""
    for name, value in RAY_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if address:
        _require_listener(address)
    import ray

    if ray.is_initialized():
        yield ray
        return
    arguments: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address:
        arguments["address"] = address
    else:
        # otherwise Ray would join any cluster that it finds
        arguments.update(address="local", include_dashboard=False, object_store_memory=100 * 2**20)
    for tries_left in (0,) if address else (1, 0):
        try:
            ray.init(**arguments)
            break
        except Exception as error:  # a bare one if Ray starts slowly
            ray.shutdown()
            if is_full_disk(error):
                raise
            if not tries_left:
                raise ConfigError(f"no Ray cluster at {address or 'this machine'}: {short(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _require_listener(address: str) -> None:
    """Raise ConfigError if nobody listens at ``address``: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return
    advice = "start one with 'ray start --head', or leave --ray_address out to use this machine"
    if not port.isdigit():
        raise ConfigError(f"ray_address={address!r}: host:port is expected; {advice}")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise ConfigError(f"no Ray cluster at {address}: {error}; {advice}") from error


# how Ray reports errors
def death(error: BaseException | None) -> BaseException | None:
    """Return the first of ``error`` and its causes in which Ray reports a dead process, None if there is none."""
    if error is None or is_full_disk(error):
        return None
    from ray.exceptions import RayError, RayTaskError

    while error is not None and not isinstance(error, RayError):
        error = error.__cause__ or error.__context__
    return None if isinstance(error, RayTaskError) else error


def is_full_disk(error: BaseException | None) -> bool:
    """Return whether ``error`` means that a disk is full, in the words of the system or of Ray."""
    from recbole_hyper.files import is_no_space  # numpy is not imported for --help

    cause = getattr(error, "cause", None)  # what a task raised
    return is_no_space(error) or is_no_space(cause) or "OutOfDiskError" in f"{type(error).__name__} {error}"


def short(error: BaseException) -> str:
    """Return an error in one line of at most some 600 characters."""
    text = " ".join(str(error).split())
    return text if len(text) <= 600 else f"{text[:300]} ... {text[-300:]}"
