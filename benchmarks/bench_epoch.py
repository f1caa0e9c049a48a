"""A training epoch of SASRecCE on ml-100k, compared with RecBole's SASRec with the same loss and threads.

    make bench-epoch            (RecBole: --recbole_steps steps, scaled to the epoch; 0 runs the whole epoch)

Both train on the same 97,171 (prefix, target) pairs: RecBole as rows, this package as windows of at most 50 targets.
Each method runs in a separate process, in which the growth of the resident set is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time

import torch

COMMON = {
    "n_layers": 2,
    "n_heads": 2,
    "hidden_size": 64,
    "hidden_dropout_prob": 0.5,
    "attn_dropout_prob": 0.5,
    "MAX_ITEM_LIST_LENGTH": 50,
    "show_progress": False,
    "epochs": 1,
}
# RecBole's block: post-norm, gelu, inner 256
RECBOLE_BLOCK = {"norm_placement": "post", "hidden_act": "gelu", "inner_size": 256, "scale_embeddings": False}
# 97,171 targets in 2,412 windows: 51 windows are 2,055 targets on average, RecBole's 2,048 rows
WINDOWS_PER_BATCH = 51


def measure(method: str, steps: int) -> dict[str, float]:
    """Run one method; return seconds per epoch, steps, measured steps and the growth of the resident set in bytes."""
    from recbole_hyper.config import Config
    from recbole_hyper.protocols.base import make_split
    from recbole_hyper.runs.build import build
    from recbole_hyper.runs.dataset import SequenceDataset
    from recbole_hyper.training.memory import PeakMemory
    from recbole_hyper.training.optim import build_optimizer
    from recbole_hyper.training.settings import OptimizerSettings

    keys = {**COMMON, **(RECBOLE_BLOCK if method == "SASRecCE, RecBole's block" else {})}
    if method == "RecBole SASRec":
        config = Config("SASRec", "ml-100k", config_dict=keys)
    else:
        config = Config("SASRecCE", "ml-100k", config_dict={**keys, "train_batch_size": WINDOWS_PER_BATCH})
    with PeakMemory() as memory:
        data = SequenceDataset(config)
        if method == "RecBole SASRec":
            from recbole.data.dataset import SequentialDataset
            from recbole.data.utils import data_preparation
            from recbole.model.sequential_recommender import SASRec

            train, _, _ = data_preparation(config, SequentialDataset(config))
            model = SASRec(config, train._dataset)
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        else:
            split = make_split(data.store, config)
            model, train, _ = build(config, data, split, split.train_lengths)
            optimizer = build_optimizer(model, OptimizerSettings.of(config))
        model.train()
        batches = iter(train)
        total = len(train)
        wanted = min(steps, total) if steps and method == "RecBole SASRec" else total
        warm = next(batches)
        model.calculate_loss(warm).backward()
        optimizer.zero_grad()
        batches = iter(train)
        start = time.perf_counter()
        for _ in range(wanted):
            batch = next(batches)
            optimizer.zero_grad()
            loss = model.calculate_loss(batch)
            loss.backward()
            optimizer.step()
        seconds = time.perf_counter() - start
    return {"seconds": seconds * total / wanted, "steps": total, "measured": wanted, "growth": memory.growth}


def main() -> None:
    """Measure every method and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recbole_steps", type=int, default=8, help="steps of RecBole to time; 0: the whole epoch")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3, help="epochs of this package to time; the median is printed")
    parser.add_argument("--method", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.method:
        print(json.dumps(measure(arguments.method, arguments.recbole_steps)))
        return
    print(f"{platform.processor() or platform.machine()}, {arguments.threads} threads, torch {torch.__version__}")
    rows = {}
    for method in ("RecBole SASRec", "SASRecCE, RecBole's block", "SASRecCE, paper's block"):
        runs = []
        for _ in range(1 if method == "RecBole SASRec" else arguments.repeats):
            command = [sys.executable, __file__, f"--method={method}", f"--threads={arguments.threads}"]
            command += [f"--recbole_steps={arguments.recbole_steps}"]
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
        rows[method] = sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]
    base = rows["RecBole SASRec"]
    print(f"{'method':28}{'s / epoch':>10}{'steps':>7}{'times faster':>14}{'RSS growth MiB':>16}{'of RecBole':>12}")
    for method, row in rows.items():
        print(
            f"{method:28}{row['seconds']:10.2f}{row['steps']:7d}{base['seconds'] / row['seconds']:14.1f}"
            f"{row['growth'] / 2**20:16.0f}{row['growth'] / base['growth']:12.3f}"
        )
    if base["measured"] < base["steps"]:
        print(f"RecBole's epoch is scaled from {base['measured']} of {base['steps']} steps")


if __name__ == "__main__":
    main()
