"""One run in one process and in several: its keys, and that both train the same."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import small

PLAIN = {"hidden_dropout_prob": 0.0, "attn_dropout_prob": 0.0, "epochs": 4, "topk": [5], "valid_metric": "NDCG@5"}
ITEMS = "item_embedding.weight"


settings = partial(small, **PLAIN, use_gpu=False)


def same_training(one: Path, several: Path) -> None:
    """Compare loss curves, validation and test of two runs."""
    curves = [pd.read_csv(folder / "train.csv") for folder in (one, several)]
    assert len(curves[0]) == PLAIN["epochs"]
    np.testing.assert_allclose(curves[0].train_loss, curves[1].train_loss, rtol=2e-5)
    np.testing.assert_allclose(curves[0]["valid_ndcg@5"], curves[1]["valid_ndcg@5"], atol=0.02)
    results = [json.loads((folder / "result.json").read_text()) for folder in (one, several)]
    assert results[0]["n_test_cases"] == results[1]["n_test_cases"]
    for metric in ("ndcg@5", "hit@5"):
        assert results[0]["test"][metric] == pytest.approx(results[1]["test"][metric], abs=0.03)
