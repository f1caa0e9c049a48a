"""HGRU4Rec and GRU4RecCE as recommenders: they learn a known cycle and run with a learned curvature."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from recbole_hyper import encoders, run
from recbole_hyper.config import Config
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


def test_a_learned_curvature_starts_where_it_is_told(random_data: Path) -> None:
    keys = {**SMALL, "data_path": str(random_data), "curvature": "learn", "curvature_init": 0.25}
    config = Config("HGRU4Rec", "random", config_dict=keys)
    encoder = config.model_class.build_encoder(config, torch.nn.Embedding(5, config["hidden_size"], padding_idx=0))
    assert float(encoder.gru.curvature) == pytest.approx(0.25)


def test_the_public_names_are_there() -> None:
    for name in encoders.__all__:
        assert getattr(encoders, name).__name__ == name
