"""The card of a run: the figures of its result, and a README of others left alone."""

import json
from pathlib import Path

from recbole_hyper import run
from recbole_hyper.runs.card import CARD, card_of, write_card
from tests.conftest import SMALL


def test_a_run_ends_with_its_card(random_data: Path, tmp_path: Path) -> None:
    keys = {"data_path": str(random_data), "output_dir": str(tmp_path / "run"), "epochs": 1, "confidence": 0.9}
    result = run("SASRecCE", "random", config_dict={**SMALL, **keys})
    text = (tmp_path / "run" / CARD).read_text()
    low, high = result["test_intervals"]["hit@10"]
    assert f"{result['test']['hit@10']:.4f}" in text
    assert f"{low:.4f} to {high:.4f}" in text
    for part in ("Data", "Protocol", "Figures", "Settings", "Intended use", "Limits", "How to load"):
        assert f"\n## {part}\n" in text
    assert "| hidden_size | 16 |" in text
    assert card_of(json.loads((tmp_path / "run" / "result.json").read_text())) == text


def test_a_readme_of_others_stays(tmp_path: Path) -> None:
    (tmp_path / CARD).write_text("# My notes\n")
    result = {"model": "Pop", "dataset": "shop", "test": {"hit@10": 0.5}, "config": {}}
    write_card(tmp_path, result)
    assert (tmp_path / CARD).read_text() == "# My notes\n"
    (tmp_path / CARD).unlink()
    for value in (0.5, 0.25):
        write_card(tmp_path, result | {"test": {"hit@10": value}})
        assert f"{value:.4f}" in (tmp_path / CARD).read_text()
