"""Ranking a part of a split: shares of several processes, joined, equal the ranking of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recbole_hyper.config import Config
from recbole_hyper.models.contract import make_scorer
from recbole_hyper.runs.build import build, read_data
from recbole_hyper.runs.run import evaluations
from recbole_hyper.training import validation
from recbole_hyper.training.settings import RankSettings
from recbole_hyper.training.validation import Evaluation, metrics, rank
from recbole_hyper.types import Ranks
from tests.conftest import SMALL


@pytest.fixture
def parts(random_data: Path) -> tuple[Any, Config, Evaluation]:
    keys = {**SMALL, "data_path": str(random_data), "use_gpu": False, "topk": [3, 10]}
    config = Config("SASRecCE", "random", config_dict=keys)
    data, split = read_data(config)
    model, _, training = build(config, data, split, split.train_lengths)
    return model, config, evaluations(split, training)[0]


@pytest.mark.parametrize("processes", [2, 3, 100])  # 100: more processes than cases
def test_shares_of_processes_are_the_whole(
    processes: int, parts: tuple[Any, Config, Evaluation], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, config, evaluation = parts
    whole = rank(make_scorer(model.eval(), config), RankSettings.of(config), evaluation)
    shares: list[Ranks | None] = []

    class Sent(Exception):
        pass

    def send(own: Ranks | None) -> Any:
        shares.append(own)
        raise Sent

    monkeypatch.setattr(validation, "gathered", send)
    for process in range(processes):
        monkeypatch.setattr(validation, "world", lambda process=process: (process, processes))
        with pytest.raises(Sent):
            rank(make_scorer(model.eval(), config), RankSettings.of(config), evaluation)
    monkeypatch.setattr(validation, "gathered", lambda own: shares)
    joined = rank(make_scorer(model.eval(), config), RankSettings.of(config), evaluation)
    assert joined.ranks.tolist() == whole.ranks.tolist()
    assert joined.top_items.tolist() == whole.top_items.tolist()
    assert joined.tied == pytest.approx(whole.tied)


def test_metrics_are_those_of_the_ranks(parts: tuple[Any, Config, Evaluation]) -> None:
    model, config, evaluation = parts
    ranks = rank(make_scorer(model.eval(), config), RankSettings.of(config), evaluation)
    found = metrics(RankSettings.of(config), evaluation, ranks)
    for k in (3, 10):
        gains = np.where(ranks.ranks <= k, 1 / np.log2(ranks.ranks + 1.0), 0.0)
        assert found[f"ndcg@{k}"] == pytest.approx(gains.mean(), abs=1e-4)
        assert found[f"hit@{k}"] == pytest.approx((ranks.ranks <= k).mean(), abs=1e-4)
