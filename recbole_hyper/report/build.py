"""Write the report on runs and sweeps: report.html, tables as CSV, markdown and LaTeX, and figures."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from recbole_hyper.evaluation.compare import p_value_text
from recbole_hyper.evaluation.pairs import count_users
from recbole_hyper.evaluation.tables import Table, is_metric
from recbole_hyper.files import require_free, write_text
from recbole_hyper.host.metrics import is_smaller_better
from recbole_hyper.report import figures
from recbole_hyper.report.collect import FINAL, RUN, TRIAL, Collection, Entry, collect
from recbole_hyper.report.page import Page
from recbole_hyper.report.tables import leaderboard, trial_table, warnings_of
from recbole_hyper.sweep.trial import FINISHED

_UNITS = {"train seconds": "training,\u00a0s", "peak MiB": "peak memory,\u00a0MiB"}
_FORMS = {"p_value": "p", "train seconds": ",.1f", "peak MiB": ",.0f"}
_TITLE = "Runs and sweeps"


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


def build_report(folders: Sequence[str | Path], output: str | Path) -> Path:
    """Write a report on the runs and sweeps in and below ``folders`` to ``output``; return the path of report.html.

    ReportError if there are no runs; ConfigError if other files there would be overwritten.
    """
    collection = collect(folders)
    tested, sweeps, trials = collection.of(RUN, FINAL), collection.sweeps, collection.of(TRIAL)
    counts = f"{_count(tested, 'tested run')}, {_count(sweeps, 'sweep')} with {_count(trials, 'trial')}"
    page, file = _Report(_TITLE, counts, Path(output)), Path(output) / "report.html"
    if not (file.is_file() and _TITLE in file.read_text(encoding="utf-8", errors="replace")):
        require_free(page.folder, ("report.html", "leaderboard.csv", "trials.csv"), "a report", "--output")
    for problem in collection.problems:
        print(f"warning: {problem}", file=sys.stderr)
    page.notes(warnings_of(collection))
    _leaderboard(page, leaderboard(collection))
    _parameters(page, collection)
    _curves(page, collection)
    write_text(file, page.render())
    return file


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
        page.table(_board(part))


def _board(part: pd.DataFrame) -> Table:
    """Return the table of comparable leaderboard rows, with the metrics at the cut-off of the selection metric."""
    selected = [str(name) for name in part["selected by"].unique()]
    cut = selected[0].rpartition("@")[2]
    metrics = [str(name) for name in part if is_metric(str(name))]
    shown = [name for name in metrics if "@" not in name or name.endswith(f"@{cut}")]
    # validation scores by different metrics have no common name and no common best
    one_metric = len(selected) == 1
    valid = {"valid": f"valid {selected[0]}"} if one_metric else {}
    heads = {**_UNITS, "p_value": "p", "over": "p covers", **{name: f"test {name}" for name in shown}, **valid}
    first = ["model", "settings", "epochs", "selected by", "valid", *shown, "p_value", "over"]
    usual, dropped = Table.of(part), {"dataset", "protocol", "folder", *metrics} - set(shown)
    columns = [name for name in usual.columns if name not in dropped]
    columns.sort(key=lambda name: first.index(name) if name in first else len(first))
    smaller = [name for name in shown if is_smaller_better(name)]
    smaller += ["valid"] if one_metric and is_smaller_better(selected[0]) else []
    note = ""
    if "p_value" in part:
        users = count_users(Path(part["folder"].iloc[0]))
        note = p_value_text(selected[0], several=bool(part["seeds"].min() > 1), users=users)
    best = [*shown, *valid, *_UNITS]
    return Table(usual.rows, columns, best=best, smaller=[*smaller, *_UNITS], heads=heads, forms=_FORMS, note=note)


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
        page.heading(f"{sweep.request.get('model')} on {sweep.request.get('dataset')} ({sweep.folder.name})")
        page.draw(figures.parameter_figure(sweep), "Validation score by setting.", "parameters", sweep.folder.name)
        part = table[table["sweep"] == sweep.folder.name].drop(columns=["sweep", "model"])
        part = part.sort_values("score", ascending=not sweep.bigger, kind="stable").dropna(axis="columns", how="all")
        shown = Table.of(part, best=["score"], smaller=[] if sweep.bigger else ["score"])
        page.table(shown, folded=f"All {len(part)} trials")


def _curves(page: _Report, collection: Collection) -> None:
    by_title: dict[str, list[Entry]] = {}
    for entry in collection.of(RUN, FINAL):
        by_title.setdefault(entry.model, []).append(entry)
    for sweep in collection.sweeps:
        done = [entry for entry in sweep.trials if entry.status == FINISHED and entry.score is not None]
        by_title[sweep.folder.name] = sorted(done, key=lambda entry: float(entry.score or 0.0), reverse=sweep.bigger)
    curves = {title: figures.curve_figure(entries, title) for title, entries in by_title.items()}
    if any(curves.values()):
        page.section("Training curves", "At most six in each figure. The loss is the mean over the steps of an epoch.")
    for title, figure in curves.items():
        page.draw(figure, f"{title}: training loss and validation by epoch.", "curves", title)
