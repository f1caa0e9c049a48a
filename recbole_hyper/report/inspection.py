"""One finished run looked at: what was trained on what, its metrics and curves, and where its items lie."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from recbole_hyper.curvature.disk import delta_rel_of
from recbole_hyper.errors import ConfigError
from recbole_hyper.evaluation.results import metrics_table, table
from recbole_hyper.files import write_text
from recbole_hyper.geometry.poincare import Poincare
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.report.collect import Entry, protocol_text, run_entry
from recbole_hyper.report.figures import COLOURS, STYLE, curve_figure, save
from recbole_hyper.runs.folder import RESULT
from recbole_hyper.runs.load import load

FOLDER = "inspect"
# shares of the items, the most popular first
_EDGES = (0.0, 0.01, 0.05, 0.2, 0.5, 1.0)
_POINTS = 20_000  # most items that a figure draws
_POPULARITY = "share of the training interactions"


@dataclass(frozen=True)
class Ball:
    """The ball of a Poincare head: its curvature c, and so its radius 1 / sqrt(c)."""

    curvature: float

    def distance(self, norm: np.ndarray) -> np.ndarray:
        """Return how far exp_0(z) lies from the origin, for tangent vectors z of length ``norm``."""
        return 2 * norm

    def radius(self, norm: np.ndarray) -> np.ndarray:
        """Return |exp_0(z)| as a share of the radius of the ball, below 1."""
        return np.tanh(np.sqrt(self.curvature) * norm)


def inspect_run(folder: str | Path, output: str | Path | None = None, *, n_items: int = 5, k: int = 5) -> str:
    """Return tables that describe the finished run in ``folder``; figures and items.csv go to ``output`` or inspect/.

    The ``k`` neighbours of the ``n_items`` most popular items are shown. ConfigError and CheckpointError as of
    :func:`recbole_hyper.runs.load.load`.
    """
    folder, place = Path(folder), Path(output or Path(folder) / FOLDER)
    if not (folder / RESULT).is_file():
        raise ConfigError(f"{folder} holds no finished run: {RESULT} is missing")
    entry = run_entry(folder)
    result = entry.result
    found = load(folder)
    ball = ball_of(found.model)
    items = items_table(found, ball)
    title = f"{result['model']} on {result['dataset']}"
    figures = figures_of(entry, items, ball, title)
    texts = [facts(result, ball), metrics_table(result), groups_table(items), neighbours(found, items, n_items, k)]
    write_text(place / "items.csv", items.to_csv(index=False))
    files = [place / "items.csv", *(save(figure, place, name) for name, figure in figures.items())]
    return "\n\n".join([title, *filter(None, texts), "\n".join(map(str, files))])


def ball_of(model: Any) -> Ball | None:
    """Return the ball of a model with a Poincare head, None for any other."""
    if isinstance(model, HyperRecommender) and isinstance(model.head.geometry, Poincare):
        return Ball(model.head.curvature_value)
    return None


def items_table(found: Any, ball: Ball | None) -> pd.DataFrame:
    """Return a row per item, the most popular first: item_id, popularity, and what its vector says.

    Columns norm (where the model has item vectors), distance from the origin of the ball and radius as a share of the
    ball (Poincare heads).
    """
    items = pd.DataFrame({"item_id": found.item_ids, "popularity": found.popularity[1:]})
    try:
        norms = np.linalg.norm(found.item_vectors().to_numpy(), axis=1).astype(np.float64)
    except ConfigError:  # a model without item vectors
        norms = None
    if norms is not None:
        items["norm"] = norms
        if ball is not None:
            items["distance"], items["radius"] = ball.distance(norms), ball.radius(norms)
    return items.sort_values("popularity", ascending=False, kind="stable", ignore_index=True)


def facts(result: Mapping[str, Any], ball: Ball | None) -> str:
    """Return what was trained, on what, how long."""
    config, seconds = result["config"], result.get("seconds") or {}
    parts = ", ".join(str(config[key]) for key in ("encoder", "geometry", "loss_type") if config.get(key))
    counts = {name: result.get(name) for name in ("n_users", "n_items", "n_interactions")}
    lines = {
        "parts": parts,
        "data": ", ".join(f"{count:,} {name[2:]}" for name, count in counts.items() if count is not None),
        "protocol": protocol_text(dict(result)),
        "training": f"best epoch {result.get('best_epoch')} of {result.get('epochs')}, seed {result.get('seed')}, "
        f"{seconds.get('train', float('nan')):.1f} s",
        "parameters": f"{result['parameters']:,}" if result.get("parameters") is not None else "",
        "commit": str(result.get("commit") or ""),
    }
    if ball is not None:
        lines["curvature"] = (
            f"{ball.curvature:.4g}, {result.get('curvature_origin', 'given')}: a ball of radius "
            f"{ball.curvature**-0.5:.4g}; fits data of delta_rel {delta_rel_of(ball.curvature):.3f}"
        )
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines.items() if text)


def groups_table(items: pd.DataFrame) -> str:
    """Return norms, and distances, by popularity: groups of items, the most popular first."""
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


def neighbours(found: Any, items: pd.DataFrame, n_items: int, k: int) -> str:
    """Return the ``k`` items most alike to each of the ``n_items`` most popular; "" where likeness means nothing."""
    k = min(k, found.n_recommendable - 1)
    if k < 1:
        return ""
    try:
        alike = found.similar_items(items.item_id.head(n_items).tolist(), k=k)
    except ConfigError:
        return ""
    lists = alike.groupby("item_id", sort=False).similar_id.agg(", ".join)
    rows = [{"popular item": item, "nearest items": near} for item, near in lists.items()]
    return f"{table(rows)}\nlikeness: {alike.attrs['measure']}"


def figures_of(entry: Entry, items: pd.DataFrame, ball: Ball | None, title: str) -> dict[str, Figure]:
    """Return by file name the curves of training, and what the item vectors show."""
    figures = {"curves": curve_figure([entry], title)}
    if "norm" in items:
        figures["norms"] = norm_figure(items, title)
        if ball is not None:
            figures["ball"] = ball_figure(items, ball, title)
    return {name: figure for name, figure in figures.items() if figure is not None}


@mpl.rc_context(STYLE)
def norm_figure(items: pd.DataFrame, title: str) -> Figure:
    """Draw the norm of each item's vector against its popularity."""
    figure = Figure(figsize=(6.2, 3.8), layout="constrained")
    _against_popularity(figure.subplots(), items, "norm", "norm of the item vector")
    figure.suptitle(title, fontsize=11)
    return figure


@mpl.rc_context(STYLE)
def ball_figure(items: pd.DataFrame, ball: Ball, title: str) -> Figure:
    """Draw how far the items lie from the origin of the ball, against popularity and as a share of its radius."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    _against_popularity(left, items, "distance", "distance from the origin")
    right.hist(items["radius"], bins=60, color=COLOURS[0])
    right.set(xlabel=f"share of the ball's radius (c = {ball.curvature:.4g})", ylabel="items", xlim=(0, None))
    figure.suptitle(title, fontsize=11)
    return figure


def _against_popularity(axis: Any, items: pd.DataFrame, column: str, label: str) -> None:
    """Draw points, and the median of each doubling of popularity."""
    trained = items[items.popularity > 0]
    shown = trained.sample(min(len(trained), _POINTS), random_state=0)
    axis.scatter(shown.popularity, shown[column], s=6, alpha=0.3, color=COLOURS[0], linewidths=0, rasterized=True)
    doubling = np.floor(np.log2(trained.popularity))
    medians = trained.groupby(doubling)[[column, "popularity"]].median()
    axis.plot(medians.popularity, medians[column], color=COLOURS[1], marker="o", markersize=3, label="median")
    axis.set(xscale="log", xlabel=_POPULARITY, ylabel=label)
    axis.legend()
