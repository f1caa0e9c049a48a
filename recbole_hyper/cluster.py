"""Connects to a Ray cluster, for the trials of a sweep and the workers of a run; Ray is imported when it is needed."""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from typing import Any

from recbole_hyper.errors import ConfigError

CONNECT_SECONDS = 5.0
# Ray reads these when it is imported: no usage reports, no second set of result files, plain progress output
RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # Ctrl-C is a KeyboardInterrupt
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    # a process that needs longer to leave a trial that ASHA stopped would lose its next trial; Ray's default is 2 s
    "TUNE_FUNCTION_THREAD_TIMEOUT_S": "600",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
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
    try:
        ray.init(**arguments)
    except (ConnectionError, RuntimeError, TimeoutError) as error:
        raise ConfigError(f"no Ray cluster at {address or 'this machine'}: {error}") from error
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
