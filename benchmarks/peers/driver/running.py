"""Runs a peer in a separate process, with its threads and a time limit, and measures the memory of its processes."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from recbole_hyper.files import read_json, write_json

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")


class PeerFailedError(RuntimeError):
    """A peer did not finish; the message says why on one line."""


def environment(before: Mapping[str, str], threads: int, python_path: str | None) -> dict[str, str]:
    """Return the environment of a peer's process: ``before`` (without this package's changes), threads, and no GPU."""
    variables = {name: value for name, value in before.items() if not name.startswith("PYTHON")}
    variables |= {name: str(threads) for name in THREADS}
    variables |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONNOUSERSITE": "1", "PYTHONHASHSEED": "0"}
    return variables | ({"PYTHONPATH": python_path} if python_path else {})


def run_peer(
    python: Path, script: Path, folder: Path, settings: Mapping[str, Any], variables: Mapping[str, str], limit: float
) -> dict[str, Any]:
    """Run a peer in ``folder``, which is emptied first; return the facts that it wrote, its points and its memory.

    Args:
        python: interpreter.
        script: the peer's script.
        folder: working folder; log.txt has what the peer printed.
        settings: settings for the script.
        variables: environment variables of the process.
        limit: seconds after which the peer is stopped.

    Raises:
        PeerFailedError: there is no such interpreter, or the peer failed, wrote no point or took too long.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_json(folder / "settings.json", settings)
    if not python.exists():
        raise PeerFailedError(f"there is no interpreter {python}")
    command = [str(python), str(script), "settings.json"]
    start = time.perf_counter()
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=dict(variables), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        memory = _TreeMemory(process.pid)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired as error:
            raise PeerFailedError(f"it did not finish within {limit / 60:.0f} minutes") from error
        finally:
            memory.stop()
            # its session, which may have processes that still run
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if status:
        raise PeerFailedError(f"exit status {status}: {_last_line(folder / 'log.txt')}")
    facts = _facts(folder)
    return facts | {"peak_memory_bytes": memory.peak, "wall_seconds": time.perf_counter() - start}


def _facts(folder: Path) -> dict[str, Any]:
    try:
        lines = (folder / "points.jsonl").read_text(encoding="utf-8").splitlines()
        points = [json.loads(line) for line in lines]
        facts = read_json(folder / "peer.json")
    except (OSError, ValueError) as error:
        raise PeerFailedError(f"it ended without results: {error}") from error
    if not points:
        raise PeerFailedError("it ended before the first point of the curve")
    return facts | {"points": points}


def _last_line(file: Path) -> str:
    lines = [line.strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"


class _TreeMemory:
    """Samples the sum of the resident sets of a process and its children (shared pages count for each); has the peak.

    It samples only twice a second, because sampling takes time from the peer. If the system records the peak of the
    process itself, this counts as well.
    """

    def __init__(self, number: int, interval: float = 0.5) -> None:
        self.peak = 0
        self._number, self._interval, self._stop = number, interval, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling."""
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(self._interval):
            with contextlib.suppress(psutil.Error):
                top = psutil.Process(self._number)
                total = 0
                for process in [top, *top.children(recursive=True)]:
                    with contextlib.suppress(psutil.Error):
                        total += process.memory_info().rss
                self.peak = max(self.peak, total, _peak_of(self._number))


def _peak_of(number: int) -> int:
    """Return the peak resident set of a process in bytes, 0 if the system does not record it."""
    with contextlib.suppress(OSError, IndexError):
        lines = Path(f"/proc/{number}/status").read_text().splitlines()
        return 1024 * int(next((line.split()[1] for line in lines if line.startswith("VmHWM")), "0"))
    return 0


def machine(threads: int) -> dict[str, Any]:
    """Return what times depend on: processor, cores, threads and load."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        found = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        name = found[0].partition(":")[2].strip() if found else name
    return {"processor": name, "cores": os.cpu_count(), "threads": threads, "load": os.getloadavg()[0]}
