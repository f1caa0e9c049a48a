"""A torch model behind a recommender: pickling, blocks of scores, models without states or vectors."""

import pickle
from pathlib import Path

import pandas as pd
import pytest

from recbole_hyper import load, run
from recbole_hyper.errors import ConfigError
from recbole_hyper.serving.recommender import Recommender
from tests.raising import refused
from tests.serving.conftest import keys


def test_more_histories_than_a_block_of_the_ranking(model: Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of scores were larger than those of the ranking from some 24 thousand items on, and refused."""
    monkeypatch.setattr("recbole_hyper.evaluation.scorers.SCORES_PER_BLOCK", 0)
    found = model.recommend(histories=[["i1", "i2"]] * 600, k=2)
    assert found["item_id"].tolist() == found["item_id"].tolist()[:2] * 600


def test_recommending_keeps_to_the_memory_budget(model: Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores and their comparison: 5 bytes each, of 600 users at most 240 at one time."""
    asked = []
    monkeypatch.setitem(model.config.final_config_dict, "ranking_memory_budget", 240 * 5 * model.store.n_items)
    score = model.scorer.score
    monkeypatch.setattr(model.scorer, "score", lambda cases: asked.append(len(cases)) or score(cases))
    model.recommend(histories=[["i1", "i2"]] * 600, k=2)
    assert asked == [240, 240, 120]


@pytest.mark.parametrize("name", ["SASRecCE", "EASER", "BPR"])
def test_a_pickled_run_recommends_the_same(name: str, folder: Path, tmp_path: Path) -> None:
    run(name, "small", config_dict=keys(folder.parent / "data", tmp_path / "run"))
    loaded = load(tmp_path / "run")
    again = pickle.loads(pickle.dumps(loaded))
    asked = {"users": ["u1", "u2", "nobody"], "k": 3}
    pd.testing.assert_frame_equal(again.recommend(**asked), loaded.recommend(**asked))


def test_models_without_states_or_vectors_say_so(folder: Path, tmp_path: Path) -> None:
    data = folder.parent / "data"
    run("EASER", "small", config_dict=keys(data, tmp_path / "ease"))
    model = load(tmp_path / "ease")
    with refused(ConfigError, "EASER"):
        model.states([["i1"]])
    with refused(ConfigError, "EASER"):
        model.item_vectors()
    found = model.similar_items(["i1"], 3)
    assert found.attrs["measure"] == "score after a history of the item alone"
    assert found["similar_id"].tolist() == model.recommend(histories=[["i1"]], k=3)["item_id"].tolist()
