"""Describe one finished run: model, data, metrics and curves, and the norms of its item vectors."""

import contextlib
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from recbole_hyper.curvature.disk import delta_rel_of
from recbole_hyper.errors import ConfigError
from recbole_hyper.evaluation.results import epochs_text, metrics_table, protocol_text
from recbole_hyper.evaluation.tables import table
from recbole_hyper.files import write_text
from recbole_hyper.geometry.poincare import Poincare
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.report.collect import run_entry
from recbole_hyper.report.figures import COLOURS, STYLE, canvas, curve_figure, save
from recbole_hyper.runs.folder import require_finished
from recbole_hyper.runs.load import load

FOLDER = "inspect"
# groups of items by popularity: these shares of them, the most popular first
_EDGES = (0.0, 0.01, 0.05, 0.2, 0.5, 1.0)
_POINTS = 20_000  # most items that a figure shows


def inspect_run(folder: str | Path, output: str | Path | None = None, *, n_items: int = 5, k: int = 5) -> str:
    """Return tables that describe the finished run in ``folder``; write figures and items.csv.

    The files go to ``output``, by default to inspect/ in the folder. The tables show the ``k`` nearest items of the
    ``n_items`` most popular ones. Raises like :func:`recbole_hyper.runs.load.load`.
    """
    folder = Path(folder)
    output = Path(output or folder / FOLDER)
    require_finished(folder)
    entry = run_entry(folder)
    result = entry.result
    recommender = load(folder)
    head = recommender.model.head if isinstance(recommender.model, HyperRecommender) else None
    # only the Poincare ball of radius 1 / sqrt(c) has a distance from the origin
    curvature = head.curvature if head is not None and isinstance(head.geometry, Poincare) else None
    items = items_table(recommender, curvature)
    title = f"{result['model']} on {result['dataset']}"
    figures = {"curves": curve_figure([entry], title), **item_figures(items, curvature, title)}
    texts = [
        facts(result, curvature),
        metrics_table(result),
        groups_table(items),
        neighbours(recommender, items, n_items, k),
    ]
    write_text(output / "items.csv", items.to_csv(index=False))
    files = [output / "items.csv", *(save(figure, output, name) for name, figure in figures.items() if figure)]
    return "\n\n".join([title, *filter(None, texts), "\n".join(map(str, files))])


def items_table(recommender: Any, curvature: float | None) -> pd.DataFrame:
    """Return a row per item, the most popular first: item_id and popularity.

    If the model has item vectors, column norm is their length. With the ``curvature`` of a ball, there are the columns
    of :func:`in_ball` too.
    """
    items = pd.DataFrame({"item_id": recommender.item_ids, "popularity": recommender.popularity[1:]})
    with contextlib.suppress(ConfigError):  # raised by a model without item vectors
        items["norm"] = np.linalg.norm(recommender.item_vectors().to_numpy(), axis=1).astype(np.float64)
        if curvature is not None:
            items = items.assign(**in_ball(items["norm"], curvature))
    return items.sort_values("popularity", ascending=False, kind="stable", ignore_index=True)


def in_ball(norm: Any, curvature: float) -> dict[str, Any]:
    """Return where exp_0(z) is, for tangent vectors z of length ``norm``.

    ``distance`` is its distance from the origin of the ball, ``radius`` its length as a share of the ball's radius.
    """
    return {"distance": 2 * norm, "radius": np.tanh(np.sqrt(curvature) * norm)}


def facts(result: Mapping[str, Any], curvature: float | None) -> str:
    """Return what was trained, on which data, and for how long."""
    config, seconds = result["config"], result.get("seconds") or {}
    parts = ", ".join(str(config[key]) for key in ("encoder", "geometry", "loss_type") if config.get(key))
    counts = {name: result.get(name) for name in ("n_users", "n_items", "n_interactions")}
    lines = {
        "parts": parts,
        "data": ", ".join(f"{count:,} {name[2:]}" for name, count in counts.items() if count is not None),
        "protocol": protocol_text(dict(result)),
        "training": f"{epochs_text(result)}, seed {result.get('seed')}, {seconds.get('train', float('nan')):.1f} s",
        "parameters": f"{result['parameters']:,}" if result.get("parameters") is not None else "",
        "commit": str(result.get("commit") or ""),
    }
    if curvature is not None:
        lines["curvature"] = (
            f"{curvature:.4g}, {result.get('curvature_origin', 'given')}: a ball of radius {curvature**-0.5:.4g}; "
            f"fits data of delta_rel {delta_rel_of(curvature):.3f}"
        )
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines.items() if text)


def groups_table(items: pd.DataFrame) -> str:
    """Return mean and deviation of norm, distance and radius in groups of items, the most popular first."""
    edges = np.unique(np.ceil(np.array(_EDGES) * len(items)).astype(int))
    rows = []
    for first, last in itertools.pairwise(edges.tolist()):
        part = items.iloc[first:last]
        row: dict[str, Any] = {"items by popularity": f"{first + 1:,} to {last:,}"}
        row["interactions"] = f"{part.popularity.sum():.1%}"
        for name in ("norm", "distance", "radius"):
            if name in part:
                row |= {name: float(part[name].mean()), f"{name} sd": float(part[name].std(ddof=0))}
        rows.append(row)
    text = table(rows)
    if "norm" in items and items.popularity.nunique() > 1 and items.norm.nunique() > 1:
        rank = items.popularity.corr(items.norm, method="spearman")
        text += f"\nrank correlation of norm and popularity: {rank:.3f}"
    return text


def neighbours(recommender: Any, items: pd.DataFrame, n_items: int, k: int) -> str:
    """Return the ``k`` nearest items of the ``n_items`` most popular ones; "" for a model without a similarity."""
    k = min(k, recommender.n_recommendable - 1)
    if k < 1:
        return ""
    try:
        similar = recommender.similar_items(items.item_id.head(n_items).tolist(), k=k)
    except ConfigError:
        return ""
    lists = similar.groupby("item_id", sort=False).similar_id.agg(", ".join)
    rows = [{"popular item": item, "nearest items": near} for item, near in lists.items()]
    return f"{table(rows)}\nsimilarity: {similar.attrs['measure']}"


@mpl.rc_context(STYLE)
def item_figures(items: pd.DataFrame, curvature: float | None, title: str) -> dict[str, Figure]:
    """Plot the norms of item vectors against popularity and, in a ball, the distance of items from the origin."""
    figures = {}
    if "norm" in items:
        figures["norms"], axis = canvas(6.2, 3.8, title)
        _against_popularity(axis, items, "norm", "norm of the item vector")
    if "radius" in items:
        figures["ball"], (left, right) = canvas(10, 3.8, title, columns=2)
        _against_popularity(left, items, "distance", "distance from the origin")
        right.hist(items["radius"], bins=60, color=COLOURS[0])
        right.set(xlabel=f"share of the ball's radius (c = {curvature:.4g})", ylabel="items", xlim=(0, None))
    return figures


def _against_popularity(axis: Any, items: pd.DataFrame, column: str, label: str) -> None:
    """Plot items as points, and their median for each doubling of popularity."""
    trained = items[items.popularity > 0]
    shown = trained.sample(min(len(trained), _POINTS), random_state=0)
    axis.scatter(shown.popularity, shown[column], s=6, alpha=0.3, color=COLOURS[0], linewidths=0, rasterized=True)
    doubling = np.floor(np.log2(trained.popularity))
    medians = trained.groupby(doubling)[[column, "popularity"]].median()
    axis.plot(medians.popularity, medians[column], color=COLOURS[1], marker="o", markersize=3, label="median")
    axis.set(xscale="log", xlabel="share of the training interactions", ylabel=label)
    axis.legend()
