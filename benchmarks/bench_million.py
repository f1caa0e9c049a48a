"""A shop with a million items: seconds and peak memory of each command, from a csv file to a service.

    python benchmarks/bench_million.py [--users=60000] [--length=50] [--items=1000000] [--folder=DIR] [--output=FILE]

Each user walks in one of a thousand groups of items, whose popularity has a long tail; a fifth of the steps goes
anywhere. Every command is a separate process; its peak memory includes the imports. The default model is trained for
one epoch. The rows "of it" are parts of `run`, by its result.json. The rows of the service have the median of several
requests, and its resident memory then; tables that it reads from a file count as far as they were read.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil

PORT = 8765
# users that get recommendations
LISTS = 10_000


def write_shop(path: Path, users: int, length: int, items: int) -> None:
    """Write a csv file of ``users`` walks of ``length`` steps over ``items``."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv as pacsv

    draw = np.random.default_rng(1)
    groups = max(1, items // 1000)
    own = np.repeat(draw.integers(0, 1000, users), length)
    walk = own * groups + draw.zipf(1.3, users * length) % groups
    chosen = np.where(draw.random(len(walk)) < 0.2, draw.integers(0, items, len(walk)), walk)
    user = np.repeat(np.arange(users), length)
    moment = 1_600_000_000 + 60 * np.tile(np.arange(length), users) + user % 100_000
    pacsv.write_csv(pa.table({"user_id": user, "item_id": chosen, "timestamp": moment}), path)


def commands(folder: Path) -> dict[str, list[str]]:
    """Return the words of each command by its name."""
    run, data = str(folder / "run"), str(folder / "dataset")
    return {
        "prepare": ["prepare", "shop", f"--source={folder / 'shop.csv'}", f"--output={data}"],
        "run": [
            *("run", "--model=FMLPRecMemory", "--dataset=shop", f"--data_path={data}", f"--output_dir={run}"),
            *("--epochs=1", "--metrics=NDCG,Hit", "--topk=10", "--show_progress=False"),
        ],
        f"recommend, {LISTS:,} users": [
            *("recommend", run, f"--users=@{folder / 'users.txt'}", "--k=10", f"--output={folder / 'lists.parquet'}")
        ],
        "open the run, pairs counted": ["-c", f"from recbole_hyper import load; load({run!r})"],
        "export, with the search": ["export", run, "--top_k=10", f"--output={folder / 'shop.onnx'}"],
        "serve, to the first list": ["serve", run, f"--port={PORT}"],
    }


def started(words: list[str]) -> subprocess.Popen[bytes]:
    """Start a command, or Python with ``-c``."""
    return subprocess.Popen([sys.executable, *([] if words[0] == "-c" else ["-m", "recbole_hyper"]), *words])


def measured(words: list[str]) -> dict[str, float]:
    """Run a command; return seconds and MiB. SystemExit if it fails."""
    start = time.perf_counter()
    _, status, usage = os.wait4(started(words).pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{words} failed")
    return {"seconds": round(time.perf_counter() - start, 1), "peak MiB": usage.ru_maxrss >> 10}


def served(name: str, words: list[str]) -> list[dict[str, Any]]:
    """Start the service; return the rows of its start and of its requests."""
    start, process = time.perf_counter(), started(words)
    try:
        while ask([7]) is None:
            if process.poll() is not None:
                raise SystemExit(f"{words} failed")
            time.sleep(0.2)
        first, rows = time.perf_counter() - start, list[dict[str, Any]]()
        for number, times in ((1, 20), (64, 5)):
            seconds = statistics.median(filter(None, (ask(list(range(number))) for _ in range(times))))
            resident = psutil.Process(process.pid).memory_info().rss >> 20
            row = f"of it: a request for {number} user{'s' * (number > 1)}"
            rows.append({"command": row, "seconds": round(seconds, 3), "peak MiB": resident})
    finally:
        process.terminate()
        usage = os.wait4(process.pid, 0)[2]
    return [{"command": name, "seconds": round(first, 1), "peak MiB": usage.ru_maxrss >> 10}, *rows]


def ask(users: list[int]) -> float | None:
    """Return the seconds of a request for lists of users, None while the service does not answer."""
    body = json.dumps({"users": [str(user) for user in users], "k": 10}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/recommend", body, {"content-type": "application/json"})
    start = time.perf_counter()
    try:
        lists = json.load(urllib.request.urlopen(request, timeout=600))
    except ConnectionError:
        return None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionError):
            return None
        raise
    assert [len(one["items"]) for one in lists] == [10] * len(users)
    return time.perf_counter() - start


def parts_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the parts of a run, by its result.json."""
    peaks, cases = result["peak_memory_bytes_per_phase"], {p: result[f"n_{p}_cases"] for p in ("valid", "test")}
    names = {"train": "an epoch", "valid": f"validation, {cases['valid']:,} cases", "test": f"test, {cases['test']:,}"}
    reading = {"command": "of it: reading the data", "seconds": round(result["seconds"]["load"], 1)}
    return [reading] + [
        {"command": f"of it: {name}", "seconds": round(result["seconds"][part], 1), "peak MiB": peaks[part] >> 20}
        for part, name in names.items()
    ]


def main() -> None:
    """Write the data, run the commands, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("users", 60_000), ("length", 50), ("items", 1_000_000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--folder", type=Path, help="default: a temporary one; a finished run in it is not repeated")
    parser.add_argument("--output", type=Path, default=Path("build/bench_million.json"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        finished = folder / "run" / "result.json"
        folder.mkdir(parents=True, exist_ok=True)
        write_shop(folder / "shop.csv", given.users, given.length, given.items)
        (folder / "users.txt").write_text("".join(f"{user}\n" for user in range(min(LISTS, given.users))))
        rows = list[dict[str, Any]]()
        for name, words in commands(folder).items():
            # of a run that is in the folder already, the parts are known
            if words[0] == "serve":
                rows += served(name, words)
            elif name != "run" or not finished.is_file():
                rows.append({"command": name, **measured(words)})
            if name == "run":
                rows += parts_of(json.loads(finished.read_text()))
    content = {
        "command": " ".join(["python", "benchmarks/bench_million.py", *sys.argv[1:]]),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "interactions": given.users * given.length,
        "rows": rows,
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(content, indent=1) + "\n")
    for row in rows:
        print(f"{row['command']:<36}{row['seconds']:>10,.2f} s{row.get('peak MiB', 0):>10,} MiB")


if __name__ == "__main__":
    main()
