"""The test figures of FMLPRecMemory from its weights file and the raw interactions alone, with numpy and no other code.

The leave-one-out split, ids, network, memory, ranker and metrics are written again from their papers and pages, one
user at a time, so that a leak or a mistake in any stage of the package would show as a difference.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import load_file
from scipy.special import erf

SHARE, DECAY, BEST, NEWEST_OF_EASE = 0.4, 0.9, 100, 100
EASE, RANKER = "ranking.reader.ease._extra_state", "ranking.ranker._extra_state"
Array = np.ndarray


def histories(inter: Path) -> tuple[list[list[tuple[float, int]]], int]:
    """Return times and items of each user by time, ties in the order of the file, and how many ids there are."""
    numbers: dict[str, int] = {}
    rows: dict[str, list[tuple[float, int]]] = defaultdict(list)
    with inter.open(newline="") as file:
        lines = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        names = [name.partition(":")[0] for name in next(lines)]
        user, item, time = (names.index(name) for name in ("user_id", "item_id", "timestamp"))
        for line in lines:
            number = numbers.setdefault(line[item], len(numbers) + 1)
            rows[line[user]].append((float(line[time]), number))
    return [sorted(events, key=lambda event: event[0]) for events in rows.values()], len(numbers) + 1


def norm(values: Array, weights: dict[str, Array], name: str) -> Array:
    centred = values - values.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def last_state(items: list[int], weights: dict[str, Array], length: int) -> Array:
    """Return the state (d,) after the newest ``length`` items: filters, feed-forward parts and norms in turn."""
    recent = np.array(items[-length:])
    states = weights["item_embedding.weight"][recent] + weights["encoder.position"][: len(recent)][::-1]
    states = norm(states, weights, "encoder.norm")
    for layer in range(sum(name.endswith("filter.weight") for name in weights)):
        own = f"encoder.layers.{layer}"
        spectrum = weights[f"{own}.filter.weight"]
        kernel = np.fft.irfft(spectrum[..., 0] + 1j * spectrum[..., 1], n=length, axis=0)
        filtered = np.stack([(kernel[: place + 1][::-1] * states[: place + 1]).sum(0) for place in range(len(recent))])
        hidden = norm(states + filtered, weights, f"{own}.filter_norm")
        inner = hidden @ weights[f"{own}.widen.weight"].T + weights[f"{own}.widen.bias"]
        inner = inner * 0.5 * (1 + erf(inner / math.sqrt(2)))
        inner = inner @ weights[f"{own}.narrow.weight"].T + weights[f"{own}.narrow.bias"]
        states = norm(hidden + inner, weights, f"{own}.output_norm")
    return states[-1]


def pair_counts(
    rows: list[list[int]], n_items: int, window: int, neighbours: int, side: str = "both"
) -> tuple[Array, Array]:
    """Return C (n_items, n_items) with the largest entries of each row, and the sums of all entries."""
    counts = np.zeros((n_items, n_items))
    for row in rows:
        nearest: dict[tuple[int, int], int] = {}
        for distance in range(1, window + 1):
            for first, second in zip(row, row[distance:], strict=False):
                if first == second:
                    continue
                if side != "before":
                    nearest.setdefault((first, second), distance)
                if side != "after":
                    nearest.setdefault((second, first), distance)
        for (first, second), distance in nearest.items():
            counts[first, second] += distance**-0.5
    totals = counts.sum(1)
    for row in counts:
        order = np.argsort(-row, kind="stable")
        row[order[neighbours:]] = 0
    return counts, totals


def votes_of(items: list[int], memory: tuple[Array, Array], window: int, decay: float) -> tuple[Array, float]:
    """Return the votes (n_items,) of a memory after the history ``items``, and the sum of the items' weights."""
    counts, totals = memory
    votes, weight = np.zeros(len(totals)), 0.0
    for age, item in enumerate(items[::-1][:window]):
        if totals[item]:
            own = decay**age * math.sqrt(totals[item])
            votes, weight = votes + own * counts[item] / totals[item], weight + own
    return (votes / weight if weight else votes), weight


def ease_scores(items: list[int], weights: dict[str, Array], decay: float) -> Array:
    """Return EASE^R's scores (n_items,) after the history ``items``; 0 where it was not fitted."""
    scores = np.zeros(len(weights["item_embedding.weight"]))
    neighbours, bits = weights[EASE].astype(np.int32)
    for age, item in enumerate(items[::-1][:NEWEST_OF_EASE]) if bits.size else ():
        scores[neighbours[item]] += decay**age * bits[item].view(np.float32).astype(np.float64)
    return scores


def softmax(logits: Array) -> Array:
    """Return the probabilities (n_items,), 0 for padding."""
    found = np.exp(logits - logits[1:].max())
    found[0] = 0
    return found / found.sum()


Memories = dict[str, tuple[Array, Array]]


def probabilities(
    items: list[int], weights: dict[str, Array], memories: Memories, popularity: list[Array], settings: dict[str, Any]
) -> Array:
    """Return p (n_items,) after the history ``items``, 0 for padding."""
    state = last_state(items, weights, settings["MAX_ITEM_LIST_LENGTH"])
    network = softmax(weights["item_embedding.weight"] @ state / settings["temperature"])
    window, recent = settings["memory_window"], items[-settings["MAX_ITEM_LIST_LENGTH"] :]
    votes, weight = votes_of(items, memories["both"], window, DECAY)
    mixed = (1 - SHARE) * network + SHARE * votes if weight else network.copy()
    shown = mixed.copy()
    shown[[0, *recent]] = -1
    best = np.argsort(-shown, kind="stable")[: min(BEST, int((shown >= 0).sum()))]
    vectors = weights["item_embedding.weight"]
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    cosines = np.zeros((len(best), window))
    cosines[:, : len(items[-window:])] = units[best] @ units[items[::-1][:window]].T
    evidence = [np.log(network[best]), np.log(mixed[best]), *(np.log1p(counts[best]) for counts in popularity)]
    evidence += [cosines[:, 0], cosines.max(axis=1), cosines @ 0.9 ** np.arange(window)]
    for side in ("after", "before"):
        evidence += [np.log(votes_of(items, memories[side], window, one)[0][best] + math.exp(-9)) for one in (0.4, 0.9)]
    evidence += [ease_scores(recent, weights, one)[best] for one in (0.8, 0.95, 0.99)]
    columns, changes = np.stack(evidence, axis=1), []
    for numbers in weights[RANKER]:
        count = columns.shape[1]
        mean, scale, linear = numbers[: 3 * count].reshape(3, count)
        weight_, bias, out = numbers[3 * count : -32].reshape(count, 16), numbers[-32:-16], numbers[-16:]
        inputs = (columns - mean) * scale
        changes.append(inputs @ linear + np.tanh(inputs @ weight_ + bias) @ out)
    changed = mixed[best] * np.exp(np.mean(changes, axis=0))
    mixed[best] = changed / changed.sum() * mixed[best].sum()
    return mixed


def audit(folder: Path, inter: Path) -> dict[str, float]:
    """Return NDCG@10 and HR@10 of the test for the run in ``folder``, whose data are ``inter``."""
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    weights = {name: values.astype(np.float64) for name, values in load_file(folder / "model.safetensors").items()}
    by_user, n_items = histories(inter)
    # the last item is the test, the one before it validation; a user with two items has none of both
    known = [one[:-2] if len(one) > 3 else one[:-1] if len(one) == 3 else one for one in by_user]
    times, chosen = (np.array(column) for column in zip(*(event for one in known for event in one), strict=True))
    training = [[item for _, item in one] for one in known]
    sizes = n_items, settings["memory_window"], settings["memory_neighbours"]
    memories = {side: pair_counts(training, *sizes, side) for side in ("both", "after", "before")}
    popularity = [np.bincount(chosen[times >= np.quantile(times, q)], minlength=n_items) for q in (0, 0.95)]
    ranks = []
    for events in (one for one in by_user if len(one) > 2):
        *history, target = (item for _, item in events)
        found = probabilities(history, weights, memories, popularity, settings)
        found[history] = -1
        found[0] = -1
        ranks.append(int((found >= found[target]).sum()))
    gains = [1 / math.log2(rank + 1) if rank <= 10 else 0.0 for rank in ranks]
    return {"ndcg@10": sum(gains) / len(ranks), "hit@10": sum(rank <= 10 for rank in ranks) / len(ranks)}
