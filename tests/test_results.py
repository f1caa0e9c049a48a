"""What README and results/ print is what their scripts make of the result files."""

from __future__ import annotations

import importlib.util
import re
import statistics
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"


def script(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"results_{name}", RESULTS / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_readme_is_written_by_its_template() -> None:
    claims = script("claims")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text == claims.readme(), "edit results/readme_template.md, then run python results/claims.py"
    assert (RESULTS / "first.png").is_file()


def test_readme_says_how_the_default_model_and_the_hyperbolic_head_compare() -> None:
    """README's words about results are true of the result files."""
    claims = script("claims")
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "the best of them is above our mean and inside our 95 % interval on all three" in text
    for dataset in claims.TABLE:
        runs, best = claims.seeds_of(dataset), claims.published(dataset)[0]["ndcg@10"]
        assert statistics.fmean(run["test"]["ndcg@10"] for run in runs) < best
        assert best <= runs[0]["test_intervals"]["ndcg@10"][1]
    assert "no certain gain over a dot product of the same width, and on sparse data it costs accuracy" in text
    heads = {title: rows for title, rows in claims.claims().items() if title.startswith("Poincare head")}
    tested = [(title, row) for title, rows in heads.items() for row in rows if row["seeds"] > 1]
    certain = [(title, row["difference"]) for title, row in tested if row["p"] == "< .01" or float(row["p"]) < 0.05]
    assert len(certain) > 2
    assert all(difference < 0 and "Amazon" in title for title, difference in certain)


def test_differences_are_those_of_the_result_files() -> None:
    claims = script("claims")
    assert (RESULTS / "claims.md").read_text(encoding="utf-8") == claims.claims_text()
    rows = [row for group in claims.claims().values() for row in group]
    assert len(rows) > 15
    assert all((row["seeds"] == 1) == (row["p"] == "one seed") for row in rows)


def test_the_best_published_row_is_the_best(tmp_path: Path) -> None:
    claims = script("claims")
    everything = yaml.safe_load((RESULTS / "published.yaml").read_text())
    for dataset in claims.TABLE:
        rows = everything[dataset]
        best = claims.published(dataset)[0]
        assert all(row["ndcg@10"] <= best["ndcg@10"] for row in rows if "apart" not in row)
        assert all(row["source"] and 0 < row["ndcg@10"] < row["hit@10"] < 1 for row in rows)


@pytest.mark.slow
def test_published_cells_are_those_of_the_result_files() -> None:
    content, _ = script("cells").text()
    assert (RESULTS / "cells.md").read_text(encoding="utf-8") == content


def test_pages_point_at_files_that_are_there() -> None:
    pages = [page for page in RESULTS.glob("*.md") if page.name != "readme_template.md"]
    for page in (ROOT / "README.md", *pages):
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
