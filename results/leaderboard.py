"""Write docs/leaderboard.md from the result files: python results/leaderboard.py.

A section is a data set with a split and a way of ranking; a row is a model. Of the settings of a model that have runs
in a section, the one with the best validation is shown, with all its seeds. The default model is shown with no setting
changed. Published rows come from published.yaml.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.append(str(HERE))
from claims import APART, DEFAULT, TABLE, published  # noqa: E402
from pages import command, figure_text, short  # noqa: E402

from recbole_hyper.evaluation.results import costs  # noqa: E402
from recbole_hyper.evaluation.tables import Table  # noqa: E402

PAGE = HERE.parent / "docs" / "leaderboard.md"
METRIC = "ndcg@10"
# data sets with published rows
WITH_PUBLISHED = TABLE | APART
TITLES = WITH_PUBLISHED | {
    "amazon-beauty": "Amazon Beauty by time",
    "amazon-sports": "Amazon Sports by time",
    "ml-100k": "MovieLens-100K",
    "ml-1m-1000-users": "MovieLens-1M, 1,000 users",
    "ml-1m-1000-items": "MovieLens-1M, the 1,000 most popular items",
    "ml-1m-newest-half": "MovieLens-1M, the newest half",
}
ABOUT = """\
# Leaderboard

<!-- written by results/leaderboard.py -->

Every model that has runs in `results/runs`, on every data set and protocol. The test figures are means over the seeds
with the standard deviation, or for one seed with the 95 % interval over users, where the run computed it. Sources and
cautions of the published rows are in `results/published.yaml`.

- **Setting**: {default} has no setting changed, where such runs exist. Of the settings of any other model, the one with
  the best validation is shown. The commands are below each table.
- **windows**: which parts of a history are trained: all windows that cover it, the newest one, or a random one.
- **refit**: whether the model was trained again on training and validation before the test. A refit sees more data, so
  compare it with refits only.
- **seen items**: whether items of the history are left out of the ranking.
- **minutes**: of training, mostly on one thread of a machine with other work: a rough guide.

To add a row, run the model with `--seeds=2020,2021,2022 --output_dir=RUNS/NAME`, then `python results/keep.py RUNS`,
which copies the result files, and `python results/leaderboard.py`, which writes this page. A new data set needs a title
in that script.
"""


def runs() -> dict[str, dict[str, Any]]:
    """Return all result files by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((HERE / "runs").glob("*.json"))}


def protocol_of(result: dict[str, Any]) -> str:
    """Return the protocol of a run in words."""
    split, mode = result["eval_args"]["split"], result["eval_args"]["mode"]
    words = [result["protocol"]]
    (value,) = split.values()
    if isinstance(value, dict) and value.get("target") == "last":
        words.append("last item of each user")
        words += ["unknown targets are misses"] if value.get("unknown") == "miss" else []
    candidates = mode["test"] if isinstance(mode, dict) else mode
    words.append("all items ranked" if candidates == "full" else f"{candidates.removeprefix('uni')} drawn candidates")
    return ", ".join(words)


def sections(results: dict[str, dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, list[str]]]:
    """Return the names of the runs of each setting, by section."""
    found: dict[tuple[Any, ...], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, result in results.items():
        section = (result["dataset"], protocol_of(result), result["n_test_cases"], result.get("data_fingerprint"))
        if METRIC in result["test"]:
            found[section][re.sub(r"_seed\d+$", "", name)].append(name)
    return found


def chosen(settings: dict[str, list[str]], results: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Return the runs of the best setting of each model by validation, one with and one without a refit."""
    best: dict[tuple[str, bool], tuple[bool, float, list[str]]] = {}
    for setting, names in settings.items():
        first = results[names[0]]
        kind = first["model"], bool(first["config"].get("refit"))
        valid = [results[name]["valid"].get(METRIC, -1.0) for name in names]
        unchanged = kind[0] == DEFAULT and setting.endswith((f"_{DEFAULT}", "_default", "_default_refit"))
        entry = (unchanged, statistics.fmean(valid), names)
        if kind not in best or entry[:2] > best[kind][:2]:
            best[kind] = entry
    return [names for _, _, names in best.values()]


def row_of(group: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of the runs of one setting."""
    first = group[0]
    minutes = statistics.fmean(costs(one)["train_seconds"] or 0.0 for one in group) / 60
    return {
        "model": first["model"],
        "NDCG@10": figure_text(group, METRIC),
        "HR@10": figure_text(group, "hit@10"),
        "seeds": str(len(group)),
        "minutes": f"{minutes:.0f}" if minutes >= 1 else "< 1",
        # models that are fitted in one step have no windows
        "windows": first["config"].get("train_windows", "-") if first["best_epoch"] >= 0 else "-",
        "refit": "yes" if first["config"].get("refit") else "no",
        "seen items": "left out" if first["exclude_seen"] else "ranked",
        "order": -statistics.fmean(one["test"][METRIC] for one in group),
    }


def published_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a published figure."""
    cells = {"model": f"{row['model']} (published)", "NDCG@10": short(row[METRIC]), "HR@10": short(row["hit@10"])}
    return {**cells, "refit": "no", "seen items": "left out", "order": -row[METRIC]}


def section_text(title: str, rows: list[dict[str, Any]], commands: list[str]) -> list[str]:
    """Return the lines of a section, the best test first."""
    columns = ["model", "NDCG@10", "HR@10", "seeds", "minutes", "windows", "refit", "seen items"]
    table = Table(sorted(rows, key=lambda row: row["order"]), columns).markdown().strip()
    lines = ["", f"## {title}", "", table]
    return [*lines, "", "<details><summary>commands</summary>", "", *commands, "", "</details>"] if commands else lines


def text(*, commands: bool = True) -> str:
    """Return the page; without ``commands`` it is quick."""
    results = runs()
    lines = [ABOUT.format(default=DEFAULT)]
    order = {dataset: number for number, dataset in enumerate(TITLES)}
    for section, settings in sorted(sections(results).items(), key=lambda entry: (order[entry[0][0]], str(entry[0]))):
        dataset, protocol, cases, fingerprint = section
        groups = [[results[name] for name in names] for names in chosen(settings, results)]
        rows = [row_of(group) for group in groups]
        if (
            dataset in WITH_PUBLISHED
            and protocol == "leave-one-out, all items ranked"
            and any(r["model"] == DEFAULT for r in rows)
        ):
            rows += map(published_row, published(dataset))
        title = f"{TITLES[dataset]}: {protocol}, {cases:,} test cases"
        shown = [f"- {group[0]['model']}: `{command(group[0])}`" for group in groups] if commands else []
        lines += section_text(f"{title} (data {str(fingerprint)[:6]})", rows, shown)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
