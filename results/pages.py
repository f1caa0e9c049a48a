"""The pages of results/: every figure is read from a result file.

    python results/pages.py       # writes a page for each file of results/pages/, and results/cells.png

A file of results/pages/ has a title, a text and tables. A table names runs (files of runs/, with what was published) or
one file of a benchmark. In a text, {RUN:test.ndcg@10} is that figure of a run. The command of a row is what its
configuration has beside the defaults of the model and the protocol, so a row cannot name a command that it did not run.
"""

from __future__ import annotations

import csv
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
import yaml
from scipy.stats import binomtest

from recbole_hyper.config import Config
from recbole_hyper.config.parts import PARTS
from recbole_hyper.evaluation.results import costs
from recbole_hyper.evaluation.tables import Table
from recbole_hyper.report.differences import canonical, read_settings
from recbole_hyper.yaml_files import config_files, read_yaml

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "benchmarks"))
from peers.driver.tables import at_equal_seconds, markdown  # noqa: E402

PAGES = HERE / "pages"
# Okabe and Ito: told apart by colour-blind readers
REACHED, BELOW = "#0072B2", "#D55E00"
ROW_KEYS = {"row", "label", "run", "runs", "seeds_file", "published"}
FILES = {"global timepoint": "global_timepoint", "temporal users": "temporal_users"}
SHOWN = {"ndcg@5": "NDCG@5", "hit@5": "HR@5", "ndcg@10": "NDCG@10", "hit@10": "HR@10"}
SHOWN |= {"mrr@100": "MRR", "itemcoverage@10": "coverage@10"}
READING = """\
Test figures of the files in `runs/`. Selection used validation only. One seed: in brackets the 95 % interval over users
(BCa bootstrap), where the run computed it. Several seeds: mean ± standard deviation. Epochs: the best one of those
trained. Minutes: training, with a refit, on one or two CPU cores, often beside other work. MiB: peak memory of the
process in training."""
# keys of FMLPRecMemory that runs before them lack, and what these runs had
BEFORE = {"memory_rerank": False, "memory_ease": False}
# keys that say where the data were, or which kernel a GPU takes
NOT_SHOWN = ("interactions", "load_col", "triton_kernel")
# a figure of a run in a text
FIGURE = re.compile(r"\{([^{}:]+):(valid|test)\.([^{}]+)\}")


def read(name: str) -> dict[str, Any]:
    """Return the result file of a run."""
    return json.loads((HERE / f"runs/{name}.json").read_text())


def runs_of(row: dict[str, Any]) -> list[str]:
    """Return the names of the runs of a row: ``runs``, or ``run`` with all its seeds."""
    return row["runs"] if "runs" in row else seeds_of(row["run"])


def seeds_of(name: str) -> list[str]:
    """Return the names of a run and of its further seeds, as far as they are there."""
    runs = HERE / "runs"
    return [path.stem for path in (runs / f"{name}.json", *sorted(runs.glob(f"{name}_seed*.json"))) if path.is_file()]


def results_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results of a row's runs; with ``seeds_file``, the first with the metrics of each seed there."""
    results = [read(name) for name in runs_of(row)]
    if "seeds_file" not in row:
        return results
    frame = pd.read_csv(HERE / row["seeds_file"], index_col="metric")
    seeds = [name.removeprefix("test ") for name in frame if name.startswith("test seed")]
    return [{**results[0], **{part: frame[f"{part} {seed}"] for part in ("valid", "test")}} for seed in seeds]


def filled(text: str) -> str:
    """Return a text with its figures."""
    return FIGURE.sub(lambda found: short(read(found[1])[found[2]][found[3]]), text).strip()


def short(value: float) -> str:
    """Return a metric with four digits and no leading 0."""
    return f"{value:.4f}".replace("0.", ".", 1)


def command(result: dict[str, Any]) -> str:
    """Return what trains such a run."""
    words = (f"--{key}={text}" for key, text in command_keys(result).items())
    return " ".join(["recbole-hyper run", *(f'"{word}"' if " " in word else word for word in words)])


def command_keys(result: dict[str, Any]) -> dict[str, str]:
    """Return the keys of the command that trains such a run, those that are not the defaults, and their values."""
    model, dataset, asked = result["model"], result["dataset"], BEFORE | result["config"]
    protocol = FILES.get(result["protocol"], "")
    if "target" in (result["eval_args"]["split"].get("GT") or {}):
        protocol = "last_item_after_timepoint"
    given = {"interactions": "given", "selected_features": None}  # no data set is opened
    default = Config(model, dataset, config_files(protocol), given)
    parts = {key: asked[key] for key in PARTS if key in asked and key in default}
    # options of a part have their defaults beside it
    usual = read_settings(model, Config(model, dataset, config_files(protocol), {**given, **parts}).plain())
    usual |= {key: default[key] for key in parts}
    differing = {
        key: value
        for key, value in read_settings(model, asked).items()
        if key in usual and canonical(usual[key]) != canonical(value) and key not in NOT_SHOWN
    }
    if "curvature_interval" in result:
        differing["curvature"] = "auto"
    measured = {key: asked[key] for key in ("seed", "metrics", "topk", "valid_metric") if asked[key] != default[key]}
    named = {"model": model, "dataset": dataset} | ({"config_files": protocol} if protocol else {})
    return {
        key: yaml.safe_dump(value, default_flow_style=True, width=10**6).strip().removesuffix("\n...")
        for key, value in (named | measured | differing).items()
    }


def figure_text(results: list[dict[str, Any]], metric: str, part: str = "test") -> str:
    """Return the mean of a metric, with its interval over users (one seed) or its deviation over seeds (several)."""
    values = [result[part][metric] for result in results if metric in result[part]]
    if not values:
        return "-"
    if len(values) > 1:
        return f"{short(statistics.fmean(values))} ± {short(statistics.stdev(values))}"
    bounds = results[0].get(f"{part}_intervals", {}).get(metric)
    return short(values[0]) + (f" ({short(bounds[0])}-{short(bounds[1])})" if bounds and part == "test" else "")


def row_cells(row: dict[str, Any], metrics: list[str], compared: bool) -> dict[str, Any]:
    """Return the cells of a row of runs; with the published figures if the table has some."""
    results, published = row["results"], row.get("published", {})
    cells = {"row": row["row"]} | {SHOWN[metric]: figure_text(results, metric) for metric in metrics}
    if compared:
        known = [metric for metric in metrics if metric in published]
        shares = [statistics.fmean(one["test"][metric] for one in results) / published[metric] for metric in known]
        cells["published"] = ", ".join(short(published[m]) if m in published else "-" for m in metrics) if known else ""
        cells["ours / published"] = ", ".join(f"{100 * share:.0f} %" for share in shares)
    else:
        cells[f"valid {SHOWN[metrics[0]]}"] = figure_text(results, metrics[0], "valid")
    spent = [costs(result) for result in results]
    memory = [cost["peak_memory_mib"] for cost in spent if cost["peak_memory_mib"]]
    cells["seeds"] = "one" if len(results) == 1 else str(len(results))
    epochs = results[0]["best_epoch"], results[0]["epochs"]
    cells["epochs"] = f"{epochs[0] + 1} of {epochs[1]}" if epochs[0] >= 0 else "-"
    cells["minutes"] = f"{statistics.fmean(cost['train_seconds'] or 0.0 for cost in spent) / 60:.0f}"
    cells["MiB"] = f"{statistics.fmean(memory):,.0f}" if memory else "-"
    return cells


def runs_table(table: dict[str, Any]) -> list[str]:
    """Return the lines of a table of runs, with its commands folded below."""
    for row in table["rows"]:
        if unknown := row.keys() - ROW_KEYS:
            # a title that holds commas reads as further keys where it is not quoted
            raise SystemExit(f"results/pages, row {row['row']!r}: unknown keys {sorted(unknown)}; quote it?")
        row["results"] = results_of(row)
    compared = any("published" in row for row in table["rows"])
    rows = [row_cells(row, table["metrics"], compared) for row in table["rows"]]
    commands = [f"- {row['row']}: `{command(row['results'][0])}`" for row in table["rows"]]
    shown = Table(rows, list(rows[0])).markdown().strip()
    return [shown, "", "<details><summary>commands</summary>", "", *commands, "", "</details>"]


def file_table(table: dict[str, Any]) -> list[str]:
    """Return the lines of a table that shows a file: text as it is, csv and json as a table of ``columns``."""
    path = HERE / table["file"]
    if path.suffix == ".txt":
        return ["```text", path.read_text().rstrip(), "```"]
    if path.suffix == ".csv":
        frame = pd.read_csv(path)
    else:
        content = json.loads(path.read_text())
        for key in table.get("at", ()):
            content = content[key]
        if isinstance(content, dict):
            content = [
                {"": name, **(entry if isinstance(entry, dict) else {"value": entry})}
                for name, entry in content.items()
            ]
        frame = pd.DataFrame(content)
    if "pivot" in table:
        frame = frame.pivot(**table["pivot"]).reindex(frame[table["pivot"]["index"]].unique()).reset_index()
        frame.columns = [
            ", ".join(map(str, name)).strip(", ") if isinstance(name, tuple) else str(name) for name in frame
        ]
    columns = table.get("columns") or list(frame)
    forms = dict.fromkeys(columns[1:], ".2f") if "pivot" in table else {}
    return [Table.of(frame[columns], heads=table.get("heads", {}), forms=forms).markdown().strip()]


def peer_table(table: dict[str, Any]) -> list[str]:
    """Return the lines of a comparison with other packages, as its benchmark writes them."""
    content = json.loads((HERE / table["peers"]).read_text())
    peers = content["peers"]
    return [f"`{content['command']}`", "", markdown(peers, content["quality"]), "", at_equal_seconds(peers)]


def prefix_lines(table: dict[str, Any]) -> list[str]:
    """Return the lines of the table of the noisy-prefix runs, from prefix_table.csv."""
    lines, commands = [], []
    defaults = read_yaml(HERE.parent / "examples" / "noisy_prefix" / "settings.yaml")
    with (HERE / table["prefixes"]).open() as file:
        runs = list(csv.DictReader(file))
    of_setting: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for run in runs:
        setting = (run["noise"], run["geometry"], *(run[key] for key in run if key in defaults and key != "seed"))
        of_setting.setdefault(setting, []).append(run)
    for seeds in sorted(
        of_setting.values(),
        key=lambda seeds: (int(seeds[0]["noise"]), seeds[0]["geometry"], -mean(seeds, "valid_accuracy")),
    ):
        run, accuracy = seeds[0], mean(seeds, "test_accuracy")
        if len(seeds) > 1:
            spread = f"± {statistics.stdev(float(one['test_accuracy']) for one in seeds):.2f}"
        else:
            bounds = binomtest(round(accuracy * 100), defaults["n_test"]).proportion_ci(method="wilson")
            spread = f"({100 * bounds.low:.2f}-{100 * bounds.high:.2f})"
        published = {"Ganea et al.": run["ganea_2018_test"], "the report": run["report_table_1"]}
        published = {name: float(value) for name, value in published.items() if value}
        words = ["python -m examples.noisy_prefix"]
        for key, value in run.items():
            if (key in defaults and yaml.safe_load(value.lower()) != defaults[key]) or key == "noise":
                words.append(f"--{key}={value}")
        best = [int(one["best_epoch"]) for one in seeds]
        epochs = f"{min(best)} to {max(best)}" if min(best) < max(best) else str(best[0])
        lines.append(
            {
                "task": f"PREFIX-{run['noise']}, {run['geometry']}",
                "test accuracy, %": f"{accuracy:.2f} {spread}",
                "validation": f"{mean(seeds, 'valid_accuracy'):.2f}",
                "published": ", ".join(f"{value:.2f} ({name})" for name, value in published.items()),
                "seeds": "one" if len(seeds) == 1 else str(len(seeds)),
                "epochs": f"{epochs} of {run['epochs']}",
                "minutes": f"{mean(seeds, 'train_seconds') / 60:.0f}",
            }
        )
        commands.append(f"- `{' '.join(words)}`")
    shown = Table(lines, list(lines[0])).markdown().strip()
    return [shown, "", "<details><summary>commands, in this order</summary>", "", *commands, "", "</details>"]


def mean(runs: list[dict[str, str]], column: str) -> float:
    """Return the mean of a column of the runs of one setting."""
    return statistics.fmean(float(run[column]) for run in runs)


MAKERS = {"rows": runs_table, "prefixes": prefix_lines, "peers": peer_table, "file": file_table}


def page_text(page: dict[str, Any]) -> str:
    """Return a page as markdown."""
    lines = [f"# {page['title']}", "", "<!-- written by results/pages.py -->", "", filled(page["about"])]
    lines += ["", READING] if any("rows" in table for table in page["tables"]) else []
    for table in page["tables"]:
        lines += ["", f"## {table['title']}", "", *([filled(table["about"]), ""] if "about" in table else [])]
        lines += next(make for key, make in MAKERS.items() if key in table)(table)
    return "\n".join(lines) + "\n"


def pages() -> dict[str, dict[str, Any]]:
    """Return the content of every file of results/pages/, by name.

    Rows that are ``pending`` are left out until their first run is there, and so are tables without any other rows.
    """
    found = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(PAGES.glob("*.yaml"))}
    for page in found.values():
        for table in page["tables"]:
            if "rows" in table:
                table["rows"] = [row for row in table["rows"] if not row.pop("pending", False) or runs_of(row)]
        page["tables"] = [table for table in page["tables"] if table.get("rows", True)]
    return found


def points(groups: list[dict[str, Any]]) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
    """Return (label, ours, interval or None, published) of each published cell, by table and metric.

    A cell's metric is NDCG@10, or MRR or NDCG@5 where that is what is published. Of several runs at one cell, ways of
    training the same parts, the best on validation is taken.
    """
    best: dict[tuple[Any, ...], tuple[float, tuple[str, str], tuple[Any, ...]]] = {}
    for group in groups:
        for row in group["rows"]:
            results, published = row["results"], row.get("published", {})
            metric = next((name for name in ("ndcg@10", "mrr@100", "ndcg@5") if name in published), None)
            if metric is None:
                continue
            ours, valid = (statistics.fmean(result[part][metric] for result in results) for part in ("test", "valid"))
            bounds = results[0].get("test_intervals", {}).get(metric) if len(results) == 1 else None
            point = (row.get("label", row["row"]), ours, bounds, published[metric])
            cell = (group["short"], *(str(results[0]["config"].get(key)) for key in PARTS), *published.items())
            if cell not in best or valid > best[cell][0]:
                best[cell] = (valid, (group["short"], SHOWN.get(metric, metric)), point)
    panels: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for _, panel, point in best.values():
        panels.setdefault(panel, []).append(point)
    return panels


def draw(groups: list[dict[str, Any]], file: Path) -> None:
    """Draw ours over the published value, a panel for each table and metric."""
    panels = points(groups)
    columns = 2
    # panels of similar length share a row
    ordered = sorted(panels.items(), key=lambda entry: -len(entry[1]))
    lines = [ordered[start : start + columns] for start in range(0, len(ordered), columns)]
    heights = [0.24 * len(line[0][1]) + 0.75 for line in lines]
    figure = plt.figure(figsize=(11, sum(heights) + 0.6), layout="constrained")
    axes = figure.subplots(len(lines), columns, squeeze=False, gridspec_kw={"height_ratios": heights})
    for line, own in zip(lines, axes, strict=True):
        for axis in own[len(line) :]:
            axis.set_visible(False)
        for ((table, metric), cells), axis in zip(line, own, strict=False):
            for place, (_, ours, bounds, published) in enumerate(cells):
                # reached: not below the published value beyond what four digits round away
                colour = REACHED if ours >= published - 5e-5 else BELOW
                if bounds:
                    axis.plot([bound / published for bound in bounds], [place, place], color=colour, lw=1.5)
                axis.plot(ours / published, place, "o", color=colour, ms=5)
            axis.axvline(1, color="#888888", lw=1)
            axis.grid(axis="x", color="#dddddd", lw=0.6)
            axis.set_axisbelow(True)
            axis.set_yticks(range(len(cells)), [name for name, *_ in cells], fontsize=8)
            axis.set_ylim(len(cells) - 0.5, -0.5)
            axis.set_title(table, fontsize=9, loc="left")
            axis.set_xlabel(f"ours / published, test {metric}", fontsize=8)
            axis.tick_params(axis="x", labelsize=8)
            axis.spines[["top", "right"]].set_visible(False)
    handles = [
        plt.Line2D([], [], color=REACHED, marker="o", ls="", label="at or above the published value"),
        plt.Line2D([], [], color=BELOW, marker="o", ls="", label="below it"),
        plt.Line2D([], [], color="#444444", lw=1.5, label="95 % interval over users (one seed that computed it)"),
        plt.Line2D(
            [], [], color="#444444", marker="o", ls="", label="dot alone: mean of several seeds, or no interval"
        ),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    figure.savefig(file, dpi=110)


def main() -> None:
    """Write the pages, and the figure of the published cells."""
    for name, page in pages().items():
        (HERE / f"{name}.md").write_text(page_text(page))
        if name == "cells":
            draw([table for table in page["tables"] if "rows" in table], HERE / "cells.png")


if __name__ == "__main__":
    main()
