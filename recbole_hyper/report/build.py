"""Write the report over runs and sweeps: report.html, csv and markdown tables, figures."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from recbole_hyper.evaluation.compare import is_metric, is_smaller_better
from recbole_hyper.files import write_text
from recbole_hyper.report.collect import FIGURES, FINAL, PAGE, RUN, TRIAL, Collection, collect
from recbole_hyper.report.figures import (
    cost_figure,
    curvature_figure,
    curve_figure,
    parameter_figure,
    save,
    size_figure,
)
from recbole_hyper.report.labels import departures
from recbole_hyper.report.page import Page, markdown
from recbole_hyper.report.tables import (
    cost_table,
    embedding_sizes,
    environment_table,
    leaderboard,
    pareto,
    trial_table,
    warnings_of,
)
from recbole_hyper.sweep.trial import FINISHED

METRIC = "ndcg@10"
# columns of a leaderboard that are said above its table, in these words, where they are constant
_ONCE = {
    "selected by": "selected by {}",
    "seeds": "seeds of each row: {}",
    "epochs": "epochs of each: {}",
    "curvature": "curvature: {:.4g}",
}
_UNITS = {"train seconds": "training,\u00a0s", "peak MiB": "peak memory,\u00a0MiB"}


class _Report(Page):
    """The page of a report, and the folder with its tables and figures."""

    def __init__(self, title: str, subtitle: str, folder: Path) -> None:
        super().__init__(title, subtitle)
        self.folder = folder

    def write(self, frame: pd.DataFrame, name: str) -> None:
        """Write a table as csv and markdown."""
        write_text(self.folder / f"{name}.csv", frame.to_csv(index=False))
        write_text(self.folder / f"{name}.md", markdown(frame))

    def draw(self, figure: Figure | None, caption: str, *name: object) -> None:
        """Write a figure to the folder and add it to the page; nothing for None."""
        if figure is not None:
            file = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(map(str, name))).strip("-")
            self.figure(save(figure, self.folder / FIGURES, file), caption)


def build_report(folders: Sequence[str | Path], output: str | Path, metric: str = METRIC) -> Path:
    """Write a report over the runs and sweeps in and below ``folders`` into ``output``; return the path of report.html.

    ``metric`` is the validation metric of the cost and size figures. ReportError where there is nothing to report on.
    """
    found = collect(folders)
    target = Path(output)
    counts = (
        f"{_count(found.of(RUN, FINAL), 'tested run')}, {_count(found.sweeps, 'sweep')} with "
        f"{_count(found.of(TRIAL), 'trial')}"
    )
    page = _Report("Runs and sweeps", counts, target)
    for problem in found.problems:
        print(f"warning: {problem}", file=sys.stderr)
    page.notes(warnings_of(found))
    _leaderboard(page, found)
    _costs(page, found, metric)
    _parameters(page, found)
    _curves(page, found)
    _curvature(page, found)
    _environment(page, found)
    write_text(target / PAGE, page.render())
    return target / PAGE


def _count(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _leaderboard(page: _Report, found: Collection) -> None:
    page.section(
        "Leaderboard",
        "Every configuration that was tested. Configurations were chosen on validation; test was evaluated once for "
        "each seed. Settings are those that tell the rows of a model apart, 'epochs' is what was trained. Rows of "
        "different data, splits or candidates cannot be compared. A click on a head sorts. All cut-offs: "
        "leaderboard.csv.",
    )
    frame = leaderboard(found)
    if frame.empty:
        page.text("No run here was tested: trials see validation only, and no sweep has ended.")
        return
    page.write(frame, "leaderboard")
    own, usual = departures([entry for entry in found.of(RUN, FINAL) if entry.result.get("test")])
    for (dataset, protocol), part in frame.groupby(["dataset", "protocol"], sort=False):
        page.heading(f"{dataset}: {protocol}")
        once = [name for name in _ONCE if part[name].nunique(dropna=False) == 1 and part[name].notna().all()]
        texts = [_ONCE[name].format(part[name].iloc[0]) for name in once]
        texts += ["\u00b1 is the standard deviation over seeds"] if part["seeds"].max() > 1 else []
        page.small("; ".join(texts).capitalize() + "." if texts else "")
        shown = _board_columns(part.assign(settings=part["folder"].map(own)).drop(columns=once), part["selected by"])
        tested = [str(name) for name in shown if str(name).startswith("test ") and not str(name).endswith(" std")]
        valid = [str(name) for name in shown if str(name).startswith("valid ")]
        smaller = [name for name in (*valid, *tested) if is_smaller_better(name.split()[-1].lower())]
        page.table(shown, best=[*valid, *tested], smaller=[*smaller, *_UNITS.values()])
        for model, rows in part.groupby("model", sort=False):
            common = dict.fromkeys(usual.get(str(folder), "") for folder in rows["folder"])
            page.small("".join(f"Usual settings of {model}: {text}." for text in common if text))


def _board_columns(part: pd.DataFrame, selected_by: pd.Series) -> pd.DataFrame:
    """Return what a table of the page has of rows of a leaderboard, under the heads that it has there.

    Of the metrics it has those at one cut-off, that of the metric that selected.
    """
    selected = selected_by.unique()
    cut = str(selected[0]).rpartition("@")[2]
    names: dict[str, Any] = dict(_UNITS)
    # validation scores of different metrics cannot be compared
    names["valid"] = f"valid {selected[0]}" if len(selected) == 1 else "valid score"
    dropped = ["dataset", "protocol", "folder"]
    for name in map(str, part):
        metric = name.removesuffix(" std")
        if is_metric(metric):
            names[name] = f"test {name}"
            dropped += [name] if "@" in metric and not metric.endswith(f"@{cut}") else []
    shown = part.drop(columns=dropped).rename(columns=names)
    # metrics that some rows lack stand at the end of a leaderboard
    tested = [name for name in shown if str(name).startswith("test ")]
    first = [name for name in ("model", "settings", "epochs", "selected by", names["valid"]) if name in shown]
    return shown[list(dict.fromkeys([*first, *tested, *shown]))]


def _costs(page: _Report, found: Collection, metric: str) -> None:
    costs = cost_table(found, metric)
    page.section(
        "Quality against cost",
        f"Validation {metric} of every finished trial and run against the peak memory and the time of its training. "
        "Memory is that of the process (on a CPU its resident set, python and libraries included; on a GPU the "
        "allocator's peak).",
    )
    if costs.empty:
        page.text(f"No finished trial or run has a validation {metric}.")
        return
    page.write(costs, "costs")
    caption = "A point is a trial or a run; a line joins the points of a model that no other of its points beats."
    fronts = []
    for number, ((dataset, protocol), part) in enumerate(costs.groupby(["dataset", "protocol"])):
        if len(part) > 1:
            page.draw(cost_figure(part, metric, f"{dataset}: {protocol}"), caption, "pareto", dataset, number)
        fronts += [pareto(part, cost, metric).assign(front=cost) for cost in ("peak MiB", "train seconds")]
    front = pd.concat(fronts, ignore_index=True)
    page.write(front, "pareto")
    columns = ["front", "dataset", "model", metric, "peak MiB", "train seconds", "epochs", "settings"]
    page.table(front[columns], folded="The fronts over all models as a table")
    sizes = embedding_sizes(costs, metric)
    if sizes.empty:
        return
    page.section(
        "Embedding size",
        "A curve joins runs that differ in the embedding size alone, their seeds averaged; what sets the curves of "
        "a model apart is named. Each has its own optimum.",
    )
    page.write(sizes, "embedding_size")
    for number, ((dataset, protocol), part) in enumerate(sizes.groupby(["dataset", "protocol"])):
        figure = size_figure(part, f"valid {metric}", f"{dataset}: {protocol}")
        page.draw(figure, "The ring marks the optimum of a curve.", "embedding_size", dataset, number)
    page.table(sizes[sizes["optimum"]].drop(columns=["optimum", "protocol"]))


def _parameters(page: _Report, found: Collection) -> None:
    table = trial_table(found)
    if table.empty:
        return
    page.section(
        "Hyper-parameters",
        "Validation score of every finished trial; a line joins trials that differ in this key alone.",
    )
    page.write(table, "trials")
    for sweep in found.sweeps:
        counts = ", ".join(f"{count} {status}" for status, count in sweep.outcome.get("trials", {}).items())
        page.heading(f"{sweep.asked.get('model')} on {sweep.asked.get('dataset')} ({sweep.folder.name})")
        page.text(f"Trials: {counts or 'the sweep is not finished'}.")
        page.draw(parameter_figure(sweep), "Validation score by setting.", "parameters", sweep.folder.name)
        part = table[table["sweep"] == sweep.folder.name].drop(columns=["sweep", "model"])
        part = part.sort_values("score", ascending=not sweep.bigger, kind="stable").dropna(axis="columns", how="all")
        page.table(part, best=["score"] if sweep.bigger else [], folded=f"All {len(part)} trials")


def _curves(page: _Report, found: Collection) -> None:
    tested = [entry for entry in found.of(RUN, FINAL) if entry.history]
    drawn = [("Tested runs", "runs", curve_figure(tested, "Tested runs"))]
    for sweep in found.sweeps:
        own = [entry for entry in sweep.trials if entry.status == FINISHED and entry.score is not None]
        best = sorted(own, key=lambda entry: float(entry.score or 0.0), reverse=sweep.bigger)
        title = f"Best trials of {sweep.folder.name}"
        drawn.append((title, sweep.folder.name, curve_figure(best, title)))
    if any(figure for *_, figure in drawn):
        page.section("Training curves", "At most six of each. The loss is the mean over the steps of an epoch.")
    for title, name, figure in drawn:
        page.draw(figure, f"{title}: training loss and validation by epoch.", "curves", name)


def _curvature(page: _Report, found: Collection) -> None:
    curved = [
        entry.result for entry in found.entries if entry.result.get("curvature") and "curvature_origin" in entry.result
    ]
    figure = curvature_figure(found.of(RUN, FINAL))
    if not curved and figure is None and not found.images:
        return
    page.section("Curvature")
    keys = {"dataset": "dataset", "model": "model", "curvature c": "curvature", "origin": "curvature_origin"}
    rows = {}
    for result in curved:
        interval = result.get("curvature_interval")
        text = None if interval is None else f"{interval[0]:.4g} to {interval[1]:.4g}"
        rows[tuple(result[key] for key in keys.values())] = (text, result.get("curvature_verdict"))
    if rows:
        lines = [(*key, *rest) for key, rest in sorted(rows.items(), key=str)]
        page.table(pd.DataFrame(lines, columns=[*keys, "interval", "note"]))
    page.draw(figure, "Learned curvature by epoch.", "curvature")
    for path in found.images:
        page.figure(path, path.name)


def _environment(page: _Report, found: Collection) -> None:
    frame = environment_table(found)
    page.section("Environment", "What the runs were made with; a fingerprint stands for the data in their exact order.")
    page.write(frame, "environment")
    versions = list(frame)[list(frame).index("commit") + 1 :]
    alike = [name for name in versions if frame[name].map(str).nunique() == 1 and frame[name].notna().all()]
    page.small(", ".join(f"{name} {frame[name].iloc[0]}" for name in alike))
    prints = frame["data fingerprint"].map(lambda text: str(text)[:12])
    page.table(frame.assign(**{"data fingerprint": prints}).drop(columns=alike))
