"""Write the tables, figures and numbers of preprint.tex into paper/build: python paper/tables.py.

All come from the files of results/. Sentences of the preprint that other figures could make false are checked here.
"""

from __future__ import annotations

import itertools
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
sys.path.append(str(RESULTS))
from claims import APART, TABLE, ahead, claims, of_default, published, welch_test, without_reranker  # noqa: E402
from figures import FIGURES  # noqa: E402
from gpu import reached  # noqa: E402
from leaderboard import LEAVE_ONE_OUT, METRIC, TITLES, chosen, sections  # noqa: E402
from model_pages import head_values, seeds_text, study_values, tuned_rows  # noqa: E402
from pages import PAGES, row_cells, runs_of  # noqa: E402
from table import Run, figure_text, interval, mean, runs, short  # noqa: E402

from recbole_hyper.evaluation.pairs import holm  # noqa: E402
from recbole_hyper.evaluation.tables import Table  # noqa: E402

# data sets with published rows, and their names in macros
NAMES = dict(zip(TABLE | APART, ("beauty", "sports", "movielens", "toys", "lastfm", "foursquare", "yelp"), strict=True))
# by time, or on results/boards.md without our other models
ELSEWHERE = ("amazon-beauty", "amazon-sports", "instruments-2018", "games-2018", "tmall", "diginetica")
BOARDS = {data: title for data, title in TITLES.items() if data not in ELSEWHERE}
DEFAULT = "FMLPRecMemory, no setting changed"
OTHERS = {"FMLPRecCE": "FMLPRecCE", "SASRecCE": "SASRec", "EASER": "EASE^R"}
# runs of the default at these commits searched for the mixture at each validation
SEARCHED = ("afebc519", "e02908ab", "df07b39b", "c704b9e7", "0186f8dc", "fe811305", "2b251e85", "b775d880", "d9c2485f")
SEARCHED += ("769c2226", "9b4968b6", "4a21f6fc", "f620be90", "44a5ef3d", "5e4cb4a2", "53ff5fa8", "2fe04ba9", "8db723e0")
IMAGES = {"first.pdf": "results/first.png", "curvature.pdf": "docs/images/curvature_tuned.png"}
SIGNS = {"†": r"\,\dag", "±": r"$\pm$", "<": "$<$", r"EASE\textasciicircum{}R": r"EASE\textsuperscript{R}"}
CURVATURE = yaml.safe_load((RESULTS / "curvature.yaml").read_text())
Rows = list[dict[str, Any]]


def checked(holds: bool, sentence: str) -> None:
    """Stop if a sentence of the preprint is not true any more."""
    assert holds, f"paper/preprint.tex says: {sentence}. The results do not: rewrite the sentence and its check"


def figure(group: list[Run]) -> str:
    """Return the NDCG@10 of runs, with a dagger if one of them searched for its mixture."""
    old = any(run["model"] == "FMLPRecMemory" and run["commit"].startswith(SEARCHED) for run in group)
    return figure_text(group, METRIC).partition(" (")[0] + ("†" if old else "")


def lowest(dataset: str) -> float:
    """Return the lowest NDCG@10 of the seeds of the default model."""
    return min(run[f"test {METRIC}"] for run in of_default(dataset))


def main_rows() -> Rows:
    """Return the default model beside the best published row."""
    rows = []
    for dataset in NAMES:
        group, best = of_default(dataset), published(dataset)[0]
        row = {"data": BOARDS[dataset], "NDCG@10": figure(group), "lowest": short(lowest(dataset))}
        row |= {"interval": "-".join(map(short, interval(group[0], METRIC) or ()))}
        row |= {"HR@10": figure_text(group, "hit@10"), "without reranker": figure(without_reranker(dataset))}
        rows.append(row | {"published": f"{short(best[METRIC])}, {short(best['hit@10'])} ({best['model']})"})
    return rows


def board_rows() -> Rows:
    """Return our models on all boards: of several settings of a model the best on validation."""
    rows = {}
    for (dataset, protocol, cases, _), settings in sections(runs()).items():
        if dataset in BOARDS and protocol == LEAVE_ONE_OUT:
            groups = [[runs()[name] for name in names] for names in chosen(settings, runs())]
            best = {group[0]["model"]: group for group in groups if not group[0]["refit"]}
            rivals = {head: best[model] for model, head in OTHERS.items() if model in best}
            default = of_default(dataset)
            least = max(mean(group, METRIC) for group in rivals.values())
            checked(mean(default, METRIC) > least, f"the default is ahead of our other models on {dataset}")
            row = {"data": BOARDS[dataset].replace("the 1,000 most popular", "1,000"), "cases": cases}
            row |= {"default": figure(default), "no reranker": figure(without_reranker(dataset))}
            row |= {head: figure(rivals.get(head, [])) for head in OTHERS.values()}
            rows[dataset] = row | {"minutes": round(statistics.fmean(run["minutes"] or 0.0 for run in default))}
    return [rows[dataset] for dataset in BOARDS]


def tables_of(page: str) -> list[dict[str, Any]]:
    """Return the tables of a page of results/."""
    return yaml.safe_load((PAGES / f"{page}.yaml").read_text())["tables"]


def time_rows() -> tuple[Rows, dict[str, str]]:
    """Return the rows of results/timepoint.md of the default, SASRec and EASE^R, and in which of them EASE^R leads."""
    rows, behind = [], []
    for table in tables_of("timepoint"):
        kind = next((text for text in ("every item", "last item") if text in table["title"]), "temporal users")
        known = {tuple(row["row"].rsplit(", ", 1)): row for row in table["rows"]}
        for data in dict.fromkeys(data for _, data in known):
            default, best = runs_of(known[DEFAULT, data]), known[DEFAULT, data].get("published")
            row = {"targets": kind, "refit": "yes" if default[0]["refit"] else "no", "data": data}
            row["default"] = figure(default)
            for head, model in {"SASRec": "SASRecCE", "EASE^R": "EASE^R"}.items():
                group = runs_of(known[model, data]) if (model, data) in known else []
                row[head] = figure(group)
                leads = bool(group) and mean(group, METRIC) > mean(default, METRIC)
                behind += [f"{kind} of {data}"] if leads else []
                checked(head == "EASE^R" or not leads, f"the default is ahead of SASRec: {kind}, {data}")
            rows.append(row | {"published": short(best[METRIC]) if best else "-"})
    return rows, {"linearLeads": " and ".join(behind) or "no row"}


def gains() -> pd.DataFrame:
    """Return what rerankers gain on validation, in per cent: a row for each, a column for each data set."""
    frame = pd.read_csv(RESULTS / "rerankers.csv")
    table = frame.pivot(index="reranker", columns="data", values="gain in per cent")
    rerankers = sorted(set(frame["reranker"]) - {"none"}, key=lambda name: (name.startswith("of "), name))
    # no -0.0
    return table.loc[rerankers, frame["data"].unique()] + 0.0


def head_rows(name: str) -> Rows:
    """Return a table of docs/curvature.md with a row for each data set and head, and a column for each width."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for cell, row in itertools.product(CURVATURE[name]["cells"], tuned_rows(CURVATURE[name])):
        data, width = cell.split(", ")
        found.setdefault((data, row["head"]), {"data": data, "head": row["head"]})[width] = row[cell]
    return list(found.values())


def tree_rows() -> Rows:
    """Return the heads on walks on a tree."""
    table = CURVATURE["walks"]
    widths = table["widths"]
    return [
        {"head": one} | {f"d {d}": seeds_text(head_values(table, one, d)) for d in widths} for one in table["heads"]
    ]


def board_numbers() -> dict[str, str]:
    """Return the numbers of the text on the boards, after a check of its sentences."""
    numbers = {"boards": str(len(BOARDS))}
    for dataset, name in NAMES.items():
        numbers[f"{name}Ndcg"] = short(mean(of_default(dataset), METRIC))
        numbers[f"{name}Published"] = short(published(dataset)[0][METRIC])
        if plain := without_reranker(dataset):
            numbers[f"{name}Plain"] = short(mean(plain, METRIC))
    behind = [name for dataset, name in NAMES.items() if not ahead(dataset)]
    checked(behind == ["foursquare"], "every seed is above the best published row, but on Foursquare")
    with_it, without = (group("foursquare-sequences") for group in (of_default, without_reranker))
    own, change = [run[f"test {METRIC}"] for run in with_it], mean(with_it, METRIC) - mean(without, METRIC)
    checked(abs(change) < max(own) - min(own), "the reranker changes less than the seeds differ on Foursquare")
    (hstu,) = (row for row in published("ml-1m", marked=True) if row["model"] == "HSTU-large with MoL")
    low, high = interval(of_default("ml-1m")[0], "hit@10") or (0.0, 0.0)
    inside = hstu[METRIC] < lowest("ml-1m") and low < hstu["hit@10"] < high
    checked(inside, "HSTU's NDCG@10 is below every seed, its HR@10 inside our interval")
    entries = [one for one in json.loads((RESULTS / "bench_gpu.json").read_text()) if "when" not in one]
    (entry,) = (one for one in entries if "H100" in one["device"])
    for dataset in ("amazon-beauty-sequences", "ml-1m"):
        numbers[f"{NAMES[dataset]}Seconds"] = f"{reached(entry, 'runs', {'dataset': dataset}, 'seconds'):.0f}"
    shares = re.findall(r"([\d.]+)%$", (RESULTS / "bench_validation.txt").read_text(), flags=re.MULTILINE)
    numbers |= {"shareLow": min(shares, key=float), "shareHigh": max(shares, key=float)}
    return numbers | {"hstuNdcg": short(hstu[METRIC]), "hstuHr": short(hstu["hit@10"])}


def gain_numbers() -> dict[str, str]:
    """Return the numbers of the text on rerankers, after a check of its sentences."""
    numbers = {}
    for dataset, column in gains().items():
        foreign, own = column[column.index.str.startswith("of ")], column["all evidence"]
        near = foreign[foreign.index.str.startswith("of amazon")].min() > (0.6 if "amazon" in dataset else 0.5) * own
        far = dataset in ("ml-1m", "yelp-sequences")
        checked(near != far, f"rerankers of Amazon data nearly suffice on {dataset}: {near}")
        checked(column["without all but the two log-probabilities"] < 0.2 * own, f"evidence is needed on {dataset}")
        order, ease = column["without votes of both sides"], column.get("without votes of EASE^R")
        amazon, linear = dataset.startswith("amazon"), dataset in ("ml-1m", "lastfm-sequences")
        checked(0.5 * own <= order < 0.7 * own or not amazon, f"half to seven tenths need no order on {dataset}")
        checked(ease < 0.5 * own or not linear, f"the reranker needs EASE^R on {dataset}")
        for end, value in {"Own": own, "Worst": foreign.min(), "Best": foreign.max()}.items():
            numbers[NAMES[dataset] + end] = f"${value:+.1f}$"
    return numbers


def head_numbers() -> dict[str, str]:
    """Return the numbers of the text on heads, after a check of its sentences: the flat limit less each other head."""
    values, table = study_values("curvature_tuned.csv", METRIC), CURVATURE["tuned-leads"]
    pairs = list(itertools.product(table["heads"].values(), table["cells"].values()))
    tests = {(head, *cell): welch_test(values["flat-limit", *cell], values[head, *cell]) for head, cell in pairs}
    checked(all(high > 0 for _, _, high, _ in tests.values()), "no head is certainly ahead of the flat limit")
    sparse = [test[1] for (head, data, _), test in tests.items() if head == "poincare-auto" and data != "ml-1m"]
    checked(min(sparse) > 0, "the suggested curvature is behind the flat limit on Beauty and Sports")
    numbers = {"pairs": str(len(tests)), "leads": str(sum(low > 0 for _, low, _, _ in tests.values()))}
    numbers["certain"] = str(sum(p_value < 0.05 for p_value in holm([test[3] for test in tests.values()])))
    for name, head in {"flat": "flat-limit", "dot": "dot-product", "delta": "poincare-auto"}.items():
        for end, width in {"Narrow": 8, "Wide": 64}.items():
            numbers[name + end] = short(statistics.fmean(values[head, "amazon-beauty-sequences", width]))
    return numbers


def tabular(rows: Rows, columns: tuple[str, ...] = ()) -> str:
    """Return rows as LaTeX's tabular."""
    text = Table(rows, columns or list(rows[0]), forms={"difference": "+.4f"}).latex()
    found = re.search(r"\\begin\{tabular\}.*\\end\{tabular\}", text, flags=re.DOTALL)[0]
    for sign, command in SIGNS.items():
        found = found.replace(sign, command)
    # minus signs, and dashes between numbers
    return re.sub(r"(?<=\d)-(?=\.)", "--", re.sub(r"(?<= )-(?=[\d.])", "$-$", found)) + "\n"


def texts() -> dict[str, str]:
    """Return the tables and the numbers as LaTeX, by name."""
    timed, numbers = time_rows()
    tests = [row | {"data": row["row"]} for row in claims() if row["of"] == "default - without reranker"]
    lesser = [table for table in tables_of("records") if "one part less" in table["title"]]
    parts = [row_cells(row, table["metrics"], False) for table in lesser for row in table["rows"]]
    rerankers = {f"of {data}": f"fitted to {title}" for data, title in BOARDS.items()}
    gained = gains().map("{:+.1f}".format).replace("+nan", "-").rename(index=rerankers, columns=BOARDS).reset_index()
    tables = {
        "main": tabular(main_rows()),
        "boards": tabular(board_rows()),
        "gains": tabular(gained.to_dict("records")),
    }
    tables |= {"tests": tabular(tests, ("data", "seeds", "difference", "interval", "Holm"))}
    tables |= {"parts": tabular(parts, ("row", "valid", "NDCG@10", "seeds"))}
    tables |= {"time": tabular(timed), "tree": tabular(tree_rows())}
    tables |= {"heads": tabular(head_rows("tuned")), "learned": tabular(head_rows("tuned-numbers"))}
    numbers |= board_numbers() | gain_numbers() | head_numbers()
    tables["numbers"] = "".join(f"\\newcommand{{\\{name}}}{{{text}}}\n" for name, text in numbers.items())
    return tables


def main(folder: Path = HERE / "build") -> None:
    """Write everything into a folder."""
    folder.mkdir(exist_ok=True)
    for name, text in texts().items():
        (folder / f"{name}.tex").write_text(text, encoding="utf-8")
    for name, drawn in IMAGES.items():
        FIGURES[drawn]().savefig(folder / name)


if __name__ == "__main__":
    main()
