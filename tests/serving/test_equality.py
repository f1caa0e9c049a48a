"""A run's folder alone recommends what the run's own evaluation ranked, ties included, for every model."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from recbole_hyper import load, registry, run
from recbole_hyper.runs.evaluate import evaluate
from recbole_hyper.serving.recommender import Recommender
from recbole_hyper.serving.rules import Rules
from recbole_hyper.training import progress
from tests.conftest import SMALL
from tests.reference.rules import best_list

OURS = registry.names("models")
THEIRS = ["BPR", "LightGCN", "SASRec"]
# every other model of RecBole that runs under these protocols on user, item and time; not ADMMSLIM, whose scores it
# draws again at every call, nor those that need features (FDSA, S3Rec, ...)
OTHERS = [
    "BERT4Rec", "Caser", "CDAE", "CORE", "DGCF", "DiffRec", "DMF", "EASE", "ENMF", "FISM", "FOSSIL", "FPMC", "GCMC",
    "GCSAN", "GRU4Rec", "HGN", "HRM", "LDiffRec", "LightSANs", "LINE", "MacridVAE", "MultiDAE", "MultiVAE", "NAIS",
    "NARM", "NCEPLRec", "NextItNet", "NGCF", "NPE", "RaCT", "RecVAE", "RepeatNet", "SGL", "SHAN", "SimpleX", "SINE",
    "SLIMElastic", "SpectralCF", "SRGNN", "STAMP", "TransRec",
]  # fmt: skip
# of some models, what makes them small
FEW: dict[str, dict[str, Any]] = {
    "PureSVDN": {"rank": 5},
    "SASRecSCE": {"sce_bucket_size_y": 20},
    "HSASRecSCE": {"sce_bucket_size_y": 20},
    "SASRecBCEPlus": {"n_negatives": 8},
    "SASRecSampledCE": {"n_negatives": 8},
    "eSASRec": {"n_negatives": 8},
    "HSTU": {"n_negatives": 8},
    "FuXi": {"n_negatives": 8},
}
# of each way to score one, whose lists are checked under rules too
RULED = ("SASRecCE", "HSASRecCE", "FMLPRecMemory", "HSTU", "EASER", "Pop", "BPR", "SASRec")
GT = {"split": {"GT": {"valid": 0.7, "test": 0.85}}}
# some models have their protocol of candidates, and their lists
FULL = {"eval_args": {"mode": "full"}, "topk": [5, 10], "metrics": ["NDCG", "Hit"], "valid_metric": "NDCG@10"}
REFIT = {"eval_args": GT, "refit": True}


def trained(model: str, data: Path, folder: Path, patch: pytest.MonkeyPatch, **keys: Any) -> tuple[dict, Any, Any]:
    """Run; return the result, and the cases and best items of the test as the run itself ranked them."""
    seen = {}
    rank = progress.rank

    def recorded(score: Any, settings: Any, evaluation: Any, *arguments: Any) -> Any:
        ranks = rank(score, settings, evaluation, *arguments)
        seen[evaluation.name] = (evaluation.cases, ranks.top_items)
        return ranks

    patch.setattr(progress, "rank", recorded)
    settings = {**SMALL, "epochs": 1, "data_path": str(data), "output_dir": str(folder), "use_gpu": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = run(model, "random", config_dict={**settings, **FULL, **FEW.get(model, {}), **keys})
    return result, *seen["test"]


def check(folder: Path, cases: Any, lists: np.ndarray) -> None:
    """The lists of a loaded model are those of the evaluation, for histories that also hold what nobody knows."""
    store = cases.store
    histories, times = {}, {}
    for row, start, end in zip(cases.rows, cases.starts, cases.ends, strict=True):
        user = str(store.user_tokens[store.users[row]])
        histories[user] = ["never seen", *store.item_tokens[store.row(row)[start:end]].tolist()]
        first = store.offsets[row]
        times[user] = [0.0, *store.times[first + start : first + end].tolist()]
    model = load(folder)
    found = model.recommend(histories=histories, k=lists.shape[1], times=times)
    assert found.attrs["unknown_items"] == len(cases)
    assert not found["popular"].any()
    tokens = store.item_tokens[lists]
    for row, user in enumerate(histories):
        assert found.loc[found["user_id"] == user, "item_id"].tolist() == tokens[row][lists[row] > 0].tolist()
    if model.config["model"] in RULED:
        few = list(histories)[:12]
        check_rules(model, {user: histories[user] for user in few}, {user: times[user] for user in few})


def check_rules(model: Recommender, histories: dict[str, list[str]], times: dict[str, list[float]]) -> None:
    """Lists under rules are those of loops over the model's own scores."""
    kinds = [f"kind{number % 4}" for number in range(len(model.item_ids))]
    model.use_catalogue(pd.DataFrame({"item_id": model.item_ids, "kind": kinds, "price": range(len(kinds))}))
    # a score beside 2^30 is lost in float32: these ten items tie for every model
    ties = {str(item): 2.0**30 for item in model.item_ids[5:25:2]}
    scores = np.pad(model.score(histories, times=times), ((0, 0), (1, 0)))
    numbers = {token: number for number, token in enumerate(model.store.item_tokens)}
    allowed = model.catalogue.allowed
    hidden = [] if allowed is None else np.flatnonzero(~allowed).tolist()
    for rules in (
        Rules(where="price > 3", at_most={"kind": 2}, at_least={"price > 20": 2}, boost={str(model.item_ids[9]): 0.5}),
        Rules(at_most={"kind": 3}, boost=ties),
        Rules(where="kind != 'kind2'", diversity=0.3, diversity_by="kind"),
    ):
        found = model.recommend(histories=histories, k=6, rules=rules, times=times)
        for row, (user, history) in enumerate(histories.items()):
            seen = [numbers.get(item, 0) for item in history] if model.config["exclude_seen"] else []
            items, _ = best_list(model.catalogue, scores[row], 6, [*seen, *hidden], rules)
            assert found.loc[found["user_id"] == user, "item_id"].tolist() == model.store.item_tokens[items].tolist()


@pytest.mark.parametrize("model", [*OURS, *THEIRS, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_the_folder_recommends_what_the_evaluation_ranked(model, random_data, tmp_path, monkeypatch) -> None:
    result, cases, lists = trained(model, random_data, tmp_path / "run", monkeypatch)
    shutil.copytree(tmp_path / "run", tmp_path / "elsewhere")
    shutil.rmtree(random_data)
    check(tmp_path / "elsewhere", cases, lists)
    again = evaluate(tmp_path / "elsewhere")
    assert (again["valid"], again["test"]) == (result["valid"], result["test"])


@pytest.mark.parametrize("model", ["SASRecCE", "EASER", "SASRec", "ItemKNN"])
def test_a_refit_run_loads_the_refit_model(model, random_data, tmp_path, monkeypatch) -> None:
    result, cases, lists = trained(model, random_data, tmp_path / "run", monkeypatch, **REFIT)
    assert result["refit_epochs"]
    shutil.rmtree(random_data)
    check(tmp_path / "run", cases, lists)
    assert evaluate(tmp_path / "run")["test"] == result["test"]


@pytest.mark.parametrize("split", [{"TU": {"point": 0.95, "min_user_items": 3, "history": "full"}}, GT["split"]])
def test_items_that_a_protocol_leaves_out_are_unknown(split, random_data, tmp_path, monkeypatch) -> None:
    file = random_data / "random" / "random.inter"
    late = "".join(f"u{user}\tlate{user % 3}\t1000000100\n" for user in range(0, 40, 4))
    file.write_text(file.read_text() + late)
    _, cases, lists = trained("SASRecCE", random_data, tmp_path / "run", monkeypatch, eval_args={"split": split})
    shutil.rmtree(random_data)
    check(tmp_path / "run", cases, lists)
    found = load(tmp_path / "run")
    assert "late0" in found.item_ids
    assert not found.recommend(["u1", "u2"], k=found.n_recommendable)["item_id"].str.startswith("late").any()
    one = found.recommend(histories=[["late0", "i1"]], k=3)
    assert one.attrs["unknown_items"] == 1
    assert one["item_id"].tolist() == found.recommend(histories=[["i1"]], k=3)["item_id"].tolist()
