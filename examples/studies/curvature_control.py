"""Does a hyperbolic head help? The same network under several heads, on ml-100k and on a tree: curvature_control.csv.

    python examples/studies/curvature_control.py DATA     DATA: ml-100k or tree; --help lists the options
    python examples/studies/curvature_control.py DATA --table    means and standard deviations over the seeds
    python examples/studies/curvature_control.py figure    docs/images/curvature.png, curvature_means.csv

Each run is FMLPRecCE with its defaults but for the width (on the tree: ten epochs, no dropout), leave-one-out. A row of
the file is a run; rows that are there are not run again. ``same_genre`` is the share of wrong items among the ten best
that have a genre of the target (ml-100k); ``tree_distance`` their mean number of edges to the target (tree). ``logq``
columns are those of the same network, ranked by its scores less LOGQ x log(training interactions of the item): how much
coverage a model without curvature buys, and for how much NDCG.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import recbole
import torch

import recbole_hyper
from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.evaluation.statistics import case_values
from recbole_hyper.models.contract import make_scorer
from recbole_hyper.runs.load import load_model, read_finished, read_run

FILE = Path(__file__).parents[2] / "results" / "curvature_control.csv"
FIGURE = FILE.parents[1] / "docs" / "images" / "curvature.png"
HEADS = {
    "poincare": {"geometry": "poincare", "curvature": "auto"},
    "euclidean": {"geometry": "euclidean"},
    "flat limit": {"geometry": "euclidean", "temperature": 0.25},
    "poincare, learned": {"geometry": "poincare", "curvature": "learn"},
    "euclidean, learned": {"geometry": "euclidean", "temperature": "learn"},
}
# Okabe and Ito; a learned head has the colour of the fixed one, darker
COLORS = {
    "poincare": "#E69F00",
    "poincare, learned": "#D55E00",
    "euclidean": "#56B4E9",
    "flat limit": "#009E73",
    "euclidean, learned": "#0072B2",
    "poincare, offsets": "#CC79A7",
    "flat limit, offsets": "#000000",
    "poincare, c = 1": "#F0E442",
}
# what else widens the coverage: an offset for each item
WITH_OFFSETS = {
    "poincare, offsets": {"geometry": "poincare", "curvature": "auto", "item_bias": True},
    "flat limit, offsets": {"geometry": "euclidean", "temperature": 0.25, "item_bias": True},
}
# on the tree also the curvature of the unit ball, and no dropout: few coordinates have none to spare
DATA = {
    "ml-100k": {"widths": (8, 16, 32, 64), "heads": {**HEADS, **WITH_OFFSETS}, "keys": {}},
    "tree": {
        "widths": (2, 4, 8, 16),
        "heads": {**HEADS, "poincare, c = 1": {"geometry": "poincare", "curvature": 1.0}},
        "keys": {"hidden_dropout_prob": 0.0, "epochs": 10},
    },
}
# how much of the logarithm of an item's training interactions a ranking takes from its score
LOGQ = (0.1, 0.3)
LOGQ_COLUMNS = [f"{metric}@10_logq{weight}" for weight in LOGQ for metric in ("ndcg", "coverage")]
BRANCHES, DEPTH, WALKS, LENGTH = 3, 6, 3000, 14


def tree() -> tuple[np.ndarray, np.ndarray]:
    """Return the parents (n,) of the nodes of a regular tree, level by level, and its distances (n, n) in edges."""
    n = (BRANCHES ** (DEPTH + 1) - 1) // (BRANCHES - 1)
    parents = (np.arange(n) - 1) // BRANCHES
    distances = np.zeros((n, n), dtype=np.int64)
    for node in range(1, n):
        distances[node, :node] = distances[:node, node] = distances[parents[node], :node] + 1
    return parents, distances


def walks(distances: np.ndarray) -> pd.DataFrame:
    """Return walks on the tree: the next node is drawn by exp(-1.5 x distance), and none is visited twice."""
    rng = np.random.default_rng(0)
    n = len(distances)
    likely = np.exp(-1.5 * distances)
    here = rng.integers(0, n, WALKS)
    free = np.ones((WALKS, n))
    rows = []
    for step in range(LENGTH):
        rows.append(pd.DataFrame({"user_id": np.arange(WALKS), "item_id": here, "timestamp": step}))
        free[np.arange(WALKS), here] = 0
        chances = np.cumsum(likely[here] * free, axis=1)
        here = (chances > rng.random((WALKS, 1)) * chances[:, -1:]).argmax(axis=1)
    frame = pd.concat(rows)
    return frame.assign(user_id="u" + frame.user_id.astype(str), item_id="n" + frame.item_id.astype(str))


def genres() -> Callable[[str, str], bool]:
    """Return whether two movies of ml-100k share a genre."""
    file = Path(recbole.__file__).parent / "dataset_example" / "ml-100k" / "ml-100k.item"
    table = pd.read_csv(file, sep="\t", dtype=str)
    of = dict(zip(table.iloc[:, 0], table.iloc[:, -1].fillna("").str.split(" ").map(set), strict=True))
    return lambda one, other: bool(of[one] & of[other])


def look(folder: Path, likeness: Callable[[str, str], float]) -> dict[str, float]:
    """Return the mean likeness to the target of the wrong items among the ten best, and what logQ does to the ranking.

    Over at most 2,000 test cases.
    """
    config, dataset, split = read_finished(folder, read_run(folder), data_set=False)
    model, _ = load_model(config, dataset, split)
    model.eval()
    cases, n_items = split.test[: min(2000, len(split.test))], split.store.n_items
    score = make_scorer(model, config)
    best = rank_cases(score, cases, n_items=n_items, k=10).top_items
    names = [str(token) for token in split.store.item_tokens]
    pairs = ((names[item], names[target]) for items, target in zip(best, cases.targets, strict=True) for item in items)
    figures = {"likeness": float(np.mean([likeness(item, target) for item, target in pairs if item != target]))}
    popularity = torch.from_numpy(np.log1p(split.store.counts(split.train_lengths))).float()
    for weight in LOGQ:
        less = rank_cases(lambda part, w=weight: score(part).cpu() - w * popularity, cases, n_items=n_items, k=10)
        figures[f"ndcg@10_logq{weight}"] = round(float(case_values("ndcg@10", less.ranks).mean()), 4)
        figures[f"coverage@10_logq{weight}"] = round(len(np.unique(less.top_items)) / (n_items - 1), 4)
    return figures


def figure(done: pd.DataFrame) -> None:
    """Draw NDCG@10 against the width on both data sets, and against the coverage on ml-100k; bars: standard error.

    The means over the seeds go to curvature_means.csv.
    """
    groups = done.groupby(["data", "d", "head"])
    metrics = ["curvature", "valid", "ndcg@10", "coverage@10", *LOGQ_COLUMNS, "same_genre", "tree_distance"]
    means = groups[metrics].mean().round(4)
    means.insert(0, "seeds", groups["seed"].nunique())
    means.to_csv(FILE.with_name("curvature_means.csv"))
    _, axes = plt.subplots(1, 3, figsize=(12.5, 3.8))
    movies = "MovieLens-100K (1998), axis cut"
    panels = [
        ("tree", "d", "walks on a tree (generated)"),
        ("ml-100k", "d", movies),
        ("ml-100k", "coverage@10", movies),
    ]
    for axis, (data, across, title) in zip(axes, panels, strict=True):
        for head, rows in done[done["data"] == data].groupby("head", sort=False):
            by = rows.groupby("d")
            x = by["coverage@10"].mean() if across != "d" else sorted(rows["d"].unique())
            axis.errorbar(
                x,
                by["ndcg@10"].mean(),
                by["ndcg@10"].sem(),
                marker="o",
                ms=4,
                capsize=2,
                color=COLORS[head],
                label=head,
            )
        axis.set(title=title, xlabel="width d" if across == "d" else "item coverage@10", ylabel="test NDCG@10")
        axis.set_xscale("log" if across == "d" else "linear")
        if across == "d":
            widths = sorted(done.loc[done["data"] == data, "d"].unique())
            axis.set_xticks(widths, widths)
            axis.minorticks_off()
    axes[0].legend(*axes[1].get_legend_handles_labels(), fontsize=7)  # ml-100k has all heads
    plt.tight_layout()
    FIGURE.parent.mkdir(exist_ok=True)
    plt.savefig(FIGURE, dpi=100, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=[*DATA, "figure"])
    parser.add_argument("--seeds", default="2020,2021,2022,2023,2024")
    parser.add_argument("--heads", default="", help="some of the heads, separated by ;")
    parser.add_argument("--widths", default="", help="some of the widths, separated by commas")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    done = pd.read_csv(FILE) if FILE.exists() else pd.DataFrame(columns=["data", "head", "d", "seed"])
    if given.data == "figure":
        figure(done)
        return
    if given.table:
        values = done[done["data"] == given.data].drop(columns=["data", "seed", "curvature"]).dropna(axis=1, how="all")
        print(values.groupby(["d", "head"]).agg(["mean", "std"]).round(4).to_string())
        return
    _, distances = tree()
    by_tree = given.data == "tree"
    likeness = (lambda one, other: distances[int(one[1:]), int(other[1:])]) if by_tree else genres()
    data = DATA[given.data]
    seeds = map(int, given.seeds.split(","))
    heads = given.heads.split(";") if given.heads else list(data["heads"])
    widths = map(int, given.widths.split(",")) if given.widths else data["widths"]
    for seed, d, head in itertools.product(seeds, widths, heads):
        keys = data["heads"][head]
        row = {"data": given.data, "head": head, "d": d, "seed": seed}
        if (done[list(row)] == pd.Series(row)).all(axis=1).any():
            continue
        with tempfile.TemporaryDirectory() as folder:
            settings = {
                **data["keys"],
                **keys,
                "hidden_size": d,
                "seed": seed,
                "output_dir": folder,
                "show_progress": False,
            }
            frame = {"interactions": walks(distances)} if by_tree else {}
            result = recbole_hyper.run("FMLPRecCE", given.data, config_dict=settings, **frame)
            seen = look(Path(folder), likeness)
        row |= {"curvature": result["curvature"] if "poincare" in head else None}
        row |= {"valid": result["valid"]["ndcg@10"], "ndcg@10": result["test"]["ndcg@10"]}
        row |= {"coverage@10": result["test"]["itemcoverage@10"]}
        like = round(seen.pop("likeness"), 4)
        row |= {"same_genre": None if by_tree else like, "tree_distance": like if by_tree else None, **seen}
        done = pd.concat([done, pd.DataFrame([row])], ignore_index=True)
        done.to_csv(FILE, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
