"""Run by test_kills.py in a separate process: runs that kill themselves at a given point, each in a fork of it.

One import serves all of them. Reads {"folder", "keys", "kills"} as a line of JSON; answers with a line that has for
every kill how the two processes ended, and whether weights, state of training and test equal those of a run that was
not killed. With a "space" sweeps are killed; where "warm" is set, runs that start from the weights of an earlier one.
With "workers" a run is so many forks more, joined as torchrun joins its processes, of which one kills itself.
"""

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import torch
import torch._dynamo  # an optimizer loads it
from safetensors.torch import load_file

from recbole_hyper import files, run
from recbole_hyper.config import Config
from recbole_hyper.sweep import sweep
from recbole_hyper.sweep.folder import REQUEST
from recbole_hyper.training import checkpoint
from recbole_hyper.training.checkpoint import load_state
from recbole_hyper.training.loop import Loop
from recbole_hyper.training.processes import world


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at_step(number: int, rank: int = 0) -> None:
    """Die in the ``number``-th step of training, between loss and gradient, in the process of ``rank``."""
    check, seen = Loop.require_finite, [0]

    def counted(self: Loop, *arguments: Any) -> None:
        seen[0] += world()[0] == rank
        if seen[0] == number and world()[0] == rank:
            die()
        check(self, *arguments)

    Loop.require_finite = counted  # type: ignore[method-assign]


def kill_at_validation(number: int) -> None:
    """Die once the ``number``-th validation is ranked."""
    validate, seen = Loop._validate, [0]

    def counted(self: Loop, *arguments: Any, **keywords: Any) -> Any:
        found = validate(self, *arguments, **keywords)
        seen[0] += 1
        if seen[0] == number:
            die()
        return found

    Loop._validate = counted  # type: ignore[method-assign]


def kill_in_write(name: str, number: int, point: str) -> None:
    """Die in the ``number``-th write of file ``name``: before, half, written (but not renamed) or renamed.

    Of several processes the first one writes to the folder of the run, and dies.
    """
    original, seen = files.replaced, [0]

    @contextlib.contextmanager
    def replaced(path: Path) -> Iterator[Path]:
        seen[0] += path.name == name and world()[0] == 0
        now = point if path.name == name and seen[0] == number and world()[0] == 0 else ""
        with original(path) as part:
            if now == "before":
                die()
            yield part
            if now == "half":
                os.truncate(part, part.stat().st_size // 2)
            if now in ("half", "written"):
                die()
        if now == "renamed":
            die()

    files.replaced = checkpoint.replaced = replaced


def run_together(count: int, keys: dict[str, Any]) -> None:
    """Run in so many forks, as torchrun starts processes, and end all where one dies."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    left = {}
    for rank in range(count):
        process = os.fork()
        if not process:
            status = 1
            places = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "LOCAL_RANK": rank}
            places |= {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "TORCHELASTIC_RUN_ID": "test"}
            os.environ |= {name: str(value) for name, value in places.items()}
            try:
                run("SASRecCE", "cycle", config_dict=keys)
                status = 0
            finally:
                os._exit(status)
        left[process] = rank
    while left:
        process, status = os.wait()
        rank = left.pop(process)
        if status:
            for other in left:
                os.kill(other, signal.SIGKILL)
                os.waitpid(other, 0)
            raise RuntimeError(f"the worker {rank} ended with {os.waitstatus_to_exitcode(status)}")


HOOKS: dict[str, Callable[..., None]] = {"step": kill_at_step, "validation": kill_at_validation, "write": kill_in_write}


def forked(keys: dict[str, Any], kill: list[Any], space: Any = None, workers: int = 1) -> int:
    """Run, with ``workers`` or alone, or sweep ``space``, in a fork; return its exit status, negative for a signal."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    status = 1
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            sys.stderr = nowhere
            if kill:
                HOOKS[kill[0]](*kill[1:])
            if space:
                begun = (Path(keys["output_dir"]) / REQUEST).is_file()
                sweep("SASRecCE", "cycle", space=space, config_dict={**keys, "resume": begun}, max_concurrent=1)
            elif workers > 1:
                run_together(workers, keys)
            else:
                run("SASRecCE", "cycle", config_dict=keys)
            status = 0
    except RuntimeError as error:
        if str(error).endswith(f"ended with {-signal.SIGKILL}"):
            die()
    finally:
        os._exit(status)


def outcome(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the tensors of all weights and states of training below ``folder``, and what its results say of them."""
    tensors: dict[str, torch.Tensor] = {}
    said: dict[str, Any] = {}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.name == "model.safetensors":
            tensors |= {f"{name} {key}": value for key, value in load_file(file).items()}
        elif file.name == "checkpoint.pt":
            tensors |= {f"{name} {key}": value for key, value in load_state(file)["model"].items()}
        elif file.name == "result.json":
            result = json.loads(file.read_text(encoding="utf-8"))
            said[name] = [result[key] for key in ("valid", "test", "best_epoch", "epochs")]
    return tensors, said


def equal(one: Path, other: Path) -> bool:
    (a, said), (b, also) = outcome(one), outcome(other)
    return bool(a) and set(a) == set(b) and all(torch.equal(a[name], b[name]) for name in a) and said == also


def answers_to(asked: dict[str, Any]) -> list[dict[str, Any]]:
    folder, keys = Path(asked["folder"]), asked["keys"]
    how = asked.get("space"), asked.get("workers", 1)
    # what a first use loads, once and not in every fork; no thread is started
    Config("SASRecCE", "cycle", config_dict=keys)
    if asked.get("warm"):
        assert forked({**keys, "output_dir": str(folder / "earlier")}, []) == 0
        keys = {**keys, "init_from": str(folder / "earlier")}
    assert forked({**keys, "output_dir": str(folder / "whole")}, [], *how) == 0
    answers = []
    for number, kill in enumerate(asked["kills"]):
        own = {**keys, "output_dir": str(folder / str(number)), "resume": True}
        killed, resumed = forked(own, kill, *how), forked(own, [], *how)
        left = [path.name for path in Path(own["output_dir"]).rglob("*.part")]
        same = resumed == 0 and equal(folder / "whole", folder / str(number))
        answers.append({"killed": killed, "resumed": resumed, "equal": same, "left": left})
    return answers


if __name__ == "__main__":
    torch.set_num_threads(1)
    numba.njit(lambda number: number)(1)
    for line in sys.stdin:
        print(json.dumps(answers_to(json.loads(line))), flush=True)
