"""examples/train.py learns an order that can be learned, and its model is the package's."""

import sys
from pathlib import Path

import pandas as pd
import pytest

from examples import train
from recbole_hyper.protocols.leave_one_out import LeaveOneOut
from tests.conftest import cycle_rows


def test_the_example_learns_what_follows(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch) -> None:
    file = tmp_path / "orders.csv"
    pd.DataFrame(cycle_rows(), columns=["user_id", "item_id", "timestamp"]).to_csv(file, index=False)
    split = LeaveOneOut("valid_and_test").split(train.read(str(file)))
    model = train.train(split, epochs=12, width=16, rate=0.02)
    assert train.measure(model, split.test)["hit@10"] > 0.9
    assert model.head.theta_value > 0
    monkeypatch.setattr(sys, "argv", ["train.py", str(file), "--epochs=1"])
    train.main()
    assert "test: {'ndcg@10': " in capsys.readouterr().out
