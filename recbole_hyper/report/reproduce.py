"""Reproduce a published table: compare the rows of a recipe, and print the published values beside ours."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from recbole_hyper.config import ConfigError
from recbole_hyper.config.binding import Exact
from recbole_hyper.evaluation.compare import mean
from recbole_hyper.evaluation.pairs import mean_interval, read_cases
from recbole_hyper.evaluation.statistics import StatisticsError, intervals
from recbole_hyper.evaluation.tables import Table
from recbole_hyper.experiment.compare import check_all, chosen_by, planned, train
from recbole_hyper.experiment.comparison import Comparison
from recbole_hyper.experiment.experiment import folder_name
from recbole_hyper.experiment.seeds import read_seeds
from recbole_hyper.files import write_text
from recbole_hyper.report.page import Page
from recbole_hyper.report.recipes import Recipe, Row, read_recipe
from recbole_hyper.sweep import sweep
from recbole_hyper.sweep.space import read_space
from recbole_hyper.yaml_files import merged

# what a reader must know about a budget
BUDGETS = {
    "full": "",
    "short": "The short budget trains with quicker settings than the paper's, chosen on validation.",
    "small": "The small budget shows that the recipe runs; its values cannot be compared with published ones.",
}
FORMS = {**dict.fromkeys(("ours", "low", "high", "published"), ".4f"), "difference": "+.4f", "relative": "+.1%"}


def reproduce(
    name: str,
    *,
    budget: str = "full",
    rows: Sequence[str] = (),
    output_dir: str | Path | None = None,
    data_path: str | None = None,
    seeds: str | None = None,
    max_concurrent: int | None = None,
) -> pd.DataFrame:
    """Compare the rows of a recipe and return its table. Finished runs in ``output_dir`` are not repeated.

    Args:
        name: name or file of the recipe.
        budget: "full" trains as the paper does. "short" uses quicker settings that were chosen on validation. "small"
            trains a few epochs to show that everything runs, without verdicts.
        rows: printed names of the rows to run; by default all (with "short": all that have short settings).
        output_dir: folder of the runs and of table.csv, table.md, table.tex and table.html.
        data_path: folder that contains the data set's folder.
        seeds: such as "1,2,3", for every row; by default each row has the seed of its settings.
        max_concurrent: most models that train at a time; default: one per core.

    A row with a search space is swept first, and the winner's settings are compared. Returns a row per cell: row,
    metric, seeds, ours, low and high of the 95 % interval, published, difference, relative difference, verdict, note.
    ConfigError for settings that cannot run, or a different finished run in ``output_dir``.
    """
    recipe = read_recipe(name)
    if budget not in BUDGETS:
        raise ConfigError(f"budget={budget!r} is unknown; allowed: {', '.join(BUDGETS)}")
    chosen = _chosen(recipe, rows, budget)
    models = {title: row.model for title, row in chosen.items()}
    settings: dict[str, Any] = {title: _keys(recipe, row, budget, data_path) for title, row in chosen.items()}
    folder = Path(output_dir or Path("saved") / f"reproduce-{recipe.name}-{budget}")
    numbers = [] if seeds is None else read_seeds(seeds, {})
    # check everything before the first run; a sweep checks its folder itself
    configs = check_all(models, recipe.dataset, settings, folder)
    spaces = {title: row for title, row in chosen.items() if row.space and budget != "short"}
    for row in spaces.values():
        read_space(row.space, "small" if budget == "small" else "full")
    for title, row in spaces.items():
        place = folder / "sweeps" / folder_name(title)
        print(f"\n{recipe.name}: {title}", flush=True)
        own = {**settings[title], "output_dir": str(place), "resume": (place / "sweep.yaml").is_file()}
        options: dict[str, Any] = {"space": row.space, "search": row.search, "num_samples": row.num_samples}
        sweep(row.model, recipe.dataset, **options, budget=budget, max_concurrent=max_concurrent, config_dict=own)
        settings[title] = Exact({**settings[title], **chosen_by(place, row.model, [row.model])})
    runs = planned(models, recipe.dataset, folder, settings, numbers)
    compared = train(runs, folder, configs, max_concurrent=max_concurrent)
    frame = pd.DataFrame(published_cells(recipe, compared, comparable=budget != "small"))
    print(f"\n{recipe.about}\n{_write(recipe, budget, frame, compared, folder)}\n{folder / 'table.html'}")
    return frame


def _chosen(recipe: Recipe, rows: Sequence[str], budget: str) -> dict[str, Row]:
    """Return the rows to run; with the short budget, those that have such settings."""
    known = {title: row for title, row in recipe.rows.items() if budget != "short" or recipe.short or row.short}
    unknown = [title for title in rows if title not in known]
    if unknown or not known:
        named = f"row {unknown[0]!r}" if unknown else "row"
        raise ConfigError(
            f"{recipe.name} has no {named} with --budget={budget}; its rows: {', '.join(known) or 'none'}"
        )
    return {title: row for title, row in known.items() if not rows or title in rows}


def _keys(recipe: Recipe, row: Row, budget: str, data_path: str | None) -> dict[str, Any]:
    of_budget = {"short": (recipe.short, row.short), "small": (recipe.small, row.small)}.get(budget, ())
    path = {"data_path": data_path} if data_path else {}
    return merged(recipe.settings, row.settings, {"show_progress": False}, *of_budget, path)


def published_cells(recipe: Recipe, compared: Comparison, *, comparable: bool = True) -> list[dict[str, Any]]:
    """Return a cell per published metric of each row, or per metric of its runs if the row was not published.

    ``ours`` is the mean over seeds. The 95 % interval covers users if there is one seed, and users and seeds if there
    are several. A metric that is not a mean over cases, such as coverage, has no interval.
    """
    cells: list[dict[str, Any]] = []
    for title, by_seed in compared.results.items():
        row, tests = recipe.rows[title], [result["test"] for result in by_seed.values()]
        values: Mapping[str, float | None] = row.published or dict.fromkeys(tests[0])
        bounds = _intervals(list(compared.folders[title].values()), list(values))
        for metric, published in values.items():
            ours, (low, high) = mean([test.get(metric) for test in tests]), bounds.get(metric, (None, None))
            difference = None if ours is None or published is None else ours - published
            cells.append({
                "row": title, "metric": metric, "seeds": len(tests), "ours": ours, "low": low, "high": high,
                "published": published, "difference": difference,
                "relative": difference / published if difference is not None and published else None,
                "verdict": verdict(ours, low, high, published, recipe.tolerance) if comparable else "",
                "note": row.note,
            })  # fmt: skip
    return cells + [{"row": title, "verdict": f"failed: {text}"} for title, text in compared.failed.items()]


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


def _intervals(folders: Sequence[Path], metrics: Sequence[str]) -> dict[str, Any]:
    try:
        cases = [read_cases(folder) for folder in folders]
    except StatisticsError:
        return {}
    if len(cases) > 1:
        both = {metric: mean_interval(cases, metric) for metric in metrics}
        return {metric: bounds for metric, bounds in both.items() if bounds is not None}
    return intervals(cases[0]["rank"].to_numpy(), cases[0]["user_id"].to_numpy(), metrics)


def _write(recipe: Recipe, budget: str, frame: pd.DataFrame, compared: Comparison, folder: Path) -> str:
    """Write the tables and the page; return the table of the published values as text."""
    note = "low to high: 95 % interval, over users with one seed, over users and seeds with several."
    table, (own, _) = Table.of(frame, forms=FORMS, caption=recipe.about, note=note), compared.tables()
    table.save(folder, "table")
    own.save(folder, "compare")
    page = Page(recipe.about, f"recipe {recipe.name}, {budget} budget, data set {recipe.dataset}")
    page.section("Our values beside the published ones")
    page.notes([BUDGETS[budget]] if BUDGETS[budget] else [])
    page.table(table)
    page.section("Our models", own.caption)
    page.table(own)
    if recipe.published_only:
        page.section("Published rows that are not reproduced")
        page.table(Table.of(pd.DataFrame([{"row": title, **row} for title, row in recipe.published_only.items()])))
    write_text(folder / "table.html", page.render())
    return Table.of(frame.drop(columns="note"), forms=FORMS).text()
