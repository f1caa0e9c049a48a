"""The parts of a training step (batch, encoder, head with loss, optimizer), compared with their matrix products alone.

    make bench-step             (python benchmarks/bench_step.py --compile adds the encoder under torch.compile)

There are two generated data sets: "movies" is like MovieLens-1M (histories of 200 items, 3,706 items), "shop" is like
Amazon Beauty (histories of 9 items, 12,101 items). The products are those that torch computed in a step, repeated in
their shapes on random factors; attention counts as its two products.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from timing import median_seconds, seconds_of
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from recbole_hyper.config import Config
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.encoders.base import supervised_states
from recbole_hyper.evaluation.tables import table
from recbole_hyper.matmul import float32_products
from recbole_hyper.runs.build import build, reader_of_store
from recbole_hyper.runs.ready import resolve_data_defaults
from recbole_hyper.threads import processors
from recbole_hyper.training.optim import build_optimizer
from recbole_hyper.training.settings import OptimizerSettings

DATA = {
    "movies": {
        "users": 1024,
        "items": 3706,
        "length": 200,
        "keys": {"MAX_ITEM_LIST_LENGTH": 200, "train_batch_size": 128},
    },
    "shop": {"users": 4096, "items": 12101, "length": 9, "keys": {"MAX_ITEM_LIST_LENGTH": 50, "train_batch_size": 256}},
}
MODELS = ("SASRecCE", "HSASRecCE", "SASRecSCE", "FMLPRecCE", "eSASRec", "HSTU", "FuXi")
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}


class Shapes(TorchDispatchMode):
    """Records the shapes of the matrix products that run inside."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::").rstrip("_")
        if name in _PRODUCTS:
            left, right = args[-2:]
            self.found.append((tuple(left.shape), tuple(right.shape)))
        elif name.startswith("_scaled_dot_product"):
            query, key, value = (
                tensor.reshape(-1, *tensor.shape[-2:]) for tensor in args[-3 if "backward" in name else 0 :][:3]
            )
            pair = [
                (tuple(query.shape), tuple(key.mT.shape)),
                ((*query.shape[:2], key.shape[1]), tuple(value.shape)),
            ]
            # the backward pass computes two gradients of each product, and the weights again
            self.found += pair * 2 + pair[:1] if "backward" in name else pair
        return func(*args, **(kwargs or {}))


def planted(users: int, items: int, length: int) -> SequenceStore:
    """Return sequences of about ``length`` items (half to one and a half times); a few items are popular, all occur."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(max(4, length // 2), 3 * length // 2 + 1, users)
    rows, count = np.repeat(np.arange(1, users + 1), lengths), int(lengths.sum())
    chosen = 1 + (generator.zipf(1.2, count) - 1) % items
    chosen[generator.choice(count, min(items, count), replace=False)] = np.arange(1, min(items, count) + 1)
    tokens = [["[PAD]", *(f"{kind}{number}" for number in range(1, n + 1))] for kind, n in (("u", users), ("i", items))]
    return SequenceStore.from_interactions(rows, chosen, np.arange(count), *tokens)


class Parts:
    """The parts of a step of ``model`` on the batches of one data set; each part can run by itself."""

    def __init__(self, model: str, data: str) -> None:
        about = DATA[data]
        store = planted(about["users"], about["items"], about["length"])
        keys = {**about["keys"], "hidden_size": 64, "curvature": 1.0, "interactions": "given", "use_gpu": False}
        config = Config(model, data, config_dict=keys)
        data_set, split = reader_of_store(store)(config)
        resolve_data_defaults(config, split)
        self.model, self.loader, _ = build(config, data_set, split, split.train_lengths)
        self.optimizer = build_optimizer(self.model, OptimizerSettings.of(config))
        self.model.train()
        self.batch = next(iter(self.loader))
        self.states: Tensor | None = None

    def read(self) -> None:
        """Make an epoch of batches."""
        for _ in self.loader:
            pass

    def encode(self) -> tuple[Tensor, Tensor, Tensor]:
        """Run the encoder; return the supervised states (n, d), their targets and their rows."""
        model, batch = self.model, self.batch
        items, lengths, *times = model._histories(batch)
        return supervised_states(model.encoder, items, batch["target_list"], lengths, *times)

    def encoder(self) -> None:
        """Run the encoder and its backward."""
        states, *_ = self.encode()
        states.backward(torch.ones_like(states))

    def head(self) -> None:
        """Run the head and the loss, and their backward, on states that were computed once."""
        if self.states is None:
            states, self.targets, self.rows = self.encode()
            self.states = states.detach()
        states = self.states.requires_grad_()
        self.model._loss(
            states, self.targets, self.batch[self.model.USER_ID], self.rows, self.model.head.step_head()
        ).backward()

    def update(self) -> None:
        """Take a step of the optimizer."""
        self.optimizer.step()


def products_alone(call: Callable[[], None]) -> Callable[[], None]:
    """Return a function that runs only the matrix products of ``call``."""
    with Shapes() as shapes:
        call()
    factors = [(torch.randn(left), torch.randn(right)) for left, right in shapes.found]

    def products() -> None:
        with float32_products(torch.device("cpu")), torch.no_grad():
            for left, right in factors:
                torch.matmul(left, right)

    return products


def measure(model: str, data: str, repeats: int, compiled: bool) -> dict[str, str]:
    """Return a row of the table: milliseconds, and their ratio to the products alone."""
    parts = Parts(model, data)
    batch = median_seconds(parts.read, repeats) / len(parts.loader)
    row = {"data": data, "model": model, "batch": f"{batch * 1e3:.1f}"}
    for name in ("encoder", "head"):
        part = getattr(parts, name)
        took, alone = median_seconds(part, repeats), median_seconds(products_alone(part), repeats)
        row[name] = f"{took * 1e3:.0f} ({took / alone:.1f})"
    row["optimizer"] = f"{median_seconds(parts.update, repeats) * 1e3:.1f}"
    if compiled:
        parts.model.encoder.forward = torch.compile(parts.model.encoder.forward, dynamic=True)
        first = seconds_of(parts.encoder)
        row["encoder, compiled"] = f"{median_seconds(parts.encoder, repeats) * 1e3:.0f}, after {first:.0f} s"
    return row


def main() -> None:
    """Measure every model on both data sets and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--repeats", type=int, default=5, help="steps to time; the median is printed")
    parser.add_argument("--threads", type=int, default=processors())
    parser.add_argument("--compile", action="store_true", help="also time the encoder under torch.compile")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(
        f"milliseconds per step, {arguments.threads} threads, torch {torch.__version__}; "
        "in brackets the ratio to the products alone"
    )
    rows = [measure(model, data, arguments.repeats, arguments.compile) for data in DATA for model in arguments.models]
    print(table(rows))


if __name__ == "__main__":
    main()
