"""Other memories beside the same trained network, compared on validation: memory_variants.csv.

    python examples/studies/memory_variants.py RUN...       folders of FMLPRecMemory runs

No variant trains anything. Each takes the probabilities of the run's network on at most 10,000 validation cases, and
mixes them with another memory. The share of the memory is the best of .1 to .7 (of
two memories: the best pair of shares, at most .8 together), and its decay the best of .4, .6 and .9. So every row is
the best that its variant could reach.

Several runs of one data set, which differ in their seed, also tell what the mean of their networks would give.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
import torch

from recbole_hyper.batches.histories import history_matrix
from recbole_hyper.data.pair_counts import pair_counts
from recbole_hyper.data.sequences import ranges
from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.evaluation.scorers import state_scorer
from recbole_hyper.evaluation.statistics import case_values
from recbole_hyper.models.memory import drawn, newest_first
from recbole_hyper.runs.load import load_model, read_finished, read_run
from recbole_hyper.types import Prefixes, gather

FILE = Path(__file__).parents[2] / "results" / "memory_variants.csv"
SHARES = np.arange(1, 8) / 10
PAIRS = [(one, other) for one, other in itertools.product(SHARES, SHARES) if one + other < 0.85]
DECAYS = (0.4, 0.6, 0.9)
CASES, BLOCK = 10_000, 500
NEIGHBOURS = 200  # sequences that vote


class Memory(NamedTuple):
    """Counts of pairs (n_items, n_items), what an item was counted in all, and how many of the newest items vote."""

    counts: scipy.sparse.csr_matrix
    totals: np.ndarray
    window: int

    def newest(self, cases: Prefixes) -> np.ndarray:
        """Return the newest items of each history (n, window), newest first, padded with 0."""
        starts = np.maximum(cases.ends - self.window, cases.starts)
        items = gather(cases.store, cases.rows, starts, cases.ends, self.window)
        return newest_first(torch.from_numpy(items), torch.from_numpy(cases.ends - starts)).numpy()

    def after(self, cases: Prefixes, decay: float) -> np.ndarray:
        """Return the distribution after each history (n, n_items)."""
        newest = self.newest(cases)
        totals = np.where(newest > 0, self.totals[newest], 0.0)
        weights = decay ** np.arange(self.window) * np.sqrt(totals)
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-30)
        votes = (weights / np.maximum(totals, 1e-30)).astype(np.float32).ravel()
        places = np.arange(0, newest.size + 1, self.window)
        shape = (len(newest), len(self.totals))
        found: np.ndarray = (
            scipy.sparse.csr_matrix((votes, newest.ravel(), places), shape=shape) @ self.counts
        ).toarray()
        return found


class Run:
    """The validation cases of a run, the probabilities of its network, and its training part."""

    def __init__(self, folder: str) -> None:
        config, dataset, split = read_finished(folder, read_run(folder), data_set=False)
        model, _ = load_model(config, dataset, split)
        model.eval()
        cases, self.n_items = drawn(split.valid, CASES), split.store.n_items
        self.cases, self.dataset, self.exclude_seen = cases, config["dataset"], config["exclude_seen"]
        score, parts = state_scorer(model, int(config["MAX_ITEM_LIST_LENGTH"]), config["device"]), []
        for start in range(0, len(cases), BLOCK):
            logits = score(cases[start : start + BLOCK])
            logits[:, 0] = -torch.inf
            parts.append(logits.softmax(dim=1).cpu().numpy())
        self.network = np.concatenate(parts)
        store, lengths = split.store, np.asarray(split.train_lengths)
        self.items = store.items[ranges(store.offsets[:-1], lengths)].astype(np.int64)
        self.owners, self.n_rows = np.repeat(np.arange(len(lengths)), lengths), len(lengths)
        self.popularity = store.counts(lengths)
        window, neighbours = config["memory_window"], config["memory_neighbours"]
        self.memory = Memory(*pair_counts(store, lengths, window=window, neighbours=neighbours), window)

    def ranks(self, scores: np.ndarray) -> np.ndarray:
        """Return the rank of each target; ``scores`` (n, n_items) are overwritten."""
        rows, begin = torch.from_numpy(scores), 0

        def next_rows(cases: Prefixes) -> torch.Tensor:
            nonlocal begin
            begin += len(cases)
            return rows[begin - len(cases) : begin]

        options = {"n_items": self.n_items, "k": 1, "exclude_seen": self.exclude_seen}
        return rank_cases(next_rows, self.cases, **options).ranks

    def mixtures(self, memories: Iterable[np.ndarray]) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
        """Yield share, memory and ranks of each mixture of the network and a memory."""
        for memory, share in itertools.product(memories, SHARES):
            yield share, memory, self.ranks((1 - share) * self.network + share * memory)


def ndcg(ranks: np.ndarray) -> float:
    return float(case_values("ndcg@10", ranks).mean())


def directed(run: Run, window: int, exponent: float) -> scipy.sparse.csr_matrix:
    """Return how often item j follows item i within ``window`` steps, a pair of s steps as s^-exponent."""
    keys, weights, n = [], [], run.n_items
    for steps in range(1, window + 1):
        first, second = run.items[:-steps], run.items[steps:]
        pair = (run.owners[:-steps] == run.owners[steps:]) & (first != second)
        keys.append((run.owners[:-steps][pair] * n + first[pair]) * n + second[pair])
        weights.append(np.full(len(keys[-1]), steps**-exponent))
    pairs, places = np.unique(np.concatenate(keys), return_index=True)  # a sequence counts once for a pair
    return scipy.sparse.csr_matrix((np.concatenate(weights)[places], (pairs // n % n, pairs % n)), shape=(n, n))


def memory_of(counts: scipy.sparse.csr_matrix) -> Memory:
    """Return the memory of these counts, with all neighbours of an item."""
    return Memory(counts, np.asarray(counts.sum(axis=1)).ravel().astype(np.float32), window=10)


def distributions(run: Run, memory: Memory) -> Iterator[np.ndarray]:
    """Yield the distribution of a memory after each history (n, n_items), for each decay."""
    return (memory.after(run.cases, decay) for decay in DECAYS)


def sequence_memory(run: Run, decay: float, power: int) -> np.ndarray:
    """Return the votes of the training sequences most like each history (n, n_items).

    Likeness: the items in common, each by its rarity and by ``decay`` per step of age in the history, over the square
    root of the sequence's length, to the ``power``.
    """
    rows = scipy.sparse.csr_matrix(
        (np.ones(len(run.items), np.float32), (run.owners, run.items)), shape=(run.n_rows, run.n_items)
    )
    rarity = np.log(run.n_rows / np.maximum(run.popularity, 1)).astype(np.float32)
    newest = Memory(rows, rarity, window=50).newest(run.cases)
    weights = np.where(newest > 0, decay ** np.arange(newest.shape[1]) * rarity[newest], 0).astype(np.float32)
    places = np.arange(0, newest.size + 1, newest.shape[1])
    histories = scipy.sparse.csr_matrix((weights.ravel(), newest.ravel(), places), shape=(len(newest), run.n_items))
    length = np.sqrt(np.maximum(np.bincount(run.owners, minlength=run.n_rows), 1)).astype(np.float32)
    votes = np.zeros((len(newest), run.n_items), np.float32)
    for start in range(0, len(newest), BLOCK):
        likeness = (histories[start : start + BLOCK] @ rows.T).toarray() / length
        likeness[np.arange(len(likeness)), run.cases.rows[start : start + BLOCK]] = 0  # not the history's own sequence
        least = np.partition(likeness, -NEIGHBOURS, axis=1)[:, -NEIGHBOURS][:, None]
        likeness = np.where(likeness >= least, likeness, 0) ** power
        votes[start : start + BLOCK] = (scipy.sparse.csr_matrix(likeness) @ rows).toarray()
    if run.exclude_seen:
        seen = history_matrix(run.cases).tocoo()
        votes[seen.row, seen.col] = 0
    return votes / np.maximum(votes.sum(axis=1, keepdims=True), 1e-9)


def variants(run: Run) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name of each variant and its ranks."""

    def best(memory: Memory) -> tuple[float, np.ndarray, np.ndarray]:
        return max(run.mixtures(distributions(run, memory)), key=lambda mixture: ndcg(mixture[2]))

    yield "the network alone", run.ranks(run.network.copy())
    share, memory, ranks = best(run.memory)
    yield "with the memory, as the default model", ranks
    follows = directed(run, 10, 0.5)
    yield "backward pairs count half", best(memory_of((follows + 0.5 * follows.T).tocsr()))[2]
    yield "forward pairs only", best(memory_of(follows))[2]
    close, steep = directed(run, 5, 0.5), directed(run, 10, 1.0)
    yield "pairs at most 5 steps apart", best(memory_of((close + close.T).tocsr()))[2]
    yield "a pair counts 1 / steps", best(memory_of((steep + steep.T).tocsr()))[2]
    log_counts = np.log1p(run.popularity).astype(np.float32)
    mixture = np.log((1 - share) * run.network + share * memory + 1e-30)
    for weight in (0.05, 0.1):
        yield f"less {weight} x log popularity", run.ranks(mixture - weight * log_counts)
    for decay, power in ((0.7, 1), (0.7, 2), (0.9, 2)):
        votes = sequence_memory(run, decay, power)
        mixtures = (run.ranks((1 - s - v) * run.network + s * memory + v * votes) for s, v in PAIRS)
        yield f"and like sequences, decay {decay}, power {power}", max(mixtures, key=ndcg)


def means_of_networks(runs: list[Run]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the ranks by the mean of the networks of each number of runs with the memory, for all such choices."""
    first, networks = runs[0], [run.network for run in runs]
    memories = list(distributions(first, first.memory))
    for count in range(1, len(networks) + 1):
        ranks = []
        for chosen in itertools.combinations(networks, count):
            first.network = np.mean(chosen, axis=0)
            ranks.append(max((ranks for *_, ranks in first.mixtures(memories)), key=ndcg))
        yield f"the mean of the networks of {count} of {len(networks)} seeds, and the memory", np.concatenate(ranks)


def row_of(run: Run, variant: str, ranks: np.ndarray) -> dict[str, object]:
    """Return the row of a variant, whose ``ranks`` may be those of several choices one after another."""
    values = case_values("ndcg@10", ranks).reshape(-1, len(run.cases)).mean(axis=0)
    return {
        "data": run.dataset,
        "cases": len(values),
        "variant": variant,
        "valid ndcg@10": values.mean(),
        "standard error": values.std() / np.sqrt(len(values)),
        "valid hit@10": (ranks <= 10).mean(),
    }


def main(folders: Sequence[str]) -> None:
    """Compare the variants on the runs in ``folders``, and write rows that replace those of the same data."""
    table = pd.read_csv(FILE) if FILE.exists() else pd.DataFrame()
    runs: dict[str, list[Run]] = {}
    for folder in folders:
        run = Run(folder)
        runs.setdefault(run.dataset, []).append(run)
    for dataset, group in runs.items():
        rows = []
        for variant, ranks in itertools.chain(variants(group[0]), means_of_networks(group) if group[1:] else ()):
            rows.append(row_of(group[0], variant, ranks))
            print(rows[-1], flush=True)
        kept = table[table["data"] != dataset] if len(table) else table
        table = pd.concat([kept, pd.DataFrame(rows)], ignore_index=True)
        table.round(4).to_csv(FILE, index=False, lineterminator="\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1:])
