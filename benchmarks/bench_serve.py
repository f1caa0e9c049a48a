"""Requests per second of ``recbole-hyper serve`` with 100,000 items, from another process on 127.0.0.1.

    .venv/bin/python benchmarks/bench_serve.py --output=results/bench_serve.json

The model is trained for one epoch on generated interactions, because response times do not depend on what was learned.
The load is closed: a fixed number of requests over a fixed number of connections, each of which waits for its response.
/health gets the same load, to show what framework and client cost without a recommendation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import psutil

HERE = "127.0.0.1"
# by name: the body of a request besides the history; None requests /health
BODIES: dict[str, dict[str, Any] | None] = {
    "no recommendation: GET /health": None,
    "no rule": {},
    "where and at most 2 per category": {"rules": {"where": "price < 50", "at_most": {"category": 2}}},
}


def make_run(folder: Path, n_items: int) -> Path:
    """Train a small run with ``n_items`` items; return its folder."""
    from recbole_hyper import run

    generator = np.random.default_rng(0)
    users, length = max(1000, n_items // 20), 22
    items = np.concatenate([generator.permutation(n_items), generator.integers(0, n_items, users * length - n_items)])
    rows = [f"u{at // length}\ti{item}\t{at % length}\n" for at, item in enumerate(items.tolist())]
    (folder / "data" / "planted").mkdir(parents=True)
    text = "user_id:token\titem_id:token\ttimestamp:float\n" + "".join(rows)
    (folder / "data" / "planted" / "planted.inter").write_text(text)
    lines = [f"i{item},{price},{kind}\n" for item, (price, kind) in enumerate(
        zip(generator.integers(0, 100, n_items).tolist(), generator.integers(0, 200, n_items).tolist(), strict=True)
    )]  # fmt: skip
    (folder / "catalogue.csv").write_text("item_id,price,category\n" + "".join(lines))
    keys = {"data_path": str(folder / "data"), "output_dir": str(folder / "run"), "epochs": 1, "hidden_size": 64,
            "n_negatives": 1, "show_progress": False, "use_gpu": False, "eval_batch_size": 256,
            "eval_args": {"mode": "uni50"}}  # fmt: skip
    run("SASRecBCE", "planted", config_dict=keys)
    return folder / "run"


def message(body: dict[str, Any] | None) -> bytes:
    """Return the bytes of a request."""
    if body is None:
        return f"GET /health HTTP/1.1\r\nhost: {HERE}\r\n\r\n".encode()
    content = json.dumps(body).encode()
    head = f"POST /recommend HTTP/1.1\r\nhost: {HERE}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


async def load(port: int, messages: list[bytes], connections: int, limit: float) -> dict[str, float]:
    """Send all messages over keep-alive connections; return requests per second and quantiles of the milliseconds."""
    waiting, spent = list(reversed(messages)), []
    end = time.perf_counter() + limit

    async def one() -> None:
        reader, writer = await asyncio.open_connection(HERE, port)
        while waiting and time.perf_counter() < end:
            start = time.perf_counter()
            writer.write(waiting.pop())
            answer = await reader.readuntil(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(answer.decode())
            length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            spent.append(time.perf_counter() - start)
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    seconds = time.perf_counter() - start
    p50, p95, p99 = (1000 * float(np.quantile(spent, share)) for share in (0.5, 0.95, 0.99))
    return {"requests": len(spent), "requests/s": len(spent) / seconds, "p50 ms": p50, "p95 ms": p95, "p99 ms": p99}


def processor_seconds(server: psutil.Process) -> float:
    """Return the processor time of the service and its workers, which depends little on other load."""
    times = [one.cpu_times() for one in (server, *server.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def ask_many(port: int, server: psutil.Process, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row per kind of request and number of connections."""
    generator = np.random.default_rng(1)
    rows = []
    for name, more in BODIES.items():
        histories = generator.integers(0, arguments.items, (arguments.requests, 20)).tolist()
        bodies = [None if more is None else {"history": [f"i{item}" for item in one], **more} for one in histories]
        messages = [message(body) for body in bodies]
        asyncio.run(load(port, messages[:200], 8, arguments.limit))  # compiled and warm
        for connections in (1, 16):
            part = messages if connections > 1 else messages[: arguments.requests // 4]
            before = processor_seconds(server)
            row: dict[str, Any] = {"request": name, "connections": connections}
            row |= asyncio.run(load(port, part, connections, arguments.limit))
            spent = processor_seconds(server) - before
            rows.append(row | {"processor ms of a request": 1000 * spent / row["requests"]})
            print(rows[-1], flush=True)
    return rows


def serve_and_ask(folder: Path, workers: int, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Serve the run with this number of processes; return the rows of :func:`ask_many`, with the load before."""
    with socket.socket() as free:
        free.bind((HERE, 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "recbole_hyper", "serve", str(folder), f"--port={port}",
               f"--workers={workers}", f"--catalogue={folder.parent / 'catalogue.csv'}"]  # fmt: skip
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_for(f"http://{HERE}:{port}/health", server)
        before = {"workers": workers, "load before": round(os.getloadavg()[0], 1)}
        return [before | row for row in ask_many(port, psutil.Process(server.pid), arguments)]
    finally:
        server.terminate()
        server.wait(30)


def main() -> None:
    """Train, serve, send requests, print, and write to --output."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=2000, help="requests of each kind")
    parser.add_argument("--limit", type=float, default=60.0, help="most seconds for each kind")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = make_run(Path(place), arguments.items)
        rows = [row for workers in arguments.workers for row in serve_and_ask(folder, workers, arguments)]
    content = {
        "command": f"python {' '.join(sys.argv)}",
        "environment": f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors shared with other "
        "work; client and server on the same processors",
        "rows": rows,
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(content, indent=2) + "\n")


def wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until the service responds, at most ten minutes."""
    for _ in range(1200):
        try:
            urllib.request.urlopen(address, timeout=5).read()
            return
        except OSError:
            if server.poll() is not None:
                raise RuntimeError("the service ended") from None
            time.sleep(0.5)
    raise RuntimeError("the service did not start")


if __name__ == "__main__":
    main()
