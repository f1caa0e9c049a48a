"""Scorers: one case gets the scores of a batch, histories are folded in, and new users are refused."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from recbole.data.interaction import Interaction
from torch import nn

from recbole_hyper import run
from recbole_hyper.batches.histories import whole_histories
from recbole_hyper.config import Config
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.evaluation.scorers import FOLD_IN, as_float32, encode_cases, fold_in_scorer, require_known_users
from recbole_hyper.protocols.base import make_split
from recbole_hyper.runs.dataset import SequenceDataset
from recbole_hyper.types import Cases
from tests.conftest import write_inter
from tests.models import fitting
from tests.raising import refused

SUCCESSIVE = {"split": {"GT": {"valid": 0.7, "test": 0.85}}, "successive": True}


def prepared(model: str, data: Path, **keys: Any) -> tuple[Any, Any, Any, Any]:
    """Return (model in evaluation mode, config, split, loader)."""
    net, *rest = fitting.prepared(model, data, MAX_ITEM_LIST_LENGTH=6, **keys)
    return net.eval(), *rest


def training_cases(split: Any) -> tuple[Cases, torch.Tensor]:
    """The whole training part of every user as a history, and the users' ids."""
    rows = np.flatnonzero((split.train_lengths > 0) & (split.train_lengths < split.store.lengths))
    return Cases.build(split.store, rows, split.train_lengths[rows]), torch.from_numpy(split.store.users[rows])


@pytest.mark.parametrize("model", ["EASE", "MultiVAE", "MultiDAE", "RecVAE", "MacridVAE"])
def test_folding_in_the_training_history_is_the_model_itself(random_data: Path, model: str) -> None:
    net, config, split, _ = prepared(model, random_data)
    cases, users = training_cases(split)
    folded = fold_in_scorer(net)
    assert folded is not None

    own = net.full_sort_predict(Interaction({config["USER_ID_FIELD"]: users})).view(len(users), -1).float()
    torch.testing.assert_close(folded(cases)[:, 1:], own.detach()[:, 1:], atol=1e-5, rtol=1e-4)
    # one more item in the history changes the scores
    longer = Cases.build(cases.store, cases.rows, np.minimum(cases.ends + 1, cases.store.lengths[cases.rows] - 1))
    assert not torch.allclose(folded(longer)[:, 1:], own[:, 1:], atol=1e-6)


def test_a_model_with_a_vector_per_user_refuses_new_users(random_data: Path, tmp_path: Path) -> None:
    keys = {"data_path": str(random_data), "use_gpu": False, "eval_args": SUCCESSIVE, "topk": [5]}
    keys |= {"valid_metric": "NDCG@5", "output_dir": str(tmp_path / "out")}
    late = [("late", f"i{item}", 1_000_000_080 + item) for item in range(8)]
    old = (random_data / "random" / "random.inter").read_text().splitlines()[1:]
    write_inter(random_data, "random", [*(tuple(line.split("\t")) for line in old), *late])
    with refused(ValueError, "BPR", "'late'", "EASER"):
        run("BPR", "random", config_dict=keys)
    assert not (tmp_path / "out" / "train.csv").exists()
    config = Config("EASE", "random", config_dict=keys)
    split = make_split(SequenceDataset(config).store, config)
    # models that read histories accept new users
    for model in ("EASE", "SASRec", "MultiVAE"):
        require_known_users(Config(model, "random", config_dict=keys).model_class, split)


class Slow(nn.Module):
    """Reads a history, waits until the other thread has set its own, and scores by it."""

    USER_ID = "user_id"
    device = torch.device("cpu")

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__()
        self.weight, self.barrier = nn.Parameter(torch.ones(4)), SimpleNamespace(wait=barrier.wait)

    def full_sort_predict(self, interaction: Any) -> torch.Tensor:
        self.barrier.wait(10)
        return self.get_rating_matrix(interaction["user_id"]) * self.weight


def test_histories_stay_apart() -> None:
    store = SequenceStore(
        np.array([0, 1]), np.array([1], dtype=np.int32), np.zeros(1), np.array([1]),
        np.array(["[PAD]", "u"]), np.array(["[PAD]", "a", "b", "c"]),
    )  # fmt: skip
    score = FOLD_IN["MultiVAE"](Slow(threading.Barrier(2)))
    found: dict[int, torch.Tensor] = {}

    def ask(item: int) -> None:
        items = np.array([item], dtype=np.int32)
        found[item] = score(whole_histories(store, np.array([0, 1]), items, np.zeros(1, dtype=np.int64)))

    threads = [threading.Thread(target=ask, args=(item,)) for item in (1, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[1].tolist() == [[0.0, 1.0, 0.0, 0.0]]
    assert found[3].tolist() == [[0.0, 0.0, 0.0, 1.0]]


@pytest.mark.parametrize("model", ["SASRecCE", "GRU4RecCE"])
def test_a_batch_encodes_as_each_case_alone(random_data: Path, model: str) -> None:
    net, config, split, _ = prepared(model, random_data, hidden_size=8)
    with torch.no_grad():
        together = encode_cases(net, split.test, 4, config["device"])
        alone = [encode_cases(net, split.test[place : place + 1], 4, config["device"]) for place in range(10)]
    torch.testing.assert_close(together[:10], torch.cat(alone), atol=1e-5, rtol=1e-5)
    # the last four items only: an older one changes nothing
    cut = Cases(split.test.store, split.test.rows, split.test.ends, np.maximum(split.test.starts, split.test.ends - 4))
    with torch.no_grad():
        torch.testing.assert_close(encode_cases(net, cut, 9, config["device"]), together, atol=1e-5, rtol=1e-5)
        with refused(ValueError, "cases", "encode"):
            encode_cases(net, split.test[:0], 4, config["device"])


def test_scores_that_float32_cannot_tell_apart_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    fine = torch.tensor([[0.0, 1.0, 1.0 + 1e-9, 3.0], [0.0, 1.0, 1.0, 2.0]], dtype=torch.float64)
    assert as_float32(fine).dtype == torch.float32
    assert "1 of 2 cases have float64 scores that float32 cannot tell apart" in caplog.text
    caplog.clear()
    as_float32(torch.tensor([[0, 2**24, 2**24 + 1]]))
    assert "1 of 1 cases have int64 scores" in caplog.text
    caplog.clear()
    for good in (fine[1:], fine.float(), torch.tensor([[0, 5, 6]])):
        as_float32(good)
    assert caplog.text == ""
