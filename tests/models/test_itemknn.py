"""ItemKNN: similarities against a loop, and scores against RecBole's model."""

from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from recbole.model.general_recommender.itemknn import ComputeSimilarity

from recbole_hyper import load, run
from recbole_hyper.models import itemknn
from recbole_hyper.models.itemknn import ItemKNN, similarities
from tests.models.fitting import fitted


def matrix_of(density: float = 0.2, n_users: int = 40, n_items: int = 23) -> scipy.sparse.csr_matrix:
    matrix = scipy.sparse.random(n_users, n_items, density, "csr", np.float32, random_state=5)
    matrix.data[:] = 1.0
    return matrix


@pytest.mark.parametrize(("k", "shrink", "entries"), [(None, 0.0, 1 << 24), (4, 0.0, 64), (7, 10.0, 23), (50, 0.5, 1)])
def test_similarities_against_a_loop(k, shrink, entries, monkeypatch) -> None:
    monkeypatch.setattr(itemknn, "_ENTRIES", entries)
    matrix = matrix_of()
    dense = matrix.toarray()
    found = similarities(matrix, k, shrink).toarray()
    for j in range(dense.shape[1]):
        norms = np.linalg.norm(dense, axis=0)
        column = [
            0.0 if i == j or not norms[i] * norms[j] else dense[:, i] @ dense[:, j] / (norms[i] * norms[j] + shrink)
            for i in range(dense.shape[1])
        ]
        best = sorted(column, reverse=True)[: k or len(column)]
        assert np.allclose(sorted(found[:, j], reverse=True)[: len(best)], best, atol=1e-6)
        kept = np.flatnonzero(found[:, j])
        assert len(kept) <= (k or len(column))
        assert np.allclose(found[kept, j], np.array(column)[kept], atol=1e-6)


@pytest.mark.parametrize("shrink", [0.0, 3.0])
def test_all_neighbours_equal_those_of_recbole(shrink: float) -> None:
    matrix = matrix_of(0.3)
    compute = ComputeSimilarity(matrix, topk=matrix.shape[1], shrink=shrink).compute_similarity
    # RecBole 1.2.1 takes the method, of which "item" is the default, where the class is made
    _, theirs = compute("item") if "method" in signature(compute).parameters else compute()
    np.testing.assert_allclose(similarities(matrix, None, shrink).toarray(), theirs.toarray(), rtol=1e-5, atol=1e-7)


def test_users_who_repeat_one_item_are_no_hit(tmp_path: Path) -> None:
    rows = pd.DataFrame({"user_id": np.repeat(np.arange(20), 8), "item_id": np.repeat(np.arange(20) % 5, 8)})
    keys = {"output_dir": str(tmp_path / "run"), "n_threads": 1, "show_progress": False}
    run("ItemKNN", interactions=rows.assign(timestamp=range(len(rows))), config_dict=keys)
    assert "no validation case is hit" in (tmp_path / "run" / "run.log").read_text()


def test_scores_of_training_users_equal_those_of_recbole(random_data: Path) -> None:
    from recbole.model.general_recommender import ItemKNN as RecBoleItemKNN

    net, config, _ = fitted("ItemKNN", random_data, k=100)
    assert isinstance(net, ItemKNN)

    class Data:
        """What RecBole's model reads of a data set."""

        def inter_matrix(self, form: str) -> Any:
            return net.matrix

        def num(self, field: str) -> int:
            return net.n_users if field == config["USER_ID_FIELD"] else net.n_items

    theirs = RecBoleItemKNN(config, Data())
    users = torch.arange(1, net.n_users)
    batch = {config["USER_ID_FIELD"]: users}
    expected = theirs.full_sort_predict(batch).view(len(users), -1)
    torch.testing.assert_close(net.full_sort_predict(batch), expected, rtol=1e-4, atol=1e-5)


def test_a_run_is_saved_and_loaded(random_data: Path, tmp_path: Path) -> None:
    keys = {"data_path": str(random_data), "use_gpu": False, "topk": [5], "valid_metric": "NDCG@5", "k": 5}
    result = run("ItemKNN", "random", config_dict={**keys, "output_dir": str(tmp_path / "run")})
    assert 0 < result["test"]["ndcg@5"] <= 1
    first = load(tmp_path / "run").recommend(users=["u1"], k=3)
    assert len(first) == 3
    assert first["item_id"].tolist() == load(tmp_path / "run").recommend(users=["u1"], k=3)["item_id"].tolist()
