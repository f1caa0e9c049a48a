"""The state of this process's random generators, and draws that leave it unchanged."""

import contextlib
import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from recbole_hyper.devices import module_of, usable_accelerator


class OwnDraws(TorchDispatchMode):
    """A context in which this thread draws on the CPU from its own generator, not from torch's, which threads share.

    The draws are the same as after ``manual_seed(seed)``.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, drawing = kwargs or {}, func
        if torch.Tag.nondeterministic_seeded in func.tags and not _takes_generator(func):
            # functions such as rand take the generator in another overload
            name = "generator" if func._overloadname == "default" else f"{func._overloadname}_generator"
            drawing = getattr(func.overloadpacket, name, func)
        if _takes_generator(drawing) and kwargs.get("generator") is None and _on_cpu(args, kwargs):
            return drawing(*args, **{**kwargs, "generator": self.generator})
        return func(*args, **kwargs)


def _takes_generator(func: Any) -> bool:
    return any(argument.name == "generator" for argument in func._schema.arguments)


def _on_cpu(args: Any, kwargs: dict[str, Any]) -> bool:
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    devices = [tensor.device for tensor in tensors] + [torch.device(kwargs.get("device") or "cpu")]
    return all(device.type == "cpu" for device in devices)


def random_state(loader: Any) -> dict[str, Any]:
    """Return the state of every random generator that training uses."""
    name, keys, *rest = np.random.get_state()  # noqa: NPY002  RecBole draws from numpy's global generator
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": json.dumps([name, np.asarray(keys).tolist(), *rest]),
        "python": json.dumps(random.getstate()),
    }
    if (device := usable_accelerator()) is not None:
        state[device.type] = module_of(device).get_rng_state_all()
    if (order := order_state(loader)) is not None:
        state["loader"] = order
    return state


def order_state(loader: Any) -> Any:
    """Return the state of the generator that orders the batches of ``loader``, None if it has none."""
    generator = getattr(loader, "generator", None)
    if isinstance(generator, np.random.Generator):
        return json.dumps(generator.bit_generator.state)
    return generator.get_state() if isinstance(generator, torch.Generator) else None


def restore_random_state(state: dict[str, Any], loader: Any) -> None:
    """Restore every generator to ``state``, from :func:`random_state`."""
    torch.set_rng_state(state["torch"])
    name, keys, *rest = json.loads(state["numpy"])
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))  # noqa: NPY002
    version, internal, gauss = json.loads(state["python"])
    random.setstate((version, tuple(internal), gauss))
    device = usable_accelerator()
    if device is not None and device.type in state:
        module_of(device).set_rng_state_all(state[device.type])
    generator = getattr(loader, "generator", None)
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = json.loads(state["loader"])
    elif isinstance(generator, torch.Generator):
        generator.set_state(state["loader"])


def seed_process(seed: int, reproducibility: bool) -> None:
    """Seed every global generator; with ``reproducibility``, cuDNN takes deterministic kernels only."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  RecBole draws from numpy's global generator
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = not reproducibility, bool(reproducibility)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed every global generator as a run does at its start, and restore their states at the end."""
    before = random_state(None)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  RecBole draws from numpy's global generator
    torch.manual_seed(seed)
    try:
        yield
    finally:
        restore_random_state(before, None)
