"""The report as a browser shows it: nothing is cut off at 1280 pixels, and a click on a head sorts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from recbole_hyper.report.build import build_report
from tests.report.conftest import write_run, write_sweep

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTH = 1280
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")]

# what a script finds in the page is left in the attribute data-found of the body
FOUND = re.compile(r'<body[^>]*data-found="([^"]*)"')
MEASURE = """
document.querySelectorAll("details").forEach(function (part) { part.open = true; });
var cut = [];
document.querySelectorAll(".wide, th, td, p, h3, li").forEach(function (part) {
  if (part.scrollWidth > part.clientWidth && part.clientWidth > 0) { cut.push(part.textContent.slice(0, 80)); }
});
return {
  cut: cut, tables: document.querySelectorAll("table").length, page: document.documentElement.scrollWidth,
  images: Array.from(document.images).map(function (image) { return [image.naturalWidth, image.clientWidth]; })
};
"""
SORT = """
var table = document.querySelector("table"), heads = Array.from(table.tHead.rows[0].cells);
var column = heads.findIndex(function (head) { return head.textContent === NAME; });
var read = function () {
  return Array.from(table.tBodies[0].rows).map(function (row) { return row.cells[column].dataset.value; });
};
var orders = [read()];
for (var click = 0; click < 2; click++) { heads[column].click(); orders.push(read()); }
return [orders, heads[column].getAttribute("aria-sort")];
"""


def chromium(page: Path, folder: Path, *options: str) -> str:
    """Open ``page`` without a screen and return what Chromium prints."""
    quiet = ["--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
    command = [str(CHROMIUM), "--headless", "--no-sandbox", *quiet, "--disable-sync", "--hide-scrollbars"]
    place = [f"--user-data-dir={folder / 'profile'}", f"--window-size={WIDTH},1000"]
    done = subprocess.run(
        [*command, *place, *options, page.as_uri()], capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout


def found_by(script: str, page: Path, folder: Path) -> Any:
    """Return what ``script`` returns when it runs in a copy of ``page``."""
    text = page.read_text(encoding="utf-8")
    code = f"document.body.dataset.found = JSON.stringify((function () {{ {script} }})());"
    copy = folder / "copy.html"
    # when figures are there
    copy.write_text(
        text.replace("</body>", f'<script>window.addEventListener("load", function () {{{code}}});</script></body>')
    )
    match = FOUND.search(chromium(copy, folder, "--dump-dom"))
    assert match, "the script did not end"
    return json.loads(unescape(match[1]))


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """The report over a sweep and sixteen runs with many metrics, long names, several seeds and other candidates."""
    metrics = [f"{name}@{k}" for name in ("ndcg", "hit", "mrr", "itemcoverage") for k in (1, 10, 100)]
    for number in range(12):
        values = {name: (1 + (7 * number) % 12) / 100 for name in metrics}
        config = {
            "hidden_size": 2 ** (3 + number % 4), "train_batch_size": 128 if number % 3 else 4096,
            "relative_positions": "transformer_xl" if number < 9 else "none", "epochs": 150 if number % 2 else 10,
            "hidden_dropout_prob": 0.2 if number % 2 else 0.51234, "learning_rate": 0.001 / (1 + number // 4),
        }  # fmt: skip
        for seed in (1, 2) if number < 3 else (1,):
            write_run(
                tmp_path / "saved" / f"{number}-{seed}", model="SASRecCE" if number % 4 else "DualFMLPRec",
                dataset="amazon-beauty-sequences", valid=values, best_valid_score=values["ndcg@10"], seed=seed,
                test={name: value + seed / 900 for name, value in values.items()}, config={**config, "seed": seed},
                parameters=146_422_100 + number, seconds={"train": 0.02 if number == 5 else 777.0 * (1 + number)},
                epochs=10 + number, curvature=0.1 + number, curvature_origin="estimated from the training data",
            )  # fmt: skip
    write_run(tmp_path / "saved" / "drawn", dataset="amazon-beauty-sequences", eval_args={"mode": "uni99"})
    keys = ("attn_dropout_prob", "hidden_dropout_prob", "learning_rate", "train_batch_size", "n_layers", "n_negatives")
    trial = {"status": "finished", "seconds": 1234.5, "MiB": 12345}
    trials = [
        {**trial, "score": number / 10, "hidden_size": 16 * 2**number, "more": {key: 0.1 * number for key in keys}}
        for number in range(1, 5)
    ]
    trials.append({"status": "failed", "hidden_size": 9, "reason": f"out of memory: {'very_long_name' * 20}"})
    write_sweep(tmp_path / "saved" / "sweep", trials)
    return build_report([tmp_path / "saved"], tmp_path / "report")


def test_nothing_is_cut_off(page: Path, tmp_path: Path) -> None:
    found = found_by(MEASURE, page, tmp_path)
    assert found["cut"] == []
    assert found["page"] <= WIDTH
    assert found["tables"] >= 6
    assert len(found["images"]) >= 4
    assert all(natural > 0 and 0 < shown < WIDTH for natural, shown in found["images"])


@pytest.mark.parametrize(("head", "numeric"), [("test ndcg@10", True), ("model", False), ("training,\u00a0s", True)])
def test_a_click_sorts(head: str, numeric: bool, page: Path, tmp_path: Path) -> None:
    (before, first, second), state = found_by(SORT.replace("NAME", json.dumps(head)), page, tmp_path)
    assert len(before) == 12
    in_order = sorted(before, key=float if numeric else str.casefold)
    assert (first, second) == ((in_order[::-1], in_order) if numeric else (in_order, in_order[::-1]))
    assert state == ("ascending" if numeric else "descending")
