"""The first minutes of a new user: clone, environment, README's blocks, a shop of 1,500 users; processor time by step.

    python benchmarks/bench_first.py [--folder=DIR] [--output=results/bench_first.json] [--packages]
                                     [--cuda=DIR_OF_WHEELS] [--torch=VERSION]

Everything happens in ``--folder``, a new one by default. pip downloads the wheels first, so that the processor time of
the installation is known without the network. ``--packages`` also installs every wheel of 1 MB and more by itself, for
its part of the time. ``--cuda`` is a folder with the wheels that pip takes for torch on Linux by default (``pip
download torch -d DIR``): their sizes are added. The times of a step are those of its process and of all processes that
it waited for.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
USERS, ITEMS = 1_500, 400
PORT = 8765


def write_orders(file: Path, users: int = USERS, items: int = ITEMS, seed: int = 1) -> None:
    """Write the orders of a shop: each user follows a hidden cycle over the items half of the time."""
    import random

    draw = random.Random(seed)
    successor = draw.sample(range(items), items)
    rows = []
    for user in range(users):
        item, now = draw.randrange(items), 1_700_000_000 + draw.randrange(10_000_000)
        for _ in range(draw.randint(4, 30)):
            rows.append((now, f"customer{user}@example.org,item{item}"))
            item = successor[item] if draw.random() < 0.5 else int(items * draw.random() ** 2)
            now += draw.randint(60, 400_000)
    lines = [f"{order},{now}\n" for now, order in sorted(rows)]
    file.write_text("user,item,time\n" + "".join(lines))


class Steps:
    """Runs commands and keeps what each costs."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment, self.rows = environment, list[dict[str, Any]]()

    def run(self, name: str, command: list[str], folder: Path) -> str:
        """Run a command and return what it prints; SystemExit with that text if it fails."""
        process = subprocess.Popen(
            command, cwd=folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return self.wait(name, command, process)

    def wait(self, name: str, command: list[str], process: subprocess.Popen[str], stopped: bool = False) -> str:
        """Wait for a process, and keep its times under ``name``."""
        begun = time.perf_counter()
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode and not stopped:
            raise SystemExit(f"{shlex.join(command)} failed:\n{printed[-3000:]}")
        seconds = {"processor s": usage.ru_utime + usage.ru_stime, "wall s": time.perf_counter() - begun}
        self.rows.append({"step": name, **{key: round(value, 1) for key, value in seconds.items()}})
        print(self.rows[-1], flush=True)
        return printed

    def total(self, *names: str) -> float:
        """Return the processor seconds of steps."""
        return round(sum(row["processor s"] for row in self.rows if row["step"] in names), 1)


def blocks(heading: str, language: str) -> list[str]:
    """Return the blocks of one language below a heading of README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [
        body for name, body in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE) if name == language
    ]


def serve(steps: Steps, words: list[str], folder: Path) -> dict[str, Any]:
    """Start the service, ask for one list, and stop it; return the answer."""
    process = subprocess.Popen(
        words, cwd=folder, env=steps.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    question = json.dumps({"user": "customer1@example.org", "k": 3}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/recommend", question, {"Content-Type": "application/json"}
    )
    answer: dict[str, Any] = {}
    for _ in range(600):
        try:
            answer = json.load(urllib.request.urlopen(request, timeout=60))
            break
        except OSError:
            time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    steps.wait("serve, and one request", words, process, stopped=True)
    if len(answer.get("items", [])) != 3:
        raise SystemExit(f"the service gave no list: {answer}")
    return answer


def installed(python: Path) -> list[dict[str, Any]]:
    """Return name, version, files and bytes of each package of an environment, and which it needs."""
    code = """
import importlib.metadata as m, json
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as plain
rows = []
for one in m.distributions():
    files = [f for f in one.files or [] if f.locate().is_file()]
    needs = []
    for text in one.requires or []:
        need = Requirement(text)
        fits = lambda extra: need.marker is None or need.marker.evaluate({"extra": extra})
        given = [extra for extra in ("", "serve", "export", "tune") if fits(extra)]
        needs += [[plain(need.name), given[0]]] if given else []
    rows.append({"package": plain(one.metadata["Name"]), "version": one.version, "files": len(files),
                 "bytes": sum(f.locate().stat().st_size for f in files), "needs": needs})
print(json.dumps(rows))
"""
    return json.loads(subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout)


def closure(rows: list[dict[str, Any]], roots: set[str]) -> set[str]:
    """Return the packages that ``roots`` need, themselves included; extras of the packages below are not followed."""
    needs = {row["package"]: row["needs"] for row in rows}
    seen, todo = set[str](), list(roots)
    while todo:
        name = todo.pop()
        if name in needs and name not in seen:
            seen.add(name)
            # ray is needed as ray[tune]
            todo += [other for other, extra in needs[name] if not extra or (name == "ray" and extra == "tune")]
    return seen


def part_of_install(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each package that pyproject.toml names what an installation without it would lack."""
    sizes = {row["package"]: row["bytes"] for row in rows}
    own = next(row for row in rows if row["package"] == "recbole-hyper")
    core = {name for name, extra in own["needs"] if not extra}
    everything = closure(rows, core)
    table = []
    for name in sorted(core):
        gone = everything - closure(rows, core - {name})
        table.append(
            {"package": name, "MB": round(sum(sizes[one] for one in gone) / 1e6, 1), "without it": sorted(gone)}
        )
    return sorted(table, key=lambda row: -row["MB"])


def largest(rows: list[dict[str, Any]], n: int = 20) -> list[dict[str, Any]]:
    """Return sizes and times of the ``n`` largest packages."""
    return [
        {
            "package": f"{row['package']} {row['version']}",
            "wheel MB": round((row["wheel bytes"] or 0) / 1e6, 1),
            "MB": round(row["bytes"] / 1e6, 1),
            "files": row["files"],
            "install s": row["install s"],
            "in": row["in"],
        }
        for row in sorted(rows, key=lambda row: -row["bytes"])[:n]
    ]


def wheels_of(folder: Path) -> dict[str, Path]:
    """Return the wheels of a folder by the name of their package."""
    return {re.sub(r"[-_.]+", "-", file.name.split("-")[0]).lower(): file for file in folder.glob("*.whl")}


def unpacked(file: Path) -> int:
    """Return the bytes of the files in a wheel."""
    return sum(one.file_size for one in zipfile.ZipFile(file).infolist())


def seconds_to_install(steps: Steps, folder: Path, wheels: dict[str, Path], floor: int = 1_000_000) -> dict[str, float]:
    """Return the processor seconds of each wheel of ``floor`` bytes and more, less those of pip alone."""
    extra = Steps(steps.environment)
    extra.run("environment", [sys.executable, "-m", "venv", str(folder / "alone")], folder)
    pip = [str(folder / "alone" / "bin" / "python"), "-m", "pip"]
    extra.run("pip", [*pip, "--version"], folder)
    install = [*pip, "install", "--quiet", "--no-deps", "--no-index"]
    large = {name: file for name, file in wheels.items() if file.stat().st_size >= floor}
    for name, file in large.items():
        extra.run(name, [*install, str(file)], folder)
    alone = extra.total("pip")
    return {name: round(max(0.0, extra.total(name) - alone), 1) for name in large}


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Take all steps in a folder; return what they cost."""
    environment = {**os.environ, "PYTHONNOUSERSITE": "1", "MPLBACKEND": "Agg"}
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    # compiled kernels of another run are no help to a new user
    environment["HOME"], environment["NUMBA_CACHE_DIR"] = str(folder), str(folder / "numba")
    steps = Steps(environment)
    clone, wheels, work = folder / "clone", folder / "wheels", folder / "work"
    work.mkdir()
    steps.run("git clone", ["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(clone)], folder)
    steps.run("python -m venv", [sys.executable, "-m", "venv", str(folder / "venv")], folder)
    bin = folder / "venv" / "bin"
    pip = [str(bin / "python"), "-m", "pip"]
    torch = [f"torch=={options.torch}"] if options.torch else []
    pinned = ["-c", str(clone / "constraints.txt")]
    steps.run(
        "pip wheel: resolve and download",
        [*pip, "wheel", "--quiet", *pinned, "-w", str(wheels), *torch, ".[serve]"],
        clone,
    )
    local = [*pip, "install", "--quiet", "--no-index", f"--find-links={wheels}", "--no-compile"]
    steps.run("pip install --no-compile .", [*local, "recbole-hyper"], folder)
    core = {row["package"] for row in installed(bin / "python")}
    steps.run("the extra serve", [*local, "recbole-hyper[serve]"], folder)
    command = str(bin / "recbole-hyper")
    (work / "first.py").write_text(blocks("Ten lines of Python", "python")[0])
    first = steps.run("ten lines of Python (ml-100k, 5 epochs)", [str(bin / "python"), "first.py"], work)
    write_orders(work / "orders.csv")
    names, printed = [], ""
    for line in blocks("Three commands for a shop", "")[0].strip().splitlines():
        _, *words = shlex.split(line)
        names.append(f"{words[0]} (shop)")
        printed += steps.run(names[-1], [command, *words], work)
    n_lines = len((work / "recommendations.csv").read_text().splitlines())
    serve(steps, [command, "serve", "saved/shop", f"--port={PORT}"], work)
    steps.run("run --help", [command, "run", "--help"], work)
    # for comparison; Python then compiles what it imports, in the first commands
    steps.run("another environment", [sys.executable, "-m", "venv", str(folder / "compiled")], folder)
    compiled = [str(folder / "compiled" / "bin" / "python"), *local[1:-1]]
    steps.run("pip install .", [*compiled, "recbole-hyper"], folder)
    rows, files = installed(bin / "python"), wheels_of(wheels)
    times = seconds_to_install(steps, folder, files) if options.packages else {}
    for row in rows:
        wheel = files.get(row["package"])
        row["wheel bytes"] = wheel.stat().st_size if wheel else None
        row["install s"], row["in"] = times.get(row["package"]), "core" if row["package"] in core else "serve"
    result = {
        "python": platform.python_version(),
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
        ).stdout.strip(),
        "cores": os.cpu_count(),
        "users": USERS,
        "steps": steps.rows,
        "processor s": {
            "install (clone, environment, pip with the wheels on disk)": steps.total(
                "git clone", "python -m venv", "pip install --no-compile .", "the extra serve"
            ),
            "first model": steps.total("ten lines of Python (ml-100k, 5 epochs)"),
            "shop, file to lists": steps.total(*names),
        },
        "ndcg@10 of the first model": float(re.findall(r"^(0\.\d+)$", first, re.MULTILINE)[-1]),
        "lines of recommendations.csv": n_lines,
        "needed by": part_of_install(rows),
        "packages": len(rows),
        "MB": round(sum(row["bytes"] for row in rows) / 1e6),
        "wheel MB": round(sum(row["wheel bytes"] or 0 for row in rows) / 1e6),
        "largest": largest(rows),
    }
    if options.cuda:
        cuda = wheels_of(options.cuda).values()
        sizes = {"wheel MB": sum(file.stat().st_size for file in cuda), "MB": sum(map(unpacked, cuda))}
        result["torch with CUDA"] = {name: round(size / 1e6) for name, size in sizes.items()}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where everything is made; default: a temporary folder")
    parser.add_argument("--output", type=Path, help="JSON file, such as results/bench_first.json")
    parser.add_argument("--packages", action="store_true", help="time the installation of each large package")
    parser.add_argument("--cuda", type=Path, help="folder with the wheels of torch for CUDA")
    parser.add_argument("--torch", help="release of torch, such as 2.13.0+cpu; default: what pip takes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = measure(folder.resolve(), options)
    text = json.dumps(result, indent=1) + "\n"
    if options.output:
        options.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
