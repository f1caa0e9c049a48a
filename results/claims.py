"""Write claims.md (the default model beside published rows, differences between models), README and its figure.

    python results/claims.py            # from the result files and readme_template.md
    python results/claims.py --first    # first run README's ten lines, and write what they print into first_run.txt

claims.yaml and published.yaml name the runs and the published rows; every figure is computed here.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import yaml
from scipy import stats

from recbole_hyper.evaluation.pairs import holm
from recbole_hyper.evaluation.tables import Table

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
# the model that README recommends; its runs have it in their names
DEFAULT = "FMLPRecMemory"
TABLE = {
    "amazon-beauty-sequences": "Amazon Beauty",
    "amazon-sports-sequences": "Amazon Sports",
    "ml-1m": "MovieLens-1M",
}
# where no rule and no setting was chosen
APART = {
    "amazon-toys-sequences": "Amazon Toys",
    "lastfm-sequences": "LastFM",
    "foursquare-sequences": "Foursquare",
    "yelp-sequences": "Yelp",
}
SEEDS = ("", "_seed2021", "_seed2022")
# README's first run with all epochs
FIRST = "ml-100k_FMLPRecMemory_default"
PROTOCOL = """\
`{default}` with no setting changed: test, leave-one-out, all items ranked, **items of the history left out**.
Mean and standard deviation over the seeds; in brackets the 95 % interval over users of the first seed. What the runs
cost is in records.md."""
CAUTIONS = """\
The published rows are the best that we found on these files and this protocol. Most have one seed, and some were
chosen by test ([sources and cautions](published.yaml)). MovieLens-1M has 3,416 items there and 3,706 here. HSTU-large
with MoL ({apart}) is not among them: it trains on the validation item. The default model
fits 558 numbers of its reranker to validation targets; [those of similar data do nearly as well](records.md)."""
NOTE = """\
Differences of test means. Several seeds: 95 % interval and p-value of Welch's test over the seeds, for these users. The
p-values in the column Holm are adjusted for all differences on this page. One seed: nothing is known about others."""
CHOSEN = """\
The rules of `auto`, the mixture and the reranker were chosen on validation of these three data sets; the reranker on
that of LastFM too, and its gain was known on that of Amazon Toys and Yelp before it became the default. Otherwise the
next four took no part, but for one thing: after the first runs on LastFM and Foursquare, without EASE^R
([both](records.md)), the rule that offers it was changed to a cost. Same protocol and settings; `recbole-hyper prepare
NAME` says where the files are. On Foursquare most targets are items of the history, which no model reaches when these
are left out, and too few others are among the best for a reranker."""


def read(name: str) -> dict[str, Any]:
    """Return the result file of a run."""
    return json.loads((HERE / f"runs/{name}.json").read_text())


def seeds_of_run(name: str) -> list[str]:
    """Return the names of a run and of its further seeds."""
    return [name, *(path.stem for path in sorted((HERE / "runs").glob(f"{name}_seed*.json")))]


def short(value: float) -> str:
    """Return a metric with four digits and no leading 0."""
    return f"{value:.4f}".replace("0.", ".", 1)


def signed(value: float) -> str:
    """Return a difference with its sign."""
    return f"{value:+.4f}".replace("0.", ".", 1)


def difference(row: dict[str, Any], metric: str) -> dict[str, Any]:
    """Return the difference of two groups of runs over their common seeds, and what can be said of it."""
    groups = [[read(name) for name in seeds_of_run(row[side])] for side in ("first", "second")]
    shared = {run["seed"] for run in groups[0]} & {run["seed"] for run in groups[1]}
    groups = [[run for run in group if run["seed"] in shared] for group in groups]
    keys = ("data_fingerprint", "protocol", "eval_args", "exclude_seen")
    splits = {str([run[key] for key in keys]) for group in groups for run in group}
    assert len(splits) == 1, f"{row['row']}: runs of {len(splits)} splits"
    first, second = ([run["test"][metric] for run in group] for group in groups)
    found = {"row": row["row"], "seeds": min(len(first), len(second))}
    if found["seeds"] == 1:
        mean = statistics.fmean(first) - statistics.fmean(second)
        return {**found, "difference": mean, "interval": "one seed", "p": "one seed", "Holm": "one seed"}
    return found | welch(first, second)


def welch(first: Sequence[float], second: Sequence[float]) -> dict[str, Any]:
    """Return the difference of two means, its 95 % interval as text, and its p-value, by Welch's test."""
    mean, low, high, p_value = welch_test(first, second)
    return {"difference": mean, "interval": f"{signed(low)} to {signed(high)}", "p": p_value}


def welch_test(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the difference of two means, the ends of its 95 % interval and its p-value, by Welch's test."""
    test = stats.ttest_ind(first, second, equal_var=False)
    low, high = test.confidence_interval(0.95)
    return statistics.fmean(first) - statistics.fmean(second), low, high, float(test.pvalue)


def shown(p_value: float) -> str:
    """Return a p-value with two digits."""
    return f"{p_value:.2f}" if p_value >= 0.01 else "< .01"


def claims() -> dict[str, list[dict[str, Any]]]:
    """Return the differences of claims.yaml by title."""
    groups = yaml.safe_load((HERE / "claims.yaml").read_text())
    found = {group["title"]: [difference(row, group["metric"]) for row in group["rows"]] for group in groups}
    tested = [row for rows in found.values() for row in rows if row["seeds"] > 1]
    for row, adjusted in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row |= {"p": shown(row["p"]), "Holm": shown(adjusted)}
    return found


def claims_text() -> str:
    """Return claims.md."""
    apart = next(row for row in yaml.safe_load((HERE / "published.yaml").read_text())["ml-1m"] if "apart" in row)
    cautions = CAUTIONS.format(apart=f"{short(apart['ndcg@10'])}, {short(apart['hit@10'])}")
    parts = ["# The default model, and differences between models", "", PROTOCOL.format(default=DEFAULT), ""]
    parts += [*result_lines(TABLE), "", cautions, "", CHOSEN, "", *result_lines(APART), "", "## Differences", "", NOTE]
    for title, rows in claims().items():
        columns = ["row", "seeds", "difference", "interval", "p", "Holm"]
        text = Table(rows, columns, forms={"difference": "+.4f"}).markdown().strip()
        parts += ["", f"### {title}", "", text]
    return "\n".join(parts) + "\n"


def published(dataset: str, metric: str = "ndcg@10") -> list[dict[str, Any]]:
    """Return the published rows on the protocol of README's table, the best first."""
    rows = yaml.safe_load((HERE / "published.yaml").read_text())[dataset]
    return sorted((row for row in rows if "apart" not in row), key=lambda row: -row[metric])


def seeds_of(dataset: str) -> list[dict[str, Any]]:
    """Return the runs of the default model on a data set, one for each seed that there is."""
    names = [f"{dataset}_{DEFAULT}_default{seed}" for seed in SEEDS]
    return [read(name) for name in names if (HERE / f"runs/{name}.json").is_file()]


def result_lines(datasets: dict[str, str]) -> list[str]:
    """Return the lines of the table of the default model on these data sets."""
    lines = ["| `--dataset=...` | seeds | NDCG@10 | HR@10 | published: NDCG@10, HR@10 |", "|---|---:|---|---|---|"]
    for dataset, title in datasets.items():
        runs = seeds_of(dataset)
        cells = []
        for metric in ("ndcg@10", "hit@10"):
            values = [run["test"][metric] for run in runs]
            low, high = runs[0]["test_intervals"][metric]
            spread = f" ± {short(statistics.stdev(values))}" if len(values) > 1 else ""
            cells.append(f"{short(statistics.fmean(values))}{spread} ({short(low)}-{short(high)})")
        best, *rest = published(dataset)
        names = [f"{best['model']} {short(best['ndcg@10'])}, {short(best['hit@10'])}"]
        names += [f"{row['model']} {short(row['ndcg@10'])}, {short(row['hit@10'])}" for row in rest[:2]]
        lines.append(f"| {title} | {len(runs)} | {cells[0]} | {cells[1]} | {'; '.join(names)} |")
    return lines


def readme() -> str:
    """Return README: readme_template.md with the default model, its scores and what the ten lines print."""
    runs = {title: seeds_of(dataset) for dataset, title in TABLE.items()}
    *most, last = (
        f"{short(statistics.fmean(one['test']['ndcg@10'] for one in own))} on {title}" for title, own in runs.items()
    )
    (n_seeds,) = {len(group) for group in runs.values()}
    values = {"default": DEFAULT, "scores": f"{', '.join(most)} and {last} (means of {n_seeds} seeds)"}
    values["first_run"] = (HERE / "first_run.txt").read_text().strip()
    values["all_epochs"] = f"{read(FIRST)['test']['ndcg@10']:.3f}".removeprefix("0")
    timed = json.loads((HERE / "bench_first_run.json").read_text())["runs"]
    values["first_seconds"] = f"{max(run['cold'] for run in timed if run['checkout'] == 'now'):.0f}"
    return Template((HERE / "readme_template.md").read_text()).substitute(values)


def ten_lines() -> str:
    """Return README's Python."""
    (block,) = re.findall(r"```python\n(.*?)```", (HERE / "readme_template.md").read_text(), flags=re.DOTALL)
    return Template(block).substitute(default=DEFAULT)


def draw(file: Path) -> None:
    """Draw README's figure: one panel for each data set, a row for each published model, ours on top."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    figure, panels = plt.subplots(1, len(TABLE), figsize=(9, 2.5), layout="constrained")
    for axes, (dataset, title) in zip(panels, TABLE.items(), strict=True):
        runs, others = seeds_of(dataset), published(dataset)[:5]
        names = [f"{DEFAULT} (ours)", *(row["model"].replace("with sampled softmax", "(sampled)") for row in others)]
        low, high = runs[0]["test_intervals"]["ndcg@10"]
        axes.plot([low, high], [0, 0], color="#0072B2", lw=2)
        axes.plot(statistics.fmean(run["test"]["ndcg@10"] for run in runs), 0, "o", color="#0072B2", ms=7)
        axes.plot([row["ndcg@10"] for row in others], range(1, len(names)), "o", color="#777777", ms=6)
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.get_yticklabels()[0].set_fontweight("bold")
        axes.invert_yaxis()
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("test NDCG@10", fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
        axes.grid(axis="x", color="#dddddd", lw=0.6)
        axes.xaxis.set_major_locator(MaxNLocator(3))
        axes.margins(x=0.08)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("blue: mean over the seeds, bar: 95 % interval over users; grey: published, one seed", fontsize=8)
    figure.savefig(file, dpi=110)


def main() -> None:
    """Write claims.md, the figure and README."""
    if "--first" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-c", ten_lines()], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
            )
        # after the table of metrics, which ends with the name of its file
        (HERE / "first_run.txt").write_text(done.stdout.split("result.json\n")[-1])
    (HERE / "claims.md").write_text(claims_text())
    README.write_text(readme())
    draw(HERE / "first.png")


if __name__ == "__main__":
    main()
