"""Trains the noisy-prefix classifier, with a row of the learning curve and a checkpoint per epoch, and exact resume."""

import math
import numbers
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from examples.noisy_prefix.data import PrefixPairs
from examples.noisy_prefix.model import check_above_zero
from recbole_hyper.errors import ConfigError
from recbole_hyper.files import replaced, write_json, write_text
from recbole_hyper.hyperbolic.riemannian import restore_training_state, riemannian_optimizer, training_state
from recbole_hyper.runs.claim import alone_in
from recbole_hyper.training.checkpoint import STATE, checkpoint_errors, load_state, save_state

Batch = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def batches(pairs: PrefixPairs, batch_size: int, order: np.ndarray | None = None) -> list[np.ndarray]:
    """Return the row numbers of each batch, in ``order`` (default: as stored)."""
    rows = np.arange(len(pairs)) if order is None else order
    return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]


def batch_of(pairs: PrefixPairs, rows: np.ndarray) -> Batch:
    """Return first, first_lengths, second, second_lengths, labels of ``rows``; sentences cut to the longest."""
    longest = int(pairs.first_lengths[rows].max())
    return (
        torch.from_numpy(pairs.first[rows, :longest].astype(np.int64)),
        torch.from_numpy(pairs.first_lengths[rows]),
        torch.from_numpy(pairs.second[rows, :longest].astype(np.int64)),
        torch.from_numpy(pairs.second_lengths[rows]),
        torch.from_numpy(pairs.labels[rows]),
    )


@torch.no_grad()
def accuracy(model: nn.Module, pairs: PrefixPairs, batch_size: int = 2048) -> float:
    """Return the accuracy of ``model`` on the pairs, in percent."""
    model.eval()
    correct = 0
    for rows in batches(pairs, batch_size):
        *sentences, labels = batch_of(pairs, rows)
        correct += int((model(*sentences).argmax(-1) == labels).sum())
    return 100 * correct / len(pairs)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise ValueError for a setting of :func:`train_prefix` that is out of range."""
    rates = {name: settings[name] for name in ("learning_rate", "manifold_learning_rate")}
    check_above_zero(**{name: rate for name, rate in rates.items() if rate is not None})
    for name, least in {"stabilize": 1, "train_batch_size": 1, "epochs": 1, "seed": 0}.items():
        value = settings[name]
        if name == "stabilize" and value is None:
            continue  # never project
        if not isinstance(value, numbers.Integral) or value < least:
            raise ValueError(f"{name}={value}: a whole number of at least {least} is needed")


def train_prefix(
    model: nn.Module,
    data: dict[str, PrefixPairs],
    folder: Path,
    *,
    learner: str = "riemannian_adam",
    learning_rate: float = 3e-4,
    manifold_learning_rate: float | None = None,
    stabilize: int | None = 10,
    train_batch_size: int = 1024,
    epochs: int = 30,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    report: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train, keep the best epoch by validation accuracy (the first of equal ones), test it once; return the result.

    ``folder`` gets curve.csv (a row per epoch, counted from 1 here and in result.json), checkpoint.pt (after each
    epoch), best.pt and result.json. If it has a checkpoint of the same settings, training resumes: the order of an
    epoch depends only on seed and epoch, so the numbers are the same as without the stop. ValueError if a setting is
    out of range (nothing is written), another process uses ``folder``, or the checkpoint is damaged or has other
    settings. FloatingPointError if the loss is not finite; the last checkpoint is kept.
    """
    steps: dict[str, Any] = {"learning_rate": learning_rate, "manifold_learning_rate": manifold_learning_rate}
    steps["stabilize"] = stabilize
    order = {"train_batch_size": train_batch_size, "seed": seed}
    check_settings({**steps, **order, "epochs": epochs})
    settings = {**(settings or {}), "learner": learner, **steps, **order}
    optimizer = riemannian_optimizer(model, learner=learner, **steps)
    with alone_in(folder):
        return _train(model, data, folder, optimizer, settings, epochs, report)


def _train(
    model: nn.Module,
    data: dict[str, PrefixPairs],
    folder: Path,
    optimizer: torch.optim.Optimizer,
    settings: dict[str, Any],
    epochs: int,
    report: Callable[[str], None],
) -> dict[str, Any]:
    """Train as :func:`train_prefix`, with checked settings and in a locked folder."""
    checkpoint = folder / STATE
    curve, best = _resumed(model, optimizer, checkpoint, settings)
    if curve:
        report(f"resumed after epoch {len(curve)}")
    for epoch in range(len(curve), epochs):
        row = _train_epoch(model, data, optimizer, settings, epoch)
        curve.append(row)
        state = training_state(model, optimizer)
        if best is None or row["valid_accuracy"] > best["row"]["valid_accuracy"]:
            best = {"row": row, "model": state["model"]}
            save_state(folder / "best.pt", best["model"])
        save_state(checkpoint, {**state, "curve": curve, "settings": settings, "best": best})
        write_text(folder / "curve.csv", pd.DataFrame(curve).to_csv(index=False))
        report(
            f"epoch {row['epoch']}: loss {row['train_loss']:.4f}, accuracy train {row['train_accuracy']:.2f}, "
            f"valid {row['valid_accuracy']:.2f} ({row['train_seconds']:.0f} s)"
        )
    assert best is not None  # at least one epoch was trained or resumed
    # if a run was killed before its checkpoint, best.pt may be of an epoch that is not in the curve
    save_state(folder / "best.pt", best["model"])
    model.load_state_dict(best["model"])
    top = best["row"]
    result = {
        **settings,
        "epochs": len(curve),
        "best_epoch": top["epoch"],
        "valid_accuracy": top["valid_accuracy"],
        "test_accuracy": accuracy(model, data["test"]),
        "train_seconds": round(sum(entry["train_seconds"] for entry in curve), 1),
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "threads": torch.get_num_threads(),
    }
    write_json(folder / "result.json", result)
    return result


def _train_epoch(
    model: nn.Module,
    data: dict[str, PrefixPairs],
    optimizer: torch.optim.Optimizer,
    settings: dict[str, Any],
    epoch: int,
) -> dict[str, Any]:
    """Train one epoch (counted from 0); return its row of the curve."""
    model.train()
    train, start, total, correct = data["train"], time.perf_counter(), 0.0, 0
    order = np.random.default_rng([settings["seed"], epoch]).permutation(len(train))
    for rows in batches(train, settings["train_batch_size"], order):
        *sentences, labels = batch_of(train, rows)
        logits = model(*sentences)
        loss = F.cross_entropy(logits, labels)
        value = float(loss.detach())
        if not math.isfinite(value):
            kept = "the checkpoint is that of the epoch before" if epoch else "there is no checkpoint"
            raise FloatingPointError(
                f"the loss is {value} in epoch {epoch + 1}: lower learning_rate ({settings['learning_rate']}) or "
                f"use riemannian_adam; {kept}"
            )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += value * len(rows)
        correct += int((logits.detach().argmax(-1) == labels).sum())
    seconds = time.perf_counter() - start
    return {
        "epoch": epoch + 1,
        "train_loss": total / len(train),
        "train_accuracy": 100 * correct / len(train),
        "valid_accuracy": accuracy(model, data["valid"]),
        "train_seconds": round(seconds, 2),
    }


def _resumed(
    model: nn.Module, optimizer: torch.optim.Optimizer, checkpoint: Path, settings: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Restore the checkpoint if there is one; return the curve so far, and row and weights of its best epoch.

    ConfigError if it has other settings, CheckpointError if it is damaged.
    """
    if not checkpoint.exists():
        return [], None
    stored = load_state(checkpoint, {"model", "optimizer", "settings", "curve", "best"})
    with checkpoint_errors(checkpoint):
        before = stored["settings"]
        changed = sorted(key for key in settings | before if before.get(key) != settings.get(key))
        if not changed:
            restore_training_state(model, optimizer, stored)
            return list(stored["curve"]), stored["best"]
    raise ConfigError(f"{checkpoint} was made with other values of {', '.join(changed)}; use another output folder")


def plot_curves(runs: dict[str, pd.DataFrame], path: Path, title: str) -> None:
    """Plot loss and accuracies of several runs (label -> curve.csv) by epoch."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for label, curve in runs.items():
        left.plot(curve["epoch"], curve["train_loss"], marker="o", markersize=3, label=label)
        (line,) = right.plot(curve["epoch"], curve["valid_accuracy"], marker="o", markersize=3, label=f"{label}, valid")
        right.plot(curve["epoch"], curve["train_accuracy"], linestyle="--", color=line.get_color(), linewidth=1)
    left.set(xlabel="epoch", ylabel="cross-entropy, train", title=title)
    right.set(xlabel="epoch", ylabel="accuracy, % (dashed: train)", title=title)
    losses = pd.concat([curve["train_loss"] for curve in runs.values()])
    if losses.max() > 100 * losses.min():  # a run that diverged would flatten the others
        left.set_yscale("log")
    left.legend(fontsize=8)
    right.legend(fontsize=8, loc="lower right")
    with replaced(path) as part:
        figure.savefig(part, format=path.suffix.lstrip(".") or "png", dpi=120)
