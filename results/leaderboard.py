"""Write docs/leaderboard.md, -other.md and -time.md from runs.csv: python results/leaderboard.py.

A section is a data set with a split and a way of ranking; a row is a model. Of the settings of a model that have runs
in a section, the one with the best validation is shown, with all its seeds. The default model is shown with no setting
changed. Published rows come from published.yaml.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.append(str(HERE))
from claims import APART, DEFAULT, TABLE, published  # noqa: E402
from table import Run, figure_text, mean, runs, short  # noqa: E402

from recbole_hyper.evaluation.tables import Table  # noqa: E402

DOCS = HERE.parent / "docs"
METRIC = "ndcg@10"
LEAVE_ONE_OUT = "leave-one-out, all items ranked"
# data sets with published rows
WITH_PUBLISHED = TABLE | APART
TITLES = WITH_PUBLISHED | {
    "amazon-beauty": "Amazon Beauty by time",
    "amazon-sports": "Amazon Sports by time",
    "ml-100k": "MovieLens-100K",
    "ml-1m-1000-users": "MovieLens-1M, 1,000 users",
    "ml-1m-1000-items": "MovieLens-1M, the 1,000 most popular items",
    "ml-1m-newest-half": "MovieLens-1M, the newest half",
    "instruments-2018": "Amazon Instruments 2018",
    "games-2018": "Amazon Games 2018",
    "tmall": "Tmall",
    "diginetica": "Diginetica",
}
ABOUT = """\
# Leaderboard: {title}

<!-- written by results/leaderboard.py -->

Every model that has runs in `results/runs.csv`, on three pages:
{pages}.

The test figures are means over the seeds with the standard deviation, or for one seed with the 95 % interval over
users, where the run computed it. Sources and cautions of the published rows are in `results/published.yaml`.

**Repeat a row**: `python results/table.py RUN`, with the row's last cell, prints the command of the row, and
`python results/table.py RUN | sh` runs it.

- **Setting**: {default} has no setting changed, where such runs exist. Of the settings of any other model, the one with
  the best validation is shown.
- **\\***: fits 596 numbers of a reranker to validation targets; without it in another row. **\\*\\***: trains on them.
- **note**: `refit`: trained again on training and validation before the test, so compare it with refits only. `newest`,
  `random`: the windows of a history that are trained, where these are not all. `seen ranked`: items of the history too.
- **min**: minutes of training, mostly on one thread of a machine with other work: a rough guide.

To add a row, run the model with `--seeds=2020,2021,2022 --output_dir=RUNS/NAME`, then `python results/collect.py RUNS`
and `python results/leaderboard.py`. A new data set needs a title in that script.
"""
PAGES = {
    "leaderboard.md": "leave-one-out, data sets with published rows",
    "leaderboard-other.md": "leave-one-out on other data, drawn candidates, cold items",
    "leaderboard-time.md": "split by time",
}


def page_of(dataset: str, protocol: str) -> str:
    """Return the page of a section."""
    if protocol.startswith(("global", "temporal")):
        return "leaderboard-time.md"
    return "leaderboard.md" if protocol == LEAVE_ONE_OUT and dataset in WITH_PUBLISHED else "leaderboard-other.md"


def sections(rows: dict[str, Run]) -> dict[tuple[Any, ...], dict[str, list[str]]]:
    """Return the names of the runs of each setting, by section."""
    found: dict[tuple[Any, ...], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, run in rows.items():
        section = (run["dataset"], run["protocol"], run["cases"], run["fingerprint"])
        if run[f"test {METRIC}"] is not None:
            found[section][re.sub(r"_seed\d+$", "", name)].append(name)
    return found


def chosen(settings: dict[str, list[str]], rows: dict[str, Run]) -> list[list[str]]:
    """Return the runs of the best setting of each model by validation: with and without a refit, and a reranker."""
    best: dict[tuple[str, bool, bool], tuple[bool, float, list[str]]] = {}
    for setting, names in settings.items():
        first = rows[names[0]]
        kind = first["model"], first["refit"], reranks(first)
        valid = [-1.0 if rows[name][f"valid {METRIC}"] is None else rows[name][f"valid {METRIC}"] for name in names]
        ends = (f"_{DEFAULT}", "_default", "_default_refit", "_without_reranker")
        unchanged = kind[0] == DEFAULT and setting.endswith(ends)
        entry = (unchanged, statistics.fmean(valid), names)
        if kind not in best or entry[:2] > best[kind][:2]:
            best[kind] = entry
    return [names for _, _, names in best.values()]


def reranks(run: Run) -> bool:
    """Return whether a run fits a reranker to validation targets."""
    return run["model"] == DEFAULT and run["keys"].get("memory_rerank") != "false"


def row_of(group: list[Run]) -> dict[str, Any]:
    """Return the row of the runs of one setting."""
    first = group[0]
    minutes = statistics.fmean(one["minutes"] or 0.0 for one in group)
    notes = ["refit"] if first["refit"] else []
    notes += [{"last": "newest"}.get(first["windows"], first["windows"])] if first["windows"] not in "-all" else []
    notes += [] if first["exclude_seen"] else ["seen ranked"]
    notes += ["the default's weights"] if (warm := "init_from" in first["keys"]) else []
    return {
        "model": first["model"] + (" *" if reranks(first) else ""),
        "NDCG@10": figure_text(group, METRIC),
        "HR@10": figure_text(group, "hit@10"),
        "seeds": str(len(group)),
        "min": "-" if warm else f"{minutes:.0f}" if minutes >= 1 else "< 1",
        "note": ", ".join(notes),
        "run": first["run"],
        "order": -mean(group, METRIC),
    }


def published_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a published figure."""
    mark = " **" if "apart" in row else ""
    cells = {"model": f"{row['model']}{mark} (published)", "NDCG@10": short(row[METRIC]), "HR@10": short(row["hit@10"])}
    return {**cells, "seeds": str(row.get("seeds", 1)), "order": -row[METRIC]}


def text(page: str) -> str:
    """Return a page."""
    links = ",\n".join(title if name == page else f"[{title}]({name})" for name, title in PAGES.items())
    lines = [ABOUT.format(default=DEFAULT, title=PAGES[page], pages=links)]
    order = {dataset: number for number, dataset in enumerate(TITLES)}
    for section, settings in sorted(sections(runs()).items(), key=lambda entry: (order[entry[0][0]], str(entry[0]))):
        dataset, protocol, cases, fingerprint = section
        if page_of(dataset, protocol) != page:
            continue
        rows = [row_of([runs()[name] for name in names]) for names in chosen(settings, runs())]
        if page == "leaderboard.md":
            rows += map(published_row, published(dataset, marked=True))
        words = protocol.replace(", all items ranked", "").replace("unknown targets are misses", "unknown are misses")
        title = f"{TITLES[dataset]}: {words}, {cases:,} test cases (data {fingerprint[:6]})"
        columns = ["model", "NDCG@10", "HR@10", "seeds", "min", "note", "run"]
        table = Table(sorted(rows, key=lambda row: row["order"]), columns).markdown().strip()
        lines += ["", f"## {title}", "", table]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name in PAGES:
        (DOCS / name).write_text(text(name), encoding="utf-8")
