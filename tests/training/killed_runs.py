"""Run by test_kills.py in a process of its own: runs that kill themselves at a given point, each in a fork of it.

One import serves all of them. Reads {"folder", "keys", "kills"} as JSON from its input; writes for every kill how the
two processes ended, and whether weights, state of training and test equal those of a run that was not killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
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
from recbole_hyper.training import checkpoint
from recbole_hyper.training.checkpoint import load_state
from recbole_hyper.training.loop import Loop


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at_step(number: int) -> None:
    """Die in the ``number``-th step of training, between loss and gradient."""
    check, seen = Loop.require_finite, [0]

    def counted(self: Loop, *arguments: Any) -> None:
        seen[0] += 1
        if seen[0] == number:
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
    """Die in the ``number``-th write of file ``name``: before, half, written (but not renamed) or renamed."""
    original, seen = files.replaced, [0]

    @contextlib.contextmanager
    def replaced(path: Path) -> Iterator[Path]:
        seen[0] += path.name == name
        now = point if path.name == name and seen[0] == number else ""
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


HOOKS: dict[str, Callable[..., None]] = {
    "step": kill_at_step,
    "validation": kill_at_validation,
    "write": kill_in_write,
}


def forked(keys: dict[str, Any], kill: list[Any]) -> int:
    """Run in a fork of this process; return its exit status, negative for a signal."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    status = 1
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            sys.stderr = nowhere
            if kill:
                HOOKS[kill[0]](*kill[1:])
            run("SASRecCE", "cycle", config_dict=keys)
            status = 0
    finally:
        os._exit(status)


def outcome(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], Any]:
    """Return the tested weights, the weights at the end of training, and what result.json says of both."""
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    said = [result[key] for key in ("valid", "test", "best_epoch", "epochs")]
    tested, trained = load_file(folder / "model.safetensors"), load_state(folder / "checkpoint.pt")["model"]
    if (folder / "refit").is_dir():
        tested |= {f"refit.{name}": one for name, one in load_file(folder / "refit" / "model.safetensors").items()}
        trained |= {
            f"refit.{name}": one for name, one in load_state(folder / "refit" / "checkpoint.pt")["model"].items()
        }
    return tested, trained, said


def equal(one: Path, other: Path) -> bool:
    *tensors, said = zip(outcome(one), outcome(other), strict=True)
    same = [set(a) == set(b) and all(torch.equal(a[name], b[name]) for name in a) for a, b in tensors]
    return all(same) and said[0] == said[1]


def main() -> None:
    torch.set_num_threads(1)
    asked = json.loads(sys.stdin.read())
    folder, keys = Path(asked["folder"]), asked["keys"]
    # what a first use loads, once and not in every fork; no thread is started
    Config("SASRecCE", "cycle", config_dict=keys)
    numba.njit(lambda number: number)(1)
    assert forked({**keys, "output_dir": str(folder / "whole")}, []) == 0
    answers = []
    for number, kill in enumerate(asked["kills"]):
        own = {**keys, "output_dir": str(folder / str(number)), "resume": True}
        killed, resumed = forked(own, kill), forked(own, [])
        left = [path.name for path in Path(own["output_dir"]).glob("*.part")]
        same = resumed == 0 and equal(folder / "whole", folder / str(number))
        answers.append({"killed": killed, "resumed": resumed, "equal": same, "left": left})
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
