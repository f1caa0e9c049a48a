"""Reproduce a published table: run or sweep every row of a recipe, and print the values beside the published ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.evaluation.pairs import mean_interval, read_cases
from recbole_hyper.evaluation.statistics import StatisticsError, intervals
from recbole_hyper.evaluation.tables import Table
from recbole_hyper.experiment.experiment import Experiment, Run
from recbole_hyper.files import read_json, write_text
from recbole_hyper.report.page import Page
from recbole_hyper.report.recipes import Recipe, Row, read_recipe
from recbole_hyper.runs.folder import plan_runs, seed_folder
from recbole_hyper.runs.run import run
from recbole_hyper.sweep import sweep
from recbole_hyper.sweep.space import BUDGETS as SPACE_BUDGETS
from recbole_hyper.sweep.space import read_space
from recbole_hyper.yaml_files import merged

# the short budget replaces a row's search space by settings
BUDGETS = (*SPACE_BUDGETS, "short")


def reproduce(
    name: str,
    *,
    budget: str = "full",
    rows: Sequence[str] = (),
    output_dir: str | Path | None = None,
    data_path: str | None = None,
    n_seeds: int = 1,
) -> pd.DataFrame:
    """Run a recipe and return its table. Finished runs in ``output_dir`` are not repeated.

    Args:
        name: name or file of the recipe.
        budget: "full" trains as the paper does. "short" uses quicker settings that were chosen on validation. "small"
            trains a few epochs to show that everything runs, without verdicts.
        rows: printed names of the rows to run; by default all (with "short": all that have short settings).
        output_dir: folder of the runs and of table.csv, table.md, table.tex and table.html.
        data_path: folder that contains the data set's folder.
        n_seeds: number of seeds per row.

    Returns a row per cell: row, metric, seeds, ours, low and high of the 95 % interval, published, difference, relative
    difference, verdict, note. ConfigError for settings that cannot run, or a different finished run in ``output_dir``.
    """
    recipe = read_recipe(name)
    if budget not in BUDGETS:
        raise ConfigError(f"budget={budget!r} is unknown; allowed: {', '.join(BUDGETS)}")
    if unknown := [row for row in rows if row not in recipe.rows]:
        raise ConfigError(f"{recipe.name} has no row {unknown[0]!r}; its rows: {', '.join(recipe.rows)}")
    chosen = _chosen(recipe, rows, budget)
    keys = {title: _keys(recipe, row, budget, data_path) for title, row in chosen.items()}
    folder = Path(output_dir or Path("saved") / f"reproduce-{recipe.name}-{budget}")
    plans = {}
    # check everything before the first run; sweep checks its folder itself
    for title, row in chosen.items():
        config = _bound(recipe, row, keys[title])
        if row.space:
            read_space(row.space, budget)
        else:
            seeds, place = range(config["seed"], config["seed"] + n_seeds), folder / _folder_name(title)
            planned = plan_runs(row.model, recipe.dataset, seeds, place, keys[title])
            plans[title] = [
                Run(row.model, recipe.dataset, seed, settings, seed_folder(place, seed), title)
                for seed, settings in planned.items()
            ]
    cells: list[dict[str, Any]] = []
    for title, row in chosen.items():
        row_folder = folder / _folder_name(title)
        print(f"\n{recipe.name}: {title}", flush=True)
        if row.space:
            resume = (row_folder / "sweep.yaml").is_file()
            outcome = sweep(
                row.model, recipe.dataset, space=row.space, search=row.search, num_samples=row.num_samples,
                budget=budget, n_seeds=n_seeds,
                config_dict={**keys[title], "output_dir": str(row_folder), "resume": resume},
            )  # fmt: skip
            results = [row_folder / name for name in outcome["best_runs"]]
        else:
            results = [one.folder for one in plans[title]]
            Experiment(plans[title]).execute(_train)
        cells += compare(title, row, results, recipe.tolerance, comparable=budget != "small")
        _write(recipe, budget, pd.DataFrame(cells), folder)
    frame = pd.DataFrame(cells)
    print(f"\n{recipe.about}\n{_table(recipe, frame.drop(columns='note')).text()}\n{folder / 'table.html'}")
    return frame


def _train(one: Run) -> None:
    run(one.model, one.dataset, config_dict=one.keys)


def _chosen(recipe: Recipe, rows: Sequence[str], budget: str) -> dict[str, Row]:
    """Return the rows to run; with the short budget, without their search space."""
    chosen = {title: row for title, row in recipe.rows.items() if not rows or title in rows}
    if budget != "short":
        return chosen
    short = [title for title, row in recipe.rows.items() if recipe.short or row.short]
    if missing := [title for title in rows if title not in short] or ([] if short else list(chosen)):
        hint = f"rows with such settings: {', '.join(short)}" if short else "no row has any; leave --budget out"
        raise ConfigError(f"{recipe.name}, row {missing[0]!r} has no settings for --budget=short; {hint}")
    return {title: replace(row, space="") for title, row in chosen.items() if title in short}


def _keys(recipe: Recipe, row: Row, budget: str, data_path: str | None) -> dict[str, Any]:
    of_budget = {"short": (recipe.short, row.short), "small": (recipe.small, row.small)}.get(budget, ())
    path = {"data_path": data_path} if data_path else {}
    return merged(recipe.settings, row.settings, {"show_progress": False}, *of_budget, path)


def _bound(recipe: Recipe, row: Row, keys: Mapping[str, Any]) -> Config:
    """Return the configuration of a row; if the data are missing, the ConfigError says how to prepare them."""
    try:
        return Config(row.model, recipe.dataset, config_dict=dict(keys))
    except ConfigError as error:
        if "was not found" in str(error) and recipe.dataset in str(error):
            raise ConfigError(
                f"recipe {recipe.name} needs the data set {recipe.dataset!r}. Prepare it with '{recipe.prepare}', or "
                f"name the folder above it with --data_path=DIR. ({error})"
            ) from error
        raise


def compare(
    title: str, row: Row, folders: Sequence[Path], tolerance: float, *, comparable: bool = True
) -> list[dict[str, Any]]:
    """Return a cell per published metric, or per metric of the runs if the row was not published.

    ``ours`` is the mean over ``folders``, one per seed. The 95 % interval covers users if there is one seed, and users
    and seeds if there are several. A metric that is not a mean over cases, such as coverage, has no interval.
    """
    results = [read_json(folder / "result.json") for folder in folders]
    published_values: Mapping[str, float | None] = row.published or dict.fromkeys(results[0]["test"])
    bounds = _intervals(folders, list(published_values))
    cells = []
    for metric, published in published_values.items():
        values = [result["test"].get(metric) for result in results]
        ours = None if None in values else float(np.mean(values))
        low, high = bounds.get(metric, (None, None))
        difference = relative = None
        if ours is not None and published is not None:
            difference, relative = ours - published, (ours - published) / published
        cells.append({
            "row": title, "metric": metric, "seeds": len(folders), "ours": ours, "low": low, "high": high,
            "published": published, "difference": difference, "relative": relative,
            "verdict": verdict(ours, low, high, published, tolerance) if comparable else "small budget: none",
            "note": row.note,
        })  # fmt: skip
    return cells


def verdict(
    ours: float | None, low: float | None, high: float | None, published: float | None, tolerance: float
) -> str:
    """Return a verdict in words: is the published value within the tolerance, or inside our interval?"""
    if published is None:
        return "not published"
    if ours is None:
        return "not computed"
    if abs(ours - published) <= tolerance * abs(published):
        return f"reproduced (within {tolerance:.0%})"
    if low is not None and high is not None and low <= published <= high:
        return "reproduced (inside our interval)"
    return "above the published value" if ours > published else "below the published value"


def _intervals(folders: Sequence[Path], metrics: Sequence[str]) -> dict[str, tuple[float, float]]:
    try:
        cases = [read_cases(folder) for folder in folders]
    except StatisticsError:
        return {}
    if len(cases) > 1:
        both = {metric: mean_interval(cases, metric) for metric in metrics}
        return {metric: bounds for metric, bounds in both.items() if bounds is not None}
    bounds = intervals(cases[0]["rank"].to_numpy(), cases[0]["user_id"].to_numpy(), list(metrics))
    return {metric: (low, high) for metric, (low, high) in bounds.items()}


def _table(recipe: Recipe, frame: pd.DataFrame) -> Table:
    values = dict.fromkeys(("ours", "low", "high", "published"), ".4f")
    forms = {**values, "difference": "+.4f", "relative": "+.1%"}
    note = "low to high: 95 % interval, over users with one seed, over users and seeds with several."
    return Table.of(frame, forms=forms, caption=recipe.about, note=note)


def _write(recipe: Recipe, budget: str, frame: pd.DataFrame, folder: Path) -> None:
    table = _table(recipe, frame)
    table.save(folder, "table")
    page = Page(recipe.about, f"recipe {recipe.name}, {budget} budget, data set {recipe.dataset}")
    page.section("Our values beside the published ones")
    notes = {
        "small": "The small budget shows that the recipe runs; its values cannot be compared with published ones.",
        "short": "The short budget trains with quicker settings than the paper's, chosen on validation.",
    }
    page.notes([notes[budget]] if budget in notes else [])
    page.table(table)
    if recipe.published_only:
        page.section("Published rows that are not reproduced")
        rows = [{"row": title, **values} for title, values in recipe.published_only.items()]
        page.table(Table.of(pd.DataFrame(rows)))
    write_text(folder / "table.html", page.render())


def _folder_name(title: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in title).strip("-")
