"""Recipes that make a published table again: run or sweep every row, and set ours beside the published value."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from recbole_hyper.config import Config, ConfigError, merge, properties_folder, read_yaml
from recbole_hyper.evaluation.results import table
from recbole_hyper.files import write_text
from recbole_hyper.report.page import Page, markdown
from recbole_hyper.runs.reuse import is_finished, resume_keys

BUDGETS = ("full", "small")
RECIPE_KEYS = {"about", "dataset", "prepare", "settings", "tolerance", "small", "rows", "published_only"}
ROW_KEYS = {
    "model",
    "settings",
    "config",
    "space",
    "small_space",
    "search",
    "num_samples",
    "small",
    "published",
    "note",
}


@dataclass(frozen=True)
class Row:
    """One row of a table: a model with its settings or search space, and what was published.

    Attributes:
        model: name of the model.
        settings: keys of this row, over those of the recipe.
        space: file below properties/sweep to tune over, or "" to run the settings.
        small_space: the same for the small budget.
        search: search of the sweep.
        num_samples: samples of the sweep.
        small: keys of this row under the small budget.
        published: RecBole's metric name to the printed value.
        note: what the reader must know.
    """

    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    space: str = ""
    small_space: str = ""
    search: str = "grid"
    num_samples: int | None = None
    small: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Recipe:
    """A published table on one data set.

    Attributes:
        name: file name without suffix, ``<paper>-<table>-<dataset>``.
        about: one line on the table.
        dataset: name of the data set.
        prepare: command that prepares it.
        settings: keys of every row: protocol, metrics, training.
        tolerance: relative difference up to which a value counts as reproduced.
        small: keys of every row under the small budget.
        rows: rows that are made again, by their printed name.
        published_only: rows that are printed for comparison.
    """

    name: str
    about: str
    dataset: str
    prepare: str
    settings: Mapping[str, Any]
    tolerance: float
    small: Mapping[str, Any]
    rows: Mapping[str, Row]
    published_only: Mapping[str, Mapping[str, float]]


def recipes() -> dict[str, Path]:
    """Return the file of every recipe, by name."""
    return {path.stem: path for path in sorted((properties_folder() / "reproduce").glob("*.yaml"))}


def read_recipe(name: str) -> Recipe:
    """Read a recipe by name, or from a file.

    Raises:
        ConfigError: no such recipe, an unknown key, a row without model or published values.
    """
    known = recipes()
    path = known.get(name, Path(name))
    if not path.is_file():
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; see recbole-hyper reproduce --list"
        raise ConfigError(f"recipe {name!r} is unknown{hint}")
    content = read_yaml(path)
    _refuse(content, RECIPE_KEYS, path)
    for key in ("about", "dataset", "rows"):
        if not content.get(key):
            raise ConfigError(f"{path}: {key} is missing")
    rows = {str(title): _row(entry or {}, f"{path}, row {title}") for title, entry in content["rows"].items()}
    return Recipe(
        path.stem,
        content["about"],
        content["dataset"],
        content.get("prepare") or f"recbole-hyper prepare {content['dataset']}",
        content.get("settings") or {},
        float(content.get("tolerance", 0.05)),
        content.get("small") or {},
        rows,
        content.get("published_only") or {},
    )


def _row(entry: dict[str, Any], where: str) -> Row:
    _refuse(entry, ROW_KEYS, where)
    settings = dict(entry.get("settings") or {})
    if entry.get("config"):
        file = properties_folder() / entry["config"]
        if not file.is_file():
            raise ConfigError(f"{where}: config {entry['config']!r} does not exist below {properties_folder()}")
        settings = _merged(read_yaml(file), settings)
    model = entry.get("model") or settings.get("model")
    settings.pop("model", None)
    if not model or not entry.get("published"):
        raise ConfigError(f"{where}: model and published are needed")
    for key in ("space", "small_space"):
        if entry.get(key) and not (properties_folder() / "sweep" / entry[key]).is_file():
            raise ConfigError(f"{where}: {key} {entry[key]!r} does not exist in properties/sweep")
    return Row(
        str(model),
        settings,
        entry.get("space", ""),
        entry.get("small_space", ""),
        entry.get("search", "grid"),
        entry.get("num_samples"),
        entry.get("small") or {},
        {str(metric): float(value) for metric, value in entry["published"].items()},
        entry.get("note", ""),
    )


def _refuse(content: Mapping[str, Any], known: set[str], where: Any) -> None:
    for key in content:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}; known: {', '.join(sorted(known))}")


def reproduce(
    name: str,
    *,
    budget: str = "full",
    rows: Sequence[str] = (),
    output_dir: str | Path | None = None,
    data_path: str | None = None,
    n_seeds: int = 1,
    executor: str = "ray",
) -> pd.DataFrame:
    """Run a recipe and return its table; what ``output_dir`` holds of it already is not run again.

    Args:
        name: recipe.
        budget: "full", or "small" for a few epochs that show that everything runs; small values get no verdict.
        rows: printed names of the rows to run; none for all.
        output_dir: folder of the runs and of table.csv, table.md and table.html.
        data_path: folder that holds the data set's folder.
        n_seeds: seeds of every row.
        executor: of sweeps, see :func:`recbole_hyper.sweep.sweep`.

    Returns:
        A row per cell: row, metric, ours, low and high of the 95% interval, published, difference, relative
        difference, verdict, note.

    Raises:
        ConfigError: an unknown recipe, row or model, a data set that is not there (and how to prepare it), or a
            finished run in ``output_dir`` that is not the one asked for, such as that of the small budget.
    """
    recipe = read_recipe(name)
    if budget not in BUDGETS:
        raise ConfigError(f"budget={budget!r} is unknown; allowed: {', '.join(BUDGETS)}")
    unknown = [row for row in rows if row not in recipe.rows]
    if unknown:
        raise ConfigError(f"{recipe.name} has no row {unknown[0]!r}; its rows: {', '.join(recipe.rows)}")
    chosen = {title: row for title, row in recipe.rows.items() if not rows or title in rows}
    keys = {title: _keys(recipe, row, budget, data_path) for title, row in chosen.items()}
    folder = Path(output_dir or Path("saved") / f"reproduce-{recipe.name}-{budget}")
    for title, row in chosen.items():
        _check(recipe, row, keys[title])
        # a sweep looks at its folder itself
        if not _space(row, budget):
            for config in _seeds(recipe, row, keys[title], folder / _folder_name(title), n_seeds):
                is_finished(config, Path(config["output_dir"]))
    cells: list[dict[str, Any]] = []
    for title, row in chosen.items():
        place = folder / _folder_name(title)
        print(f"\n{recipe.name}: {title}", flush=True)
        results = _run_row(row, recipe, keys[title], place, budget, n_seeds, executor)
        cells += compare(title, row, results, recipe.tolerance, comparable=budget == "full")
        _write(recipe, budget, pd.DataFrame(cells), folder)
    frame = pd.DataFrame(cells)
    shown = [{key: value for key, value in cell.items() if key != "note"} for cell in cells]
    print(f"\n{recipe.about}\n{table(shown)}\n{folder / 'table.html'}")
    return frame


def _keys(recipe: Recipe, row: Row, budget: str, data_path: str | None) -> dict[str, Any]:
    small = (recipe.small, row.small) if budget == "small" else ()
    keys = _merged(recipe.settings, row.settings, {"show_progress": False}, *small)
    if data_path:
        keys["data_path"] = data_path
    return keys


def _merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return all keys, later ones win; ``eval_args`` key by key, as a configuration does."""
    keys: dict[str, Any] = {}
    for part in parts:
        merge(keys, part)
    return keys


def _check(recipe: Recipe, row: Row, keys: Mapping[str, Any]) -> None:
    try:
        Config(row.model, recipe.dataset, config_dict=dict(keys))
    except ConfigError as error:
        if "was not found" in str(error) and recipe.dataset in str(error):
            raise ConfigError(
                f"recipe {recipe.name} needs the data set {recipe.dataset!r}. Prepare it with '{recipe.prepare}', or "
                f"give the folder that holds it with --data_path=DIR. ({error})"
            ) from error
        raise


def _run_row(
    row: Row, recipe: Recipe, keys: dict[str, Any], place: Path, budget: str, n_seeds: int, executor: str
) -> list[Path]:
    """Run a row and return the folders of its tested runs."""
    from recbole_hyper.runs.run import run
    from recbole_hyper.sweep import sweep

    space = _space(row, budget)
    if space:
        resume = (place / "sweep.yaml").is_file()
        outcome = sweep(
            row.model,
            recipe.dataset,
            space=properties_folder() / "sweep" / space,
            config_dict={**keys, "output_dir": str(place), "resume": resume},
            search=row.search,
            num_samples=row.num_samples,
            executor=executor,
            n_seeds=n_seeds,
        )
        return [place / name for name in outcome["best_runs"]]
    folders = []
    for config in _seeds(recipe, row, keys, place, n_seeds):
        folder = Path(config["output_dir"])
        if not is_finished(config, folder):
            own = {"seed": config["seed"], "output_dir": str(folder), **resume_keys(config, folder)}
            run(row.model, recipe.dataset, config_dict={**keys, **own})
        folders.append(folder)
    return folders


def _space(row: Row, budget: str) -> str:
    return row.small_space if budget == "small" and row.small_space else row.space


def _seeds(recipe: Recipe, row: Row, keys: Mapping[str, Any], place: Path, n_seeds: int) -> list[Config]:
    """Return the configuration of each run of a row, with its seed and its folder in ``place``."""
    first = int(Config(row.model, recipe.dataset, config_dict=dict(keys))["seed"])
    return [
        Config(row.model, recipe.dataset, config_dict={**keys, "seed": seed, "output_dir": str(place / f"seed-{seed}")})
        for seed in range(first, first + n_seeds)
    ]


def compare(
    title: str, row: Row, folders: Sequence[Path], tolerance: float, *, comparable: bool = True
) -> list[dict[str, Any]]:
    """Return a cell per published metric: ours is the mean over ``folders`` (one for each seed).

    The interval is a 95% bootstrap over users of the cases of all seeds together; a metric that is no mean over cases,
    such as coverage, has none.
    """
    results = [json.loads((folder / "result.json").read_text(encoding="utf-8")) for folder in folders]
    bounds = _intervals(folders, list(row.published))
    cells = []
    for metric, published in row.published.items():
        values = [result["test"].get(metric) for result in results]
        known = [value for value in values if value is not None]
        ours = float(np.mean(known)) if len(known) == len(values) else None
        low, high = bounds.get(metric, (None, None))
        cells.append(
            {
                "row": title,
                "metric": metric,
                "ours": ours,
                "low": low,
                "high": high,
                "published": published,
                "difference": None if ours is None else ours - published,
                "relative": None if ours is None else (ours - published) / published,
                "verdict": verdict(ours, low, high, published, tolerance) if comparable else "small budget: none",
                "note": row.note,
            }
        )
    return cells


def verdict(ours: float | None, low: float | None, high: float | None, published: float, tolerance: float) -> str:
    """Say in words whether a published value is reproduced, by tolerance or by interval."""
    if ours is None:
        return "not computed"
    if abs(ours - published) <= tolerance * abs(published):
        return f"reproduced (within {tolerance:.0%})"
    if low is not None and high is not None and low <= published <= high:
        return "reproduced (inside our interval)"
    return "above the published value" if ours > published else "below the published value"


def _intervals(folders: Sequence[Path], metrics: Sequence[str]) -> dict[str, tuple[float, float]]:
    from recbole_hyper.evaluation.statistics import intervals

    files = [folder / "cases_test.parquet" for folder in folders]
    if not all(file.is_file() for file in files):
        return {}
    cases = pd.concat([pd.read_parquet(file, columns=["user_id", "rank"]) for file in files], ignore_index=True)
    found = intervals(cases["rank"].to_numpy(), cases["user_id"].to_numpy(), list(metrics))
    return {metric: (low, high) for metric, (low, high) in found.items()}


def _write(recipe: Recipe, budget: str, frame: pd.DataFrame, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "table.csv", frame.to_csv(index=False))
    write_text(folder / "table.md", f"{recipe.about}\n\n{markdown(frame)}")
    page = Page(recipe.about, f"recipe {recipe.name}, {budget} budget, data set {recipe.dataset}")
    page.section("Ours beside the published values", "95% intervals: bootstrap over users.")
    if budget == "small":
        page.notes(["The small budget shows that the recipe runs; its values cannot be compared with published ones."])
    page.table(frame)
    if recipe.published_only:
        page.section("Published rows that are not made again")
        page.table(pd.DataFrame([{"row": title, **values} for title, values in recipe.published_only.items()]))
    write_text(folder / "table.html", page.render())


def _folder_name(title: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in title).strip("-")
