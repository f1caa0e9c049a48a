"""RecBole's own models on this project's splits: their rows, their histories, and a run of each."""

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from recbole.data.dataset import SequentialDataset
from recbole.data.interaction import Interaction

from recbole_hyper import load, run
from recbole_hyper.batches.loader import PrefixLoader
from recbole_hyper.config import Config
from recbole_hyper.evaluation import scorers
from recbole_hyper.models.contract import make_scorer
from recbole_hyper.runs.build import build_model, read_data
from tests.conftest import LEARN, write_inter
from tests.models import fitting

SUCCESSIVE = {"split": {"GT": {"valid": 0.7, "test": 0.85}}, "successive": True}


def prepared(model: str, data: Path, **keys: Any) -> tuple[Any, Any, Any, Any]:
    """Return (model in evaluation mode, config, split, loader)."""
    net, *rest = fitting.prepared(model, data, MAX_ITEM_LIST_LENGTH=6, **keys)
    return net.eval(), *rest


def test_prefix_rows_are_recboles(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    triples = [
        (f"u{user}", f"i{generator.integers(0, 30)}", time)  # small times, no ties: float32 keeps them
        for user in range(25)
        for time in generator.permutation(300)[: generator.integers(1, 15)]
    ]
    random_data = write_inter(tmp_path, "random", triples)
    _, config, split, loader = prepared(
        "GRU4Rec", random_data, train_batch_size=7, eval_args={"split": {"LS": "test_only"}}
    )
    assert isinstance(loader, PrefixLoader)
    dataset = SequentialDataset(config)
    train = dataset.build()[0].inter_feat

    def rows(table: Any) -> list[tuple]:
        columns = [table[name] for name in ("user_id", "item_id", "item_length", "item_id_list")]
        return [
            (int(user), int(item), int(length), *histories.tolist())
            for user, item, length, histories in zip(*columns, strict=True)
        ]

    def tokens(found: list[tuple], fields: Any) -> list[tuple]:
        users, items = fields.field2id_token["user_id"], fields.field2id_token["item_id"]
        return sorted((users[u], items[i], n, *(items[h] for h in history)) for u, i, n, *history in found)

    made = [row for batch in loader for row in rows(batch)]
    assert tokens(made, loader.dataset) == tokens(rows(train), dataset)
    assert len(made) == int((split.train_lengths - 1).clip(0).sum())
    view = loader.view().inter_feat
    assert tokens(rows(view), loader.dataset) == tokens(made, loader.dataset)
    histories = view["item_id_list"]
    torch.testing.assert_close(histories[np.array([3, 5])], torch.stack([histories[3], histories[5]]))


def test_bert4rec_gets_its_masks(random_data: Path) -> None:
    net, config, _, loader = prepared("BERT4Rec", random_data, train_batch_size=9)
    batch = next(iter(loader))
    masked = batch["Mask_item_id_list"]
    assert masked.shape == batch["item_id_list"].shape
    hidden = masked == net.n_items
    assert bool(hidden.any())
    assert torch.equal(masked[~hidden], batch["item_id_list"][~hidden])
    for row, answers in enumerate(batch["Pos_item_id"]):
        asked = answers[answers > 0].tolist()  # the last ones, where more are hidden than RecBole asks for
        assert asked == batch["item_id_list"][row][hidden[row]].tolist()[-len(asked) :]
    # before training all items are about equally likely
    loss = float(net.eval().calculate_loss(batch.to(config["device"])).detach())
    assert loss == pytest.approx(math.log(net.n_items), rel=0.2)


def test_negatives_of_bpr_are_never_training_items_of_the_user(random_data: Path) -> None:
    _, _, split, loader = prepared("BPR", random_data)
    matrix = split.store.matrix(split.train_lengths).toarray()
    row_of = {int(user): row for row, user in enumerate(split.store.users)}
    checked = 0
    for batch in loader:
        for user, positive, negative in zip(batch["user_id"], batch["item_id"], batch["neg_item_id"], strict=True):
            assert matrix[row_of[int(user)], int(positive)] == 1
            assert matrix[row_of[int(user)], int(negative)] == 0
            checked += 1
    assert checked == int(split.train_lengths.sum())


def test_ease_and_easer_rank_alike_in_successive_evaluation(random_data: Path) -> None:
    theirs, config, split, _ = prepared("EASE", random_data, reg_weight=3.0, eval_args=SUCCESSIVE)
    ours, _, _, loader = prepared("EASER", random_data, reg_weight=3.0, eval_args=SUCCESSIVE)
    for batch in loader:
        ours.calculate_loss(batch)
    torch.testing.assert_close(
        make_scorer(theirs, config)(split.test), make_scorer(ours, config)(split.test), atol=1e-5, rtol=1e-4
    )


def check_run(result: dict[str, Any], folder: Path) -> None:
    cases = pd.read_parquet(folder / "cases_test.parquet")
    assert len(cases) == result["n_test_cases"] > 0
    assert cases["rank"].between(1, cases["n_candidates"]).all()
    assert result["test"]["hit@10"] == pytest.approx((cases["rank"] <= 10).mean(), abs=1e-6)
    assert np.isfinite(list(result["test"].values())).all()


@pytest.mark.parametrize(
    ("model", "data", "least", "keys"),
    [
        # the newest item decides the next: chance of hit@5 is 5 / 52
        ("GRU4Rec", "walk", 0.8, {"train_batch_size": 120, "embedding_size": 32, "hidden_size": 32}),
        # one of the 5 items that the user left in the block comes next: chance of hit@5 is 5 / 54
        ("BPR", "blocks", 0.4, {"embedding_size": 16, "epochs": 20}),
        ("EASE", "blocks", 0.8, {"reg_weight": 250.0, "eval_step": 1}),
        ("ItemKNN", "blocks", 0.8, {"eval_step": 1}),
    ],
)
def test_learns_what_is_planted(model, data, least, keys, request) -> None:
    path = request.getfixturevalue(data)
    given = {**LEARN, "data_path": str(path), "output_dir": str(path / "run"), "use_gpu": False, **keys}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = run(model, data, config_dict=given)
    check_run(result, path / "run")
    assert result["test"]["hit@5"] > least


def test_a_model_without_a_full_ranking_is_ranked_by_predict(random_data: Path, tmp_path: Path) -> None:
    keys = {"data_path": str(random_data), "output_dir": str(tmp_path / "run"), "epochs": 1, "show_progress": False}
    keys |= {"train_batch_size": 64, "topk": [5], "valid_metric": "NDCG@5"}
    assert 0 <= run("NeuMF", "random", config_dict=keys)["test"]["ndcg@5"] <= 1
    assert len(load(tmp_path / "run").recommend(users=["u1"], k=3)) == 3


def test_scores_by_predict_are_those_of_the_full_ranking(random_data: Path) -> None:
    config = Config("BPR", "random", config_dict={"data_path": str(random_data)})
    data, split = read_data(config)
    model = build_model(config, data, split.store, split.train_lengths)
    cases = split.test[:4]
    users = torch.from_numpy(split.store.users[cases.rows].astype("int64"))
    batch = Interaction({config["USER_ID_FIELD"]: users, config["ITEM_ID_FIELD"]: torch.ones_like(users)})
    expected = model.full_sort_predict(batch)
    for size in (1, 7, 10**6):
        torch.testing.assert_close(
            scorers._by_predict(model, config["ITEM_ID_FIELD"], model.n_items, size, batch), expected
        )
