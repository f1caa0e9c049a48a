"""Write the report on runs and sweeps: report.html, tables as CSV, markdown and LaTeX, and figures."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from recbole_hyper.errors import did_you_mean
from recbole_hyper.evaluation.compare import p_value_text
from recbole_hyper.evaluation.pairs import count_users
from recbole_hyper.evaluation.tables import Table, cell, is_metric
from recbole_hyper.files import write_text
from recbole_hyper.host.metrics import is_smaller_better
from recbole_hyper.report import figures
from recbole_hyper.report.collect import FINAL, RUN, TRIAL, Collection, Entry, ReportError, collect
from recbole_hyper.report.differences import in_words
from recbole_hyper.report.page import Page
from recbole_hyper.report.tables import (
    cost_table,
    environment_table,
    leaderboard,
    pareto,
    trial_table,
    warnings_of,
)
from recbole_hyper.sweep.trial import FINISHED

METRIC = "ndcg@10"
# leaderboard columns that are written once, above the table, if they are constant
_ONCE = ("selected by", "seeds", "epochs", "curvature", "over")
_UNITS = {"train seconds": "training,\u00a0s", "peak MiB": "peak memory,\u00a0MiB"}


class _Report(Page):
    """A report's page, and the folder of its tables and figures."""

    def __init__(self, title: str, subtitle: str, folder: Path) -> None:
        super().__init__(title, subtitle)
        self.folder = folder

    def draw(self, figure: Figure | None, caption: str, *name: object) -> None:
        """Save a figure and add it to the page; None adds nothing."""
        if figure is not None:
            self.figure(figures.save(figure, self.folder / "figures", _file_name(*name)), caption)


def _file_name(*words: object) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(map(str, words))).strip("-")


def build_report(folders: Sequence[str | Path], output: str | Path, metric: str = METRIC) -> Path:
    """Write a report on the runs and sweeps in and below ``folders`` to ``output``; return the path of report.html.

    ``metric`` is the validation metric of the cost figures. ReportError if there are no runs, or if no run has
    ``metric``.
    """
    collection = collect(folders)
    known = dict.fromkeys(name for entry in collection.entries for name in entry.result.get("valid") or {})
    # runs need not have the default metric
    if metric != METRIC and metric not in known:
        hint = did_you_mean(metric, list(known)) or f"; known: {', '.join(known) or 'none'}"
        raise ReportError(f"no run or trial here has the metric {metric!r} on validation{hint}")
    tested, sweeps, trials = collection.of(RUN, FINAL), collection.sweeps, collection.of(TRIAL)
    counts = f"{_count(tested, 'tested run')}, {_count(sweeps, 'sweep')} with {_count(trials, 'trial')}"
    page = _Report("Runs and sweeps", counts, Path(output))
    for problem in collection.problems:
        print(f"warning: {problem}", file=sys.stderr)
    page.notes(warnings_of(collection))
    _leaderboard(page, leaderboard(collection))
    _new_data(page, collection, metric)
    _costs(page, collection, metric)
    _parameters(page, collection)
    _curves(page, collection)
    _environment(page, collection)
    write_text(page.folder / "report.html", page.render())
    return page.folder / "report.html"


def _count(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _leaderboard(page: _Report, frame: pd.DataFrame) -> None:
    page.section(
        "Leaderboard",
        "Every tested configuration. Configurations were chosen on validation, and each seed was tested once. The "
        "settings column lists what differs between the rows of a model. Compare rows within one table only: they "
        "share data, split and candidates. Click a column to sort. leaderboard.csv has all cut-offs.",
    )
    if frame.empty:
        page.text("No run was tested: trials use validation only, and no sweep has finished.")
        return
    Table.of(frame).save(page.folder, "leaderboard")
    for (dataset, protocol), part in frame.groupby(["dataset", "protocol"], sort=False):
        page.heading(f"{dataset}: {protocol}")
        constant = [
            name
            for name in _ONCE
            if name in part and part[name].nunique() == 1 and (part[name].notna().all() or name == "over")
        ]
        labels = {"over": "p covers"}
        texts = [f"{labels.get(name, name)}: {cell(part[name].dropna().iloc[0])}" for name in constant]
        texts += ["\u00b1 is the standard deviation over seeds"] if part["seeds"].max() > 1 else []
        page.text("; ".join(texts).capitalize() + "." if texts else "", small=True)
        page.table(_board(part.drop(columns=constant), part["selected by"], part["seeds"]))


def _new_data(page: _Report, collection: Collection, metric: str) -> None:
    """Add the evaluations of finished runs on new data, over time."""
    models = {str(entry.folder): entry.model for entry in collection.of(RUN)}
    series, rows = {}, []
    for folder, results in collection.new_data.items():
        name = f"{models.get(str(folder), '')} ({folder.name})"
        if measured := [result for result in results if metric in result["test"]]:
            series[name] = measured
        for result in measured:
            counts, end = result["protocol_counts"], result["protocol_counts"]["until"]
            # the end is a Unix time, or a number in another unit
            until = str(pd.Timestamp(end, unit="s").floor("s")) if end > 1e6 else f"{end:g}"
            cases = {"cases": counts["test cases"], "of new users": counts["cases of new users"]}
            given = {"data": result.get("new_data", ""), "changes": in_words(result.get("changes", {}))}
            rows.append({"run": name, **given, "until": until, **result["test"], **cases})
    if not series:
        return
    page.section("New data", "Finished runs, evaluated on interactions from after their training ('evaluate --data').")
    table = Table.of(pd.DataFrame(rows))
    table.save(page.folder, "new_data")
    caption = f"{metric} over time, with the intervals that were computed."
    page.draw(figures.series_figure(series, metric, ""), caption, "new")
    page.table(table)


def _board(part: pd.DataFrame, selected_by: pd.Series, seeds: pd.Series) -> Table:
    """Return the table of comparable leaderboard rows, with the metrics at the cut-off of the selection metric."""
    selected = selected_by.unique()
    cut = str(selected[0]).rpartition("@")[2]
    metrics = [str(name) for name in part if is_metric(str(name))]
    shown = [name for name in metrics if "@" not in name or name.endswith(f"@{cut}")]
    # validation scores by different metrics have no common name and no common best
    one_metric = len(selected) == 1
    heads = {
        **_UNITS,
        "p_value": "p",
        "over": "p covers",
        "valid": f"valid {selected[0]}" if one_metric else "valid score",
    }
    heads |= {name: f"test {name}" for name in shown}
    dropped = {"dataset", "protocol", "folder", *metrics} - set(shown)
    first = ["model", "settings", "epochs", "selected by", "valid", *shown, "p_value", "over"]
    usual = Table.of(part)
    columns = [name for name in usual.columns if name not in dropped]
    columns.sort(key=lambda name: first.index(name) if name in first else len(first))
    smaller = [name for name in shown if is_smaller_better(name)]
    smaller += ["valid"] if one_metric and is_smaller_better(str(selected[0])) else []
    users = count_users(Path(part["folder"].iloc[0]))
    note = p_value_text(str(selected[0]), several=bool(seeds.min() > 1), users=users) if "p_value" in part else ""
    return Table(
        usual.rows, columns, best=[*shown, "valid", *_UNITS], smaller=[*smaller, *_UNITS], heads=heads,
        forms={"p_value": "p", "train seconds": ",.1f", "peak MiB": ",.0f"}, note=note,
    )  # fmt: skip


def _costs(page: _Report, collection: Collection, metric: str) -> None:
    costs = cost_table(collection, metric)
    page.section(
        "Quality against cost",
        f"Validation {metric} of every finished trial and run against its peak memory and training time. Memory is "
        "the process's resident set on a CPU (Python and libraries included), and the allocator's peak on a GPU.",
    )
    if costs.empty:
        page.text(f"No finished trial or run has a validation {metric}.")
        return
    Table.of(costs).save(page.folder, "costs")
    fronts = []
    for number, ((dataset, protocol), part) in enumerate(costs.groupby(["dataset", "protocol"])):
        if len(part) > 1:
            figure = figures.cost_figure(part, metric, f"{dataset}: {protocol}")
            has_line = any(np.size(line.get_xdata()) > 1 for axis in figure.axes for line in axis.lines)
            caption = "Each point is a trial or a run." + (" A line is a model's Pareto front." if has_line else "")
            page.draw(figure, caption, "pareto", dataset, number)
        fronts += [pareto(part, cost, metric).assign(front=cost) for cost in ("peak MiB", "train seconds")]
    front = pd.concat(fronts, ignore_index=True)
    Table.of(front).save(page.folder, "pareto")


def _parameters(page: _Report, collection: Collection) -> None:
    table = trial_table(collection)
    if table.empty:
        return
    page.section(
        "Hyper-parameters",
        "Validation score of every finished trial. A line joins trials that differ only in this key.",
    )
    Table.of(table).save(page.folder, "trials")
    for sweep in collection.sweeps:
        counts = ", ".join(f"{count} {status}" for status, count in sweep.outcome.get("trials", {}).items())
        page.heading(f"{sweep.request.get('model')} on {sweep.request.get('dataset')} ({sweep.folder.name})")
        page.text(f"Trials: {counts or 'the sweep is not finished'}.")
        page.draw(figures.parameter_figure(sweep), "Validation score by setting.", "parameters", sweep.folder.name)
        part = table[table["sweep"] == sweep.folder.name].drop(columns=["sweep", "model"])
        part = part.sort_values("score", ascending=not sweep.bigger, kind="stable").dropna(axis="columns", how="all")
        shown = Table.of(part, best=["score"], smaller=[] if sweep.bigger else ["score"])
        page.table(shown, folded=f"All {len(part)} trials")


def _curves(page: _Report, collection: Collection) -> None:
    groups: dict[str, list[Entry]] = {}
    for entry in collection.of(RUN, FINAL):
        groups.setdefault(entry.model, []).append(entry)
    # models with one run each share a figure
    single = [entries[0] for entries in groups.values() if len(entries) == 1]
    by_title = {"one run per model" if len(single) > 1 else single[0].model: single} if single else {}
    by_title |= {model: entries for model, entries in groups.items() if len(entries) > 1}
    for sweep in collection.sweeps:
        done = [entry for entry in sweep.trials if entry.status == FINISHED and entry.score is not None]
        by_title[sweep.folder.name] = sorted(done, key=lambda entry: float(entry.score or 0.0), reverse=sweep.bigger)
    curves = {title: figures.curve_figure(entries, title) for title, entries in by_title.items()}
    if any(curves.values()):
        page.section("Training curves", "At most six in each figure. The loss is the mean over the steps of an epoch.")
    for title, figure in curves.items():
        page.draw(figure, f"{title}: training loss and validation by epoch.", "curves", title)


def _environment(page: _Report, collection: Collection) -> None:
    frame = environment_table(collection)
    page.section(
        "Environment", "Versions, commit and data of the runs. Equal fingerprints mean equal data in the same order."
    )
    Table.of(frame).save(page.folder, "environment")
    versions = list(frame)[list(frame).index("commit") + 1 :]
    equal = [name for name in versions if frame[name].map(str).nunique() == 1 and frame[name].notna().all()]
    page.text(", ".join(f"{name} {frame[name].iloc[0]}" for name in equal), small=True)
    short = frame["data fingerprint"].map(lambda text: str(text)[:12])
    page.table(Table.of(frame.assign(**{"data fingerprint": short}).drop(columns=equal)))
