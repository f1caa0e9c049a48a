"""Serve a finished run over HTTP: write its bundle, serve it, and reload it when the run changes.

Imports no torch: another process writes the bundle.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recbole_hyper.errors import ConfigError, positive_int, require
from recbole_hyper.files import read_json
from recbole_hyper.runs.plugin_files import trusting
from recbole_hyper.serving.bundle import ABOUT, BUNDLE, fingerprint, open_bundle
from recbole_hyper.serving.recommender import Recommender
from recbole_hyper.threads import processors

# environment variable that passes settings to workers
_VARIABLE = "RECBOLE_HYPER_SERVE"
_EVERY = 2.0  # seconds between checks of the run

logger = logging.getLogger("recbole_hyper")


def serve(
    run: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    catalogue: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
    trust_plugins: bool = False,
) -> None:
    """Serve the finished run in a folder until the process is stopped.

    If ``run`` is a link and points to another run, or if the run is resumed, workers switch to the new model between
    two requests. ConfigError for no finished run, a model that cannot be served, or a missing extra.

    Args:
        run: folder of the run, or a link to it.
        host, port: address to listen on. The service has no passwords: put a proxy with passwords in front of it.
        workers: number of processes.
        catalogue: table of items for rules, text or parquet; reloaded when the file changes.
        plugins, trust_plugins: trusted Python files of the run, or trust all that its folder names; see
            :mod:`recbole_hyper.runs.plugin_files`.
    """
    require("serve", "recbole-hyper serve", "fastapi", "uvicorn", "onnxruntime", "prometheus_client")
    import uvicorn

    run, workers = Path(run), positive_int("workers", workers)
    table = None if catalogue is None else Path(catalogue)
    if table is not None and not table.is_file():
        raise ConfigError(f"catalogue={str(table)!r} is not a file")
    trust = {"files": [str(Path(file).absolute()) for file in plugins], "everything": trust_plugins}
    prepare(run, trust)
    items, threads, stopped = table and str(table.absolute()), max(1, processors() // workers), threading.Event()
    settings = {"run": str(run.absolute()), "catalogue": items, "threads": threads, "trust": trust}
    with tempfile.TemporaryDirectory(prefix="recbole-hyper-metrics-") as metrics:
        os.environ |= {_VARIABLE: json.dumps(settings), "PROMETHEUS_MULTIPROC_DIR": metrics}
        threading.Thread(target=_keep_prepared, args=(run.absolute(), trust, stopped), daemon=True).start()
        try:
            uvicorn.run(
                "recbole_hyper.runs.serve:app", factory=True, host=host, port=port, workers=workers,
                http="recbole_hyper.serving.service:PromptProtocol", log_level="warning", access_log=False,
            )  # fmt: skip
        finally:
            stopped.set()


def app() -> Any:
    """Return the application of one worker."""
    from recbole_hyper.serving.page.routes import with_page
    from recbole_hyper.serving.service import Service

    settings = json.loads(os.environ[_VARIABLE])
    run, table = Path(settings["run"]), settings["catalogue"] and Path(settings["catalogue"])

    def load_run(place: Path) -> Recommender:
        from recbole_hyper.runs.load import load

        with trusting(**settings["trust"]):
            return load(place)

    def state() -> Hashable:
        """Return a value that changes with the bundle or the catalogue."""
        files = [run.resolve() / BUNDLE / ABOUT, *([] if table is None else [table])]
        return tuple((str(file), (status := file.stat()).st_mtime_ns, status.st_size, status.st_ino) for file in files)

    return with_page(Service(lambda: open_bundle(run.resolve(), load_run, settings["threads"], table), state))


def prepare(run: Path, trust: Mapping[str, Any] | None = None) -> bool:
    """Write the bundle of a finished run unless it is up to date; return whether it was written."""
    run = run.resolve()
    about = run / BUNDLE / ABOUT
    if not (run / "result.json").is_file():
        raise ConfigError(f"{run} has no finished run: result.json is missing")
    if about.is_file() and read_json(about).get("run") == fingerprint(run):
        return False
    command = [sys.executable, "-m", "recbole_hyper.runs.bundle", str(run), json.dumps(dict(trust or {}))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"{run} cannot be served: {(done.stderr.strip().splitlines() or ['stopped'])[-1]}")
    return True


def _keep_prepared(run: Path, trust: Mapping[str, Any], stopped: threading.Event) -> None:
    """Rewrite the bundle whenever the run changes."""
    failed: tuple[Path, str] | None = None
    while not stopped.wait(_EVERY):
        place = run.resolve()
        try:
            state = place, fingerprint(place)
            if state != failed and prepare(place, trust):
                logger.info("wrote a new bundle of %s", place)
        except (ValueError, OSError) as error:
            failed = state
            logger.warning("still serving the earlier model: %s", error)
