"""Ranking among a million items, compared with the scores' matrix product alone; and ML-1M with RecBole's evaluation.

    make bench-rank
    RECBOLE_HYPER_DATA=DIR .venv/bin/python benchmarks/bench_rank.py

The second part needs DIR/ml-1m/ml-1m.inter; without it only the first part runs. All times are medians of the repeats
in one process. Memory is the growth of the resident set while ranking.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import torch
from timing import median_seconds

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.evaluation.tables import table
from recbole_hyper.training.memory import PeakMemory
from recbole_hyper.types import Cases, Prefixes


def random_cases(users: int, n_items: int, length: int) -> Cases:
    """Return one case per user, after ``length`` random items."""
    generator = np.random.default_rng(0)
    items = generator.integers(1, n_items, users * (length + 1))
    owners = np.repeat(np.arange(1, users + 1), length + 1)
    tokens = np.arange(n_items).astype(str)
    names = np.arange(users + 1).astype(str)
    store = SequenceStore.from_interactions(owners, items, np.arange(len(items)), names, tokens)
    return Cases.build(store, np.arange(users), np.full(users, length))


def large_catalogue(users: int, n_items: int, width: int, budget: int, repeats: int) -> list[dict[str, object]]:
    """Rank for ``users`` among ``n_items``, and compare with the product alone."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(users, width, generator=generator)
    items = torch.randn(n_items, width, generator=generator)
    cases = random_cases(users, n_items, 50)

    def score(part: Prefixes) -> torch.Tensor:
        return states[torch.from_numpy(part.rows)] @ items.T

    def bare() -> None:
        size = max(1, budget // (4 * n_items))
        for start in range(0, users, size):
            states[start : start + size] @ items.T

    def ranked() -> None:
        rank_cases(score, cases, n_items=n_items, k=10, memory_budget=budget)

    rank_cases(score, cases[:1], n_items=n_items, k=10)  # loads the compiled kernel, whose memory should not count
    product = median_seconds(bare, repeats)
    with PeakMemory(interval=0.005) as memory:
        whole = median_seconds(ranked, repeats)
    return [
        {"what": f"products alone, {users} x {n_items:,}, d = {width}", "seconds": product, "ratio": 1.0},
        {"what": "ranks, ties, top 10, seen masked", "seconds": whole, "ratio": whole / product,
         "growth MiB": memory.growth / 2**20, "budget MiB": budget / 2**20},
    ]  # fmt: skip


def movielens(data_path: str, repeats: int) -> list[dict[str, object]]:
    """Evaluate an untrained SASRecCE on the test cases of leave-one-out, with RecBole's trainer and with ours."""
    from recbole.data.utils import get_dataloader
    from recbole.trainer import Trainer

    from recbole_hyper.config import Config
    from recbole_hyper.evaluation.metrics import compute_metrics
    from recbole_hyper.models.contract import make_scorer
    from recbole_hyper.protocols.base import make_split
    from recbole_hyper.runs.build import build
    from recbole_hyper.runs.dataset import SequenceDataset

    rows: list[dict[str, object]] = []
    folder = tempfile.mkdtemp()
    keys = {"data_path": data_path, "MAX_ITEM_LIST_LENGTH": 50, "use_gpu": False, "show_progress": False, "topk": [10]}
    config = Config("SASRecCE", "ml-1m", config_dict={**keys, "exclude_seen": False, "checkpoint_dir": folder})
    dataset = SequenceDataset(config)
    split = make_split(dataset.store, config)
    model, _, _ = build(config, dataset, split, split.train_lengths)
    model.eval()
    with torch.no_grad():
        encoded = make_scorer(model, config)
        scores = encoded(split.test)  # the same scores for both, because only the ranking is measured

    def stored(part: Prefixes) -> torch.Tensor:
        start = int(np.searchsorted(split.test.rows, part.rows[0]))
        return scores[start : start + len(part)].clone()

    scorers = {"scores given": stored, "encoder and head": encoded}
    train, _, test = dataset.build()
    loader = get_dataloader(config, "test")(config, test, None, shuffle=False)
    for name, scorer in scorers.items():
        trainer = Trainer(config, model)
        trainer.eval_collector.data_collect(get_dataloader(config, "train")(config, train, None, shuffle=False))
        if name == "scores given":
            cursor = [0]

            def given(interaction: object, cursor: list[int] = cursor) -> torch.Tensor:
                size = len(interaction)  # type: ignore[arg-type]
                start, cursor[0] = cursor[0], (cursor[0] + size) % len(scores)
                return scores[start : start + size].clone()

            model.full_sort_predict = given

        def theirs(trainer: object = trainer) -> object:
            return trainer.evaluate(loader, load_best_model=False, show_progress=False)  # type: ignore[attr-defined]

        def ours(scorer: Callable = scorer) -> dict[str, float]:
            ranks = rank_cases(scorer, split.test, n_items=model.n_items, k=10, exclude_seen=False)
            return compute_metrics(ranks, config["metrics"], [10], 6, n_items=model.n_items - 1, n_users=6040)

        with torch.no_grad():
            slow, fast = median_seconds(theirs, repeats), median_seconds(ours, repeats)
            difference = max(abs(float(value) - ours()[key]) for key, value in theirs().items() if "cover" not in key)
        if name == "scores given":
            del model.full_sort_predict
        rows.append({"what": f"RecBole's full-sort evaluation, {name}", "seconds": slow, "ratio": 1.0})
        rows.append({"what": f"this package, {name}", "seconds": fast, "ratio": fast / slow, "speed-up": slow / fast,
                     "largest difference": difference})  # fmt: skip
    return rows


def main() -> None:
    """Run both parts and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=500)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--budget", type=int, default=256 << 20, help="bytes of scores in memory at once")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    libraries = f"torch {torch.__version__}, numba {numba.__version__}, numpy {np.__version__}"
    print(f"{platform.processor() or platform.machine()} (CPU), {torch.get_num_threads()} threads, {libraries}")
    print(table(large_catalogue(arguments.users, arguments.items, arguments.width, arguments.budget, arguments.repeats),
                ["what", "seconds", "ratio", "growth MiB", "budget MiB"]))  # fmt: skip
    data_path = os.environ.get("RECBOLE_HYPER_DATA")
    if data_path and (Path(data_path) / "ml-1m" / "ml-1m.inter").is_file():
        print(table(movielens(data_path, arguments.repeats),
                    ["what", "seconds", "ratio", "speed-up", "largest difference"]))  # fmt: skip
    else:
        print("RECBOLE_HYPER_DATA has no ml-1m: the comparison with RecBole's evaluation is skipped")


if __name__ == "__main__":
    main()
