"""What a GPU gains: kernels of the exact cross-entropy, training steps, epochs and whole runs, and that results agree.

    make bench-gpu ARGS="--sections kernels,steps"        on a GPU; each section below a minute on a large card
    make bench-gpu ARGS="--device=cpu --small"            everything on small data, to see that it works

Sections: ``kernels`` (times, peak memory and errors against float64 beside full logits, torch's fused linear
cross-entropy, cut-cross-entropy and Liger, where they are installed), ``steps`` (milliseconds, with and without CUDA
graphs), ``epochs`` (seconds, beside RecBole's SASRec, and RecTools' if it is installed), ``runs`` (the default model,
whole, also on data of $RECBOLE_HYPER_DATA) and ``equal`` (100 steps without dropout on the CPU and the device from the
same weights: losses within 1e-4).
``--output=FILE`` adds them to a json file, an entry for each device and commit. ``python results/gpu.py`` draws
results/gpu.md from results/bench_gpu.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from recbole_hyper import run
from recbole_hyper.config import Config
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.devices import describe, in_words
from recbole_hyper.evaluation.results import commit
from recbole_hyper.geometry.euclidean import Euclidean
from recbole_hyper.geometry.poincare import Poincare
from recbole_hyper.losses.ce import exact_cross_entropy
from recbole_hyper.runs.build import build, reader_of_store
from recbole_hyper.runs.ready import resolve_data_defaults
from recbole_hyper.training.loop import Loop

SECTIONS = ("kernels", "steps", "epochs", "runs", "equal")
# of $RECBOLE_HYPER_DATA, if they are there
DATASETS = ("amazon-beauty-sequences", "ml-1m")
MODELS = ("SASRecCE", "HSASRecCE", "FMLPRecMemory", "gSASRec")
# rows, items, width
SIZES = ((8192, 12_101, 64), (8192, 262_144, 64), (8192, 1_000_000, 64))
SMALL_SIZES = ((256, 1200, 32),)
GRADIENT_STEPS = 100
# steps of RecBole to time, scaled to its epoch
RECBOLE_STEPS = 100


def synchronize(device: torch.device) -> None:
    """Wait for the device."""
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()


def timed(function: Callable[[], Any], device: torch.device, repeats: int) -> tuple[float, float]:
    """Return the median milliseconds of a call and the peak memory in MB above what was there before."""
    function()
    synchronize(device)
    before = peak = 0
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        synchronize(device)
        times.append(1e3 * (time.perf_counter() - start))
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated()
    return statistics.median(times), (peak - before) / 1e6


@contextmanager
def precision(name: str) -> Iterator[None]:
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")


def _methods(tensors: tuple[Tensor, ...]) -> dict[str, Callable[[], list[Tensor]]]:
    """Return, by name, functions that return the loss and the gradients of states and weight."""
    states, weight, offset, targets = tensors

    def graded(loss_of: Callable[..., Tensor], dtype: torch.dtype = torch.float32) -> Callable[[], list[Tensor]]:
        def call() -> list[Tensor]:
            own, items, bias = (one.detach().to(dtype).requires_grad_() for one in (states, weight, offset))
            loss = loss_of(own, items, bias)
            return [loss.detach(), *torch.autograd.grad(loss, [own, items])]

        return call

    def ours(head: str, kernel: bool) -> Callable[..., Tensor]:
        geometry: Any = Poincare() if head == "poincare" else Euclidean()

        def loss_of(own: Tensor, items: Tensor, bias: Tensor) -> Tensor:
            bias_of_head = bias if head == "poincare" else None
            theta = 0.1 if head == "poincare" else 1.0
            return exact_cross_entropy(own, targets, items, bias_of_head, geometry, theta=theta, triton_kernel=kernel)

        return loss_of

    def full(own: Tensor, items: Tensor, bias: Tensor) -> Tensor:
        return F.cross_entropy(own @ items.t(), targets)

    def full_poincare(own: Tensor, items: Tensor, bias: Tensor) -> Tensor:
        return F.cross_entropy(Poincare().logits(own, items, bias, theta=0.1), targets)

    def at(name: str, function: Callable[[], list[Tensor]]) -> Callable[[], list[Tensor]]:
        def call() -> list[Tensor]:
            with precision(name):
                return function()

        return call

    methods = {"full logits": graded(full), "full logits, Poincare": graded(full_poincare)}
    for head in ("euclidean", "poincare"):
        for kernel in (False, True):
            way = "Triton" if kernel else "torch"
            for name in ("highest", "high", "medium") if kernel else ("highest", "high"):
                methods[f"{way}, {head}, {name}"] = at(name, graded(ours(head, kernel)))
    if hasattr(F, "linear_cross_entropy"):
        methods["torch linear_cross_entropy"] = graded(
            lambda own, items, _: F.linear_cross_entropy(own, items, targets)
        )
    if importlib.util.find_spec("cut_cross_entropy") is not None:
        from cut_cross_entropy import linear_cross_entropy

        cut = graded(lambda own, items, _: linear_cross_entropy(own, items, targets), torch.bfloat16)
        methods["cut-cross-entropy, bfloat16"] = cut
    if importlib.util.find_spec("liger_kernel") is not None:
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

        liger = LigerFusedLinearCrossEntropyLoss()
        methods["Liger"] = graded(lambda own, items, _: liger(items, own, targets))
    return methods


def kernels(device: torch.device, small: bool) -> list[dict[str, Any]]:
    rows = []
    for n, m, d in SMALL_SIZES if small else SIZES:
        generator = torch.Generator().manual_seed(0)
        states, weight, offset = (torch.randn(size, generator=generator) for size in ((n, d), (m, d), (m,)))
        targets = torch.randint(1, m, (n,), generator=generator)
        tensors = tuple(one.to(device) for one in (0.5 * states, 0.1 * weight, 0.05 * offset, targets))
        # float64 of a part of the rows on the device would not fit: the errors are those of the smallest size
        exact: dict[str, list[Tensor]] = {}
        if n * m <= 1 << 27:
            double = tuple(one.double() if one.is_floating_point() else one for one in tensors)
            for head in ("euclidean", "poincare"):
                exact[head] = _exact(head, double)
        for name, call in _methods(tensors).items():
            if name == "full logits, Poincare" and not exact:
                continue  # a dozen arrays of this size
            row: dict[str, Any] = {"method": name, "rows": n, "items": m, "width": d}
            try:
                row["ms"], row["peak_mb"] = timed(call, device, 3)
                head = "poincare" if "oincare" in name else "euclidean"
                if head in exact:
                    pairs = zip(call()[1:], exact[head], strict=True)
                    row["error"] = max(float((a.double() - b).norm() / b.norm()) for a, b in pairs)
            except (RuntimeError, ValueError, ImportError) as error:  # out of memory, or a method that needs CUDA
                row["failed"] = str(error).splitlines()[0][:120]
            rows.append(row)
    return rows


def _exact(head: str, tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Return the gradients of states and weight in float64."""
    states, weight, offset, targets = tensors
    own, items = states.requires_grad_(), weight.requires_grad_()
    logits = Poincare().logits(own, items, offset, theta=0.1) if head == "poincare" else own @ items.t()
    return list(torch.autograd.grad(F.cross_entropy(logits, targets), [own, items]))


def generated(small: bool) -> SequenceStore:
    """Return data like MovieLens-1M: histories of 165 items on average."""
    users, items, length = (60, 300, 20) if small else (6040, 3416, 165)
    generator = np.random.default_rng(0)
    lengths = np.maximum(4, generator.poisson(length, users))
    owners = np.repeat(np.arange(1, users + 1), lengths)
    popular = 1 + np.minimum(generator.zipf(1.3, len(owners)), items - 1)
    times = np.arange(len(owners), dtype=float)
    tokens = [
        np.array(["[PAD]", *(f"{kind}{i}" for i in range(1, count + 1))])
        for kind, count in (("u", users), ("i", items))
    ]
    return SequenceStore.from_interactions(owners, popular, times, *tokens)


def _built(model: str, store: SequenceStore, device: torch.device, folder: Path, **keys: Any) -> tuple[Any, Any, Any]:
    """Return the configuration, the model in training mode and its batches."""
    options = {
        "interactions": "given",
        "use_gpu": device.type != "cpu",
        "output_dir": str(folder),
        "show_progress": False,
        **keys,
    }
    config = Config(model, "generated", config_dict=options)
    data, split = reader_of_store(store)(config)
    resolve_data_defaults(config, split)
    torch.manual_seed(0)
    made, batches, _ = build(config, data, split, split.train_lengths)
    made.train()
    return config, made, batches


def _loop(model: str, store: SequenceStore, device: torch.device, folder: Path, **keys: Any) -> tuple[Loop, Any]:
    config, made, batches = _built(model, store, device, folder, **keys)
    return Loop(config, made, folder), batches


def steps(device: torch.device, small: bool) -> list[dict[str, Any]]:
    rows, store = [], generated(small)
    for model in MODELS:
        for graphs in (False, "auto") if device.type == "cuda" else (False,):
            with tempfile.TemporaryDirectory() as folder:
                loop, batches = _loop(model, store, device, Path(folder), cuda_graphs=graphs, **_few(model, small))
                loop.use_graphs(batches)
                scaler = torch.amp.GradScaler(device.type, enabled=False)
                queue = list(batches)[: 5 if small else 40]
                for batch in queue:
                    loop.train_step(batch, scaler)
                synchronize(device)
                start = time.perf_counter()
                for batch in queue:
                    loop.train_step(batch, scaler)
                synchronize(device)
                milliseconds = 1e3 * (time.perf_counter() - start) / len(queue)
                replays = 0 if loop.graphs is None else loop.graphs.replays
                rows.append({"model": model, "cuda_graphs": bool(graphs), "ms": milliseconds, "replays": replays})
    return rows


def _few(model: str, small: bool) -> dict[str, Any]:
    """Return the keys of a model on small data."""
    if not small:
        return {}
    keys: dict[str, Any] = {"train_batch_size": 32, "hidden_size": 16, "MAX_ITEM_LIST_LENGTH": 20}
    return keys | ({"n_negatives": 8} if model == "gSASRec" else {})


def epochs(device: torch.device, small: bool) -> list[dict[str, Any]]:
    rows, store = [], generated(small)
    for model in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            loop, batches = _loop(model, store, device, Path(folder), epochs=2, eval_step=0, **_few(model, small))
            loop.fit(batches)
            seconds = [row["train_seconds"] for row in loop.history]
            rows.append({"model": model, "first_s": seconds[0], "second_s": seconds[-1]})
    for name, peer in (("RecBole's SASRec", _recbole_epoch), ("RecTools' SASRec", _rectools_epochs)):
        try:
            rows.append({"model": name, **peer(store, device, small)})
        except ImportError as error:
            rows.append({"model": name, "failed": str(error)})
    return rows


def _recbole_epoch(store: SequenceStore, device: torch.device, small: bool) -> dict[str, Any]:
    """Return the time of an epoch of RecBole's model on its rows (prefix, target), scaled from its first steps."""
    keys = {"MAX_ITEM_LIST_LENGTH": 20, "train_batch_size": 256, "hidden_size": 16} if small else {}
    with tempfile.TemporaryDirectory() as folder:
        _, made, batches = _built("SASRec", store, device, Path(folder), **{"train_batch_size": 2048, **keys})
        optimizer = torch.optim.Adam(made.parameters(), lr=1e-3)
        start, count = 0.0, 0
        for batch in itertools.islice(batches, 4 if small else RECBOLE_STEPS + 1):
            optimizer.zero_grad()
            made.calculate_loss(batch.to(device)).backward()
            optimizer.step()
            if not count:  # the first step makes what is made once
                synchronize(device)
                start = time.perf_counter()
            count += 1
        synchronize(device)
        seconds = (time.perf_counter() - start) / (count - 1)
    return {"second_s": seconds * len(batches), "steps_timed": count - 1, "steps": len(batches)}


def _rectools_epochs(store: SequenceStore, device: torch.device, small: bool) -> dict[str, Any]:
    """Return the times of two epochs of RecTools' model; ImportError if it is not installed."""
    import pandas as pd
    import pytorch_lightning as pl
    from rectools import Columns
    from rectools.dataset import Dataset
    from rectools.models import SASRecModel

    class Clock(pl.Callback):
        seconds: ClassVar[list[float]] = []

        def on_train_epoch_start(self, *_: Any) -> None:
            synchronize(device)
            self.start = time.perf_counter()

        def on_train_epoch_end(self, *_: Any) -> None:
            synchronize(device)
            self.seconds.append(time.perf_counter() - self.start)

    def trainer() -> pl.Trainer:
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
        accelerator = "gpu" if device.type == "cuda" else "cpu"
        return pl.Trainer(
            max_epochs=2, enable_checkpointing=False, devices=1, accelerator=accelerator, callbacks=[Clock()], **quiet
        )

    owners = np.repeat(np.arange(store.n_rows), np.diff(store.offsets))
    times = pd.Timestamp("2000-01-01") + pd.to_timedelta(np.arange(len(owners)), unit="s")
    frame = pd.DataFrame({Columns.User: owners, Columns.Item: store.items, Columns.Datetime: times})
    frame[Columns.Weight] = 1.0
    sizes = {"n_factors": 16, "session_max_len": 20} if small else {"n_factors": 64, "session_max_len": 200}
    model = SASRecModel(n_blocks=2, n_heads=1, batch_size=128, loss="softmax", get_trainer_func=trainer, **sizes)
    model.fit(Dataset.construct(frame))
    return {"first_s": Clock.seconds[0], "second_s": Clock.seconds[-1]}


def runs(device: torch.device, small: bool) -> list[dict[str, Any]]:
    """Run the default model on ml-100k, which comes with RecBole, and on the data of $RECBOLE_HYPER_DATA."""
    folder = Path(os.environ.get("RECBOLE_HYPER_DATA", ""))
    datasets = ["ml-100k", *(name for name in DATASETS if not small and (folder / name).is_dir())]
    return [_run(name, folder, device, small) for name in datasets]


def _run(dataset: str, data: Path, device: torch.device, small: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        keys: dict[str, Any] = {"use_gpu": device.type != "cpu", "output_dir": folder, "show_progress": False}
        keys |= {"epochs": 1, **_few("", small)} if small else {}
        if dataset != "ml-100k":
            keys["data_path"] = str(data)
        start = time.perf_counter()
        result = run("FMLPRecMemory", dataset, config_dict=keys)
        seconds = time.perf_counter() - start
    spent = {f"{phase}_s": result["seconds"][phase] for phase in ("train", "valid", "test")}
    figures = {name: result["test"][name] for name in ("ndcg@10", "hit@10")}
    return {"model": "FMLPRecMemory", "dataset": dataset, "seconds": seconds, **spent, **figures}


def equal(device: torch.device, small: bool) -> list[dict[str, Any]]:
    """Compare 100 steps without dropout on the CPU and the device from the same weights."""
    rows, store = [], generated(True)
    for model in ("SASRecCE", "HSASRecCE", "FMLPRecMemory"):
        losses = []
        for place in (torch.device("cpu"), device):
            with tempfile.TemporaryDirectory() as folder:
                still = {"hidden_dropout_prob": 0.0, "attn_dropout_prob": 0.0, "shuffle": False, **_few(model, True)}
                loop, batches = _loop(model, store, place, Path(folder), **still)
                loop.use_graphs(batches)
                scaler = torch.amp.GradScaler(place.type, enabled=False)
                queue = list(batches)
                for step in range(10 if small else GRADIENT_STEPS):
                    loop.train_step(queue[step % len(queue)], scaler)
                loop._read_losses()
                losses.append(loop.under_way.sums["train_loss"] / (10 if small else GRADIENT_STEPS))
        rows.append(
            {"model": model, "cpu": losses[0], "device": losses[1], "within_1e-4": bool(abs(np.diff(losses)[0]) < 1e-4)}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", default=",".join(SECTIONS), help="comma-separated")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="small data, to see that everything works")
    parser.add_argument("--output", type=Path, help="json file, such as results/bench_gpu.json; default: print only")
    given = parser.parse_args()
    device = torch.device(given.device)
    known = json.loads(given.output.read_text()) if given.output and given.output.is_file() else []
    name = in_words(describe(device)) + (", small" if given.small else "")
    about = {"device": name, "torch": torch.__version__, "commit": commit()}
    entry = next((one for one in known if about.items() <= one.items()), None)
    if entry is None:
        entry = {**about, "sections": {}}
        known.append(entry)
    for section in given.sections.split(","):
        start = time.perf_counter()
        entry["sections"][section] = rows = globals()[section](device, given.small)
        print(f"{section} ({time.perf_counter() - start:.0f} s)")
        for row in rows:
            print("  ", json.dumps(row, default=float))
        if given.output:
            given.output.write_text(json.dumps(known, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
