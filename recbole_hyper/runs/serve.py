"""Serve a finished run over HTTP: write its bundle, serve it, and reload it when the run changes.

Imports no torch: another process writes the bundle.
"""

import contextlib
import json
import logging
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recbole_hyper.errors import ConfigError, positive_int, require
from recbole_hyper.files import read_json
from recbole_hyper.processes import python_command
from recbole_hyper.runs.plugin_files import trusting
from recbole_hyper.serving.bundle import ABOUT, BUNDLE, Served, fingerprint, open_bundle
from recbole_hyper.serving.recommender import Recommender
from recbole_hyper.threads import processors

# environment variable that passes settings to workers
_VARIABLE = "RECBOLE_HYPER_SERVE"
# tables that workers read again when they change
_TABLES = ("catalogue", "new_items")
EVERY = 2.0  # seconds between checks of the run; workers check twice as often
PATIENCE = 120.0  # seconds that a worker waits for a bundle

logger = logging.getLogger("recbole_hyper")


def serve(
    run: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    catalogue: str | Path | None = None,
    new_items: str | Path | None = None,
    item_column: str | None = None,
    plugins: Sequence[str | Path] = (),
    trust_plugins: bool = False,
) -> None:
    """Serve the finished run in a folder until the process is stopped.

    If ``run`` is a link and points to another run, or if the run is resumed, workers switch to the new model between
    two requests. ConfigError for no finished run, a model that cannot be served, or a missing extra.

    Args:
        run: folder of the run, or a link to it.
        host, port: address to listen on; port 0 is any free one. The address is printed; early requests wait. The
            service has no passwords: put a proxy with passwords in front of it.
        workers: number of processes.
        catalogue: table of items for rules, text or parquet; reloaded when the file changes.
        new_items: table with the features of items, of which those that the run does not know are recommended too;
            reloaded when the file changes.
        item_column: the column of item ids of both tables; None looks for a usual name.
        plugins, trust_plugins: trusted Python files of the run, or trust all that its folder names; see
            :mod:`recbole_hyper.runs.plugin_files`.
    """
    require("serve", "recbole-hyper serve", "fastapi", "uvicorn", "onnxruntime", "prometheus_client")
    import uvicorn

    run, workers = Path(run), positive_int("workers", workers)
    tables = {name: file for name, file in (("catalogue", catalogue), ("new_items", new_items)) if file is not None}
    for name, file in tables.items():
        if not Path(file).is_file():
            raise ConfigError(f"{name}={str(file)!r} is not a file")
    trust = {"files": [str(Path(file).absolute()) for file in plugins], "everything": trust_plugins}
    threads = max(1, processors() // workers)
    settings = {"run": str(run.absolute()), "threads": threads, "trust": trust, "every": EVERY / 2}
    settings |= {"item_column": item_column} | {name: str(Path(file).absolute()) for name, file in tables.items()}
    with contextlib.ExitStack() as stack:
        # the port first: a port that is in use is known before the long work
        listener = stack.enter_context(_bound(host, port))
        prepare(run, trust)
        os.environ[_VARIABLE] = json.dumps(settings)
        if workers > 1:
            # counts of one process are in its memory: prometheus_client would not read this folder for them
            metrics = tempfile.TemporaryDirectory(prefix="recbole-hyper-metrics-")
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = stack.enter_context(metrics)
            # a pickle.py in the current folder would hide Python's when workers start
            os.environ["PYTHONSAFEPATH"] = "1"
            stack.callback(os.environ.pop, "PYTHONSAFEPATH", None)
            _opener(settings)()  # workers that cannot start would be started again and again
        stopped = threading.Event()
        stack.callback(stopped.set)
        threading.Thread(target=_keep_prepared, args=(run.absolute(), trust, stopped), daemon=True).start()
        # the socket listens already: what comes before the workers are up waits for them
        address, number = listener.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        print(f"http://{shown}:{number} shows the model, /docs the API", flush=True)
        uvicorn.run(
            "recbole_hyper.runs.serve:app", factory=True, fd=listener.fileno(), workers=workers, lifespan="on",
            http="recbole_hyper.serving.service:PromptProtocol", log_level="warning", access_log=False,
            timeout_worker_healthcheck=60, timeout_graceful_shutdown=30,
        )  # fmt: skip


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address; ConfigError if that is not possible."""
    try:
        family, *_ = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        # at once, so that of two services that start together one gets the port
        listener.listen(2048)
        return listener
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot listen on --port={port} of {host}, choose another: {error}") from error


def app() -> Any:
    """Return the application of one worker."""
    from recbole_hyper.serving.page.routes import with_page
    from recbole_hyper.serving.service import Service

    settings = json.loads(os.environ[_VARIABLE])
    run, tables = Path(settings["run"]), [file for file in map(settings.get, _TABLES) if file]

    def state() -> Hashable:
        """Return a value that changes with the bundle or a table; None until the bundle of another run is written."""
        about = run.resolve() / BUNDLE / ABOUT
        if not about.is_file():
            return None
        files = [about, *map(Path, tables)]
        return tuple((str(file), (status := file.stat()).st_mtime_ns, status.st_size, status.st_ino) for file in files)

    return with_page(Service(_opener(settings), state, settings.get("every", 1.0)))


def _opener(settings: Mapping[str, Any]) -> Callable[[], Served]:
    """Return a function that opens the run and the tables of ``settings``."""

    def load_run(place: Path) -> Recommender:
        from recbole_hyper.runs.load import load

        with trusting(**settings["trust"]):
            return load(place)

    table, new_items = (file and Path(file) for file in map(settings.get, _TABLES))

    def opened() -> Served:
        place, end = Path(settings["run"]).resolve(), time.monotonic() + PATIENCE
        # a worker may start while the bundle of another run is being written
        while not (place / BUNDLE / ABOUT).is_file() and time.monotonic() < end:
            time.sleep(0.1)
        return open_bundle(place, load_run, settings["threads"], table, new_items, settings.get("item_column"))

    return opened


def prepare(run: Path, trust: Mapping[str, Any] | None = None) -> bool:
    """Write the bundle of a finished run unless it is up to date; return whether it was written."""
    run = run.resolve()
    about = run / BUNDLE / ABOUT
    if not (run / "result.json").is_file():
        raise ConfigError(f"{run} has no finished run: result.json is missing")
    if about.is_file() and read_json(about).get("run") == fingerprint(run):
        return False
    command = [*python_command("recbole_hyper.runs.bundle"), str(run), json.dumps(dict(trust or {}))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"{run} cannot be served: {(done.stderr.strip().splitlines() or ['stopped'])[-1]}")
    return True


def _keep_prepared(run: Path, trust: Mapping[str, Any], stopped: threading.Event) -> None:
    """Rewrite the bundle whenever the run changes."""
    failed: Any = None
    fault = ""
    while not stopped.wait(EVERY):
        place, state = run.resolve(), None
        try:
            state = place, fingerprint(place)
            if state != failed and prepare(place, trust):
                logger.info("wrote a new bundle of %s", place)
        except Exception as error:  # the next look finds what is being replaced now
            if str(error) != fault:
                logger.warning("still serving the earlier model: %s", error)
            failed, fault = state, str(error)
