"""What README and results/ print is what their scripts make of the result files."""

from __future__ import annotations

import importlib.util
import re
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


def test_readme_prints_what_the_result_files_hold() -> None:
    claims = script("claims")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count(claims.BEGIN) == text.count(claims.END) == 1
    shown = claims.BEGIN + text.split(claims.BEGIN)[1].split(claims.END)[0] + claims.END
    assert shown == claims.readme_part(), "python results/claims.py writes it anew"
    assert (RESULTS / "first.png").is_file()


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
