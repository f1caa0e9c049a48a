"""RecBole's create_dataset and data_preparation for models of this package."""

from __future__ import annotations

from typing import Any

from recbole.config import Config
from recbole.data import create_dataset, data_preparation

from recbole_hyper.errors import ConfigError
from tests.conftest import SMALL
from tests.hosted.conftest import prepared, trained
from tests.raising import refused


def test_create_dataset(settings: dict[str, Any]) -> None:
    config = Config("SASRecCE", "random", config_dict=settings)
    dataset = create_dataset(config)
    assert (dataset.user_num, dataset.item_num) == (41, 51)
    assert "random" in str(dataset)
    assert dataset.id2token(dataset.iid_field, dataset.token2id(dataset.iid_field, ["i3"])).tolist() == ["i3"]


def test_data_preparation(settings: dict[str, Any]) -> None:
    _, train, valid, test = prepared("SASRecCE", settings)
    batches = list(train)
    assert len(batches) == len(train)
    assert set(batches[0].columns) >= {"user_id", "item_id_list", "target_list"}
    rows = [interaction for interaction, _, _, _ in test]
    assert sum(map(len, rows)) == len(test.evaluation)
    assert rows[0]["item_id_list"].shape[1] == SMALL["MAX_ITEM_LIST_LENGTH"]
    assert valid
    with refused(ConfigError, "create_dataset"):
        data_preparation(Config("SASRecCE", "random", config_dict=settings), object())


def test_case_study_of_recbole(settings: dict[str, Any]) -> None:
    from recbole.utils.case_study import full_sort_topk

    from recbole_hyper.models.contract import make_scorer
    from recbole_hyper.training.settings import RankSettings
    from recbole_hyper.training.validation import rank as rank_cases

    trainer, test, _ = trained("SASRecCE", settings, exclude_seen=False)
    users = test.evaluation.cases.store.users[test.evaluation.cases.rows[:3]]
    scores, items = full_sort_topk(users, trainer.model, test, k=5)
    assert scores.shape == items.shape == (3, 5)
    score, ranking = make_scorer(trainer.model.eval(), trainer.config), RankSettings.of(trainer.config)
    ranks = rank_cases(score, ranking, test.evaluation).ranks[:3]
    targets = test.evaluation.cases.targets[:3]
    for rank, target, row in zip(ranks, targets, items, strict=True):
        assert (rank <= 5) == (int(target) in row.tolist())


def test_recboles_own_loader_of_the_cases_of_a_general_model(settings: dict[str, Any]) -> None:
    _, _, _, test = prepared("EASER", settings)
    cases = test.evaluation.cases
    rows = [
        (int(users["user_id"][row]), item, history[1][history[0] == row].tolist())
        for users, history, positive, targets in test
        for row, item in zip(positive.tolist(), targets.tolist(), strict=True)
    ]
    expected = {}
    for row, end, target in zip(cases.rows, cases.ends, cases.targets, strict=True):
        first = cases.store.offsets[row]
        expected[int(cases.store.users[row])] = (int(target), set(cases.store.items[first : first + end].tolist()))
    assert {user: (item, set(history)) for user, item, history in rows} == expected
