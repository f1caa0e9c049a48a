"""HGRU4Rec and GRU4RecCE as recommenders: they learn a known cycle and run with a learned curvature."""

from __future__ import annotations

from pathlib import Path

import pytest

from recbole_hyper import run
from tests.conftest import SMALL


@pytest.mark.parametrize(
    ("model", "options"), [("GRU4RecCE", {}), ("HGRU4Rec", {}), ("HGRU4Rec", {"curvature": "learn", "gru_size": 8})]
)
def test_learns_that_the_next_item_follows(model: str, options: dict, cycle: Path, tmp_path: Path) -> None:
    keys = {
        **SMALL,
        "data_path": str(cycle),
        "epochs": 40,
        "learning_rate": 0.02,
        "exclude_seen": False,
        "topk": [1, 10],
        "output_dir": str(tmp_path / "run"),
        **options,
    }
    result = run(model, "cycle", config_dict=keys)
    assert result["test"]["hit@1"] == 1.0
