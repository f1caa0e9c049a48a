"""The leaderboard as a page shows it: one table for what can be compared, as narrow as what is said once allows."""

from typing import Any

import pandas as pd

from recbole_hyper.report.collect import FINAL, RUN, Collection, departures
from recbole_hyper.report.page import Page

# columns that are constant are said above the table, in these words
_ONCE = {
    "selected by": "selected by {}",
    "seeds": "seeds of each row: {}",
    "epochs": "epochs of each: {}",
    "curvature": "curvature: {:.4g}",
}
_UNITS = {"train seconds": "training,\u00a0s", "peak MiB": "peak memory,\u00a0MiB"}


def show_board(page: Page, frame: pd.DataFrame, found: Collection) -> None:
    """Add the tables of a leaderboard to a page, by data and protocol.

    A table has the metrics at one cut-off, that of the metric that selected; of settings it has what departs from the
    usual ones, which stand below it.
    """
    own, usual = departures([entry for entry in found.of(RUN, FINAL) if entry.result.get("test")])
    for (dataset, protocol), part in frame.groupby(["dataset", "protocol"], sort=False):
        page.heading(f"{dataset}: {protocol}")
        page.small(_said_once(part))
        shown = _columns(part.assign(settings=part["folder"].map(own)))
        tested = [str(name) for name in shown if str(name).startswith("test ") and not str(name).endswith(" std")]
        valid = [str(name) for name in shown if str(name).startswith("valid ")]
        page.table(shown, best=[*valid, *tested], smaller=list(_UNITS.values()))
        for model, rows in part.groupby("model", sort=False):
            common = dict.fromkeys(usual.get(str(folder), "") for folder in rows["folder"])
            page.small("".join(f"Usual settings of {model}: {text}." for text in common if text))


def _said_once(part: pd.DataFrame) -> str:
    texts = [_ONCE[name].format(part[name].iloc[0]) for name in _once(part)]
    deviation = ["\u00b1 is the standard deviation over seeds"] if part["seeds"].max() > 1 else []
    return "; ".join([*texts, *deviation]).capitalize() + "." if texts or deviation else ""


def _once(part: pd.DataFrame) -> list[str]:
    return [name for name in _ONCE if part[name].nunique(dropna=False) == 1 and part[name].notna().all()]


def _columns(part: pd.DataFrame) -> pd.DataFrame:
    """Return what a table of the page has of the rows ``part`` of a leaderboard, under the heads that it has there."""
    selected = part["selected by"].unique()
    cut = str(selected[0]).rpartition("@")[2]
    names: dict[str, Any] = dict(_UNITS)
    # validation scores of different metrics cannot be compared
    names["valid"] = f"valid {selected[0]}" if len(selected) == 1 else "valid score"
    dropped = ["dataset", "protocol", "folder", *_once(part)]
    for name in map(str, part):
        metric = name.removesuffix(" std")
        if "@" in metric or metric == "gauc":  # the one metric without a cut-off
            names[name] = f"test {name}"
            dropped += [name] if "@" in metric and not metric.endswith(f"@{cut}") else []
    shown = part.drop(columns=dropped).rename(columns=names)
    # metrics that some rows lack stand at the end of a leaderboard
    tested = [name for name in shown if str(name).startswith("test ")]
    first = [name for name in ("model", "settings", "epochs", "selected by", names["valid"]) if name in shown]
    return shown[[*first, *tested, *(name for name in shown if name not in {*first, *tested})]]
