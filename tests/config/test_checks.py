"""A configuration that cannot run fails before any data are read, with a message that says what to do."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

from recbole_hyper.config import ConfigError
from recbole_hyper.config.checks import check_eval_args, has_cut_off
from recbole_hyper.errors import MissingDataError
from recbole_hyper.host.metrics import is_smaller_better
from tests.config.test_binding import make
from tests.raising import refused


def test_missing_dataset_says_where_and_how(cycle: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        make(cycle, dataset="cicle")
    message = str(caught.value)
    assert str(cycle / "cicle" / "cicle.inter") in message
    assert "Did you mean 'cycle'" in message
    assert "recbole-hyper prepare cicle" in message


@pytest.mark.parametrize(("name", "says"), [
    ("gowalla", "'recbole-hyper prepare gowalla' prepares it"),
    ("lastfm", "A run downloads it if its folder is empty"),
    ("recbole/lastfm", "A run downloads it if its folder is empty"),
    ("recbole/gowalla", "Known are --dataset=recbole/gowalla-merged, which is downloaded"),
    ("yelp2018", "Known are --dataset=recbole/yelp-2018, which is downloaded"),
    ("Amazon_Beauty", "Known are recbole-hyper prepare amazon-beauty; --dataset=recbole/amazon-beauty"),
    ("mine", "For your table write 'recbole-hyper prepare mine --source=FILE'"),
])  # fmt: skip
def test_hints_for_data_that_is_not_there(name: str, says: str, tmp_path: Path) -> None:
    with refused(MissingDataError, "was not found") as caught:
        make(tmp_path, dataset=name)
    assert says in str(caught.value)


def test_files_beside_the_folder_of_the_data_set(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.inter").touch()
    with pytest.raises(MissingDataError, match=f"set --data_path={tmp_path}"):
        make(tmp_path / "mine", dataset="mine")


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"hidden_size": 16, "n_heads": 3}, ("n_heads=3", "hidden_size=16")),
        ({"hidden_size": "wide"}, ("hidden_size='wide'",)),
        ({"hidden_dropout_prob": 1.5}, ("hidden_dropout_prob=1.5",)),
        ({"MAX_ITEM_LIST_LENGTH": 0}, ("MAX_ITEM_LIST_LENGTH=0",)),
        ({"learning_rate": 0}, ("learning_rate=0",)),
        ({"geometry": "poincare", "curvature": -1.0}, ("curvature",)),
        ({"geometry": "spherical"}, ("cosine, euclidean",)),
        ({"loss_type": "cse"}, ("losses: 'cse'",)),
        ({"hidden_act": "tanhh"}, ("hidden_act='tanhh'",)),
        ({"valid_metric": "NDCG@7"}, ("valid_metric='NDCG@7'", "NDCG@")),
        ({"valid_metric": "NDCG@\u00b2"}, ("valid_metric='NDCG@\u00b2'",)),
        ({"metrics": ["GAUC"], "valid_metric": "GAUC@10"}, ("valid_metric='GAUC@10'",)),
        ({"metrics": ["NDGC"]}, ("'NDGC'", "ndcg")),
        ({"metrics": ["AUC"], "valid_metric": "AUC"}, ("'auc'",)),
        ({"metrics": []}, ("metrics=",)),
        ({"topk": "abc"}, ("topk='abc'",)),
        ({"topk": [10, 0]}, ("topk=[10, 0]",)),
        ({"exclude_seen": 3}, ("exclude_seen=3",)),
        ({"clip_grad_norm": {"max_norm": -1}}, ("clip_grad_norm=", "-1")),
        ({"clip_grad_norm": {"norm_type": 2}}, ("clip_grad_norm=", "max_norm: 5.0")),
        ({"lr_plateau": {"factor": 2}}, ("lr_plateau=",)),
        ({"memory_limit": "4GB"}, ("memory_limit='4GB'",)),
        ({"n_threads": 10**30}, ("n_threads=1000", "[1, 1024]")),
        ({"epochs": None}, ("epochs=None",)),
        ({"adam_betas": [0.9, 1.5]}, ("adam_betas=",)),
        ({"metric_decimal_place": 400}, ("metric_decimal_place=400", "[0, 15]")),
        ({"load_col": {"inter": 3}}, ("load_col=",)),
        ({"rm_dup_inter": "all"}, ("rm_dup_inter='all'",)),
        ({"benchmark_filename": ["train", "valid", "test"]}, ("cycle.train.inter", "cycle.inter")),
        ({"benchmark_filename": ["train"]}, ("benchmark_filename=['train']",)),
        ({"benchmark_filename": 1}, ("benchmark_filename=1",)),
        ({"data_path": "/"}, ("'cycle' was not found: /cycle/",)),
        *(
            (
                {"model": "BPR", "train_neg_sample_args": {"distribution": "uniform", "sample_num": number}},
                (f"sample_num={number!r}",),
            )
            for number in ("x", 0, 1.5)
        ),
        ({"benchmark_filename": ["a", "a", "b"]}, ("benchmark_filename=",)),
        ({"benchmark_filename": ["a", "b"], "interactions": "given"}, ("given as a frame",)),
        ({"eval_args": {"split": {"files": ["a", "b", "c"]}}}, ("benchmark_filename",)),
        ({"repeatable": True, "exclude_seen": True}, ("repeatable=True", "exclude_seen=True")),
        ({"repeatable": "no"}, ("repeatable='no'",)),
        ({"item_inter_num_interval": "[5,inf"}, ("item_inter_num_interval='[5,inf'",)),
        ({"user_inter_num_interval": "[9,5]"}, ("user_inter_num_interval='[9,5]'",)),
        ({"eval_args": {"spilt": {"LS": "valid_only"}}}, ("'spilt'", "split")),
        ({"eval_args": {"successive": "yes"}}, ("successive='yes'",)),
        ({"eval_args": {"group_by": "banana"}}, ("group_by='banana'",)),
        ({"eval_args": {"split": {"LO": 1}}}, ("protocols: 'LO'",)),
        ({"eval_args": {"split": {"LS": ["valid_only"]}}}, ("valid_and_test",)),
        ({"eval_args": {"split": {"RS": [0.8, 0.1, float("inf")]}}}, ("three shares",)),
        ({"eval_args": {"split": {"GT": {"valid": 0.9}}}}, ("test: 0.95",)),
        ({"eval_args": {"split": {"GT": {"valid": 0.9, "test": "NaT"}}}}, ("'NaT'",)),
        ({"eval_args": {"split": {"GT": {"valid": 0.8, "test": 0.9, "max_cases": True}}}}, ("max_cases=True",)),
        ({"eval_args": {"split": {"TU": {"point": 0.9, "min_user_items": 2.7}}}}, ("min_user_items=2.7",)),
        ({"eval_args": {"split": {"TU": 0.9}}, "refit": True}, ("refit",)),
        ({"eval_args": {"split": {"CI": {"valid": 0.1, "test": 0.2}}, "successive": True}}, ("successive",)),
        ({"eval_args": {"mode": "half"}}, ("mode='half'",)),
        ({"eval_args": {"mode": 99}}, ("mode=99",)),
        ({"eval_args": {"mode": {"tset": "full"}}}, ("mode={'tset': 'full'}", "test")),
        ({"eval_args": "full"}, ("eval_args='full'",)),
        ({"eval_args": "{split:{LS:valid_only}}"}, ("a blank after the colon",)),
        ({"MAX_ITEM_LIST_LENGTH": 10**10}, ("MAX_ITEM_LIST_LENGTH=10000000000",)),
        ({"hidden_size": 1_000_000}, ("hidden_size=1000000", "weights")),
        ({"log_wandb": True}, ("package wandb",)),
        ({"model": "FM"}, ("RecBole's FM", "context-aware")),
        ({"model": "CFKG"}, ("RecBole's CFKG", "knowledge-aware")),
        ({"model": "BPR", "learner": "adamax"}, ("learner='adamax'", "RecBole uses adam")),
        ({"curvature_init": 1e-300}, ("curvature_init=1e-300",)),
        *(
            ({"model": model, "curvature": value}, (f"curvature={value!r}",))
            for model in ("HSASRecCE", "HGRU4Rec")
            for value in (1e-300, 1e300, float("inf"), float("nan"), 0, True, 1e-39)
        ),
    ],
)
def test_impossible_values_fail_before_data_are_read(cycle, keys, named, monkeypatch) -> None:
    monkeypatch.setattr("pandas.read_csv", lambda *a, **k: pytest.fail("data were read"))
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: None if name == "wandb" else find(name, *a))
    with refused(ValueError, *named):
        make(cycle, **keys)


def test_a_configuration_that_recbole_stumbles_over_is_one_line(cycle: Path) -> None:
    with refused(ConfigError, "data_path=3"):
        make(cycle, model="BPR", data_path=3)


@pytest.mark.parametrize("model", ["HSASRec", "HGRU4Rec", "HSASRecSCE"])
@pytest.mark.parametrize("value", [1e-37, "learn", "auto", 1.0])
def test_curvatures_that_float32_holds_are_taken(cycle: Path, model: str, value: object) -> None:
    assert make(cycle, model=model, curvature=value)["curvature"] == value


def test_what_the_weights_need_is_held_against_the_memory_there_is(cycle, monkeypatch) -> None:
    make(cycle, hidden_size=2000)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=50_000_000, available=50_000_000))
    with refused(ConfigError, "GiB", "0.0"):
        make(cycle, hidden_size=2000, use_gpu=False)
    make(cycle, hidden_size=50, use_gpu=False)


@pytest.mark.parametrize(
    ("model", "learner"),
    [("SASRecCE", "sgdx"), ("SASRecCE", "sparse_adam"), ("BPR", "adamm"), ("GRU4Rec", "riemannian_adam")],
)
def test_a_learner_that_the_trainer_does_not_have_is_refused(cycle: Path, model: str, learner: str) -> None:
    with pytest.raises(ConfigError, match=f"learner='{learner}' is unknown to {model}; allowed: adam, adamw, sgd"):
        make(cycle, model=model, learner=learner)
    assert make(cycle, model=model, learner="AdamW")["learner"] == "AdamW"


def test_metrics_with_and_without_cut_offs() -> None:
    assert [has_cut_off(name) for name in ("NDCG", "GAUC", "Novelty", "ItemCoverage")] == [True, False, True, True]
    names = ("ndcg@10", "averagepopularity@5", "PopularityMiscalibration@5", "novelty@5")
    assert [is_smaller_better(name) for name in names] == [False, True, True, False]


@pytest.mark.parametrize(
    ("arguments", "sequential", "says"),
    [
        ({"split": {"LS": "valid_and_test"}, "order": "RO"}, True, "a random order has no next item"),
        ({"split": {"LS": "valid_and_test"}, "order": "RO"}, False, ""),
        ({"split": {"RS": [8, 1, 1]}, "order": "RO", "successive": True}, False, "needs items in the order of time"),
        ({"split": {"GT": {"valid": 0.8, "test": 0.9}}, "order": "RO"}, False, "the split GT splits by time"),
        ({"split": {"TU": 0.9}, "group_by": None}, True, "needs group_by user, as it splits all users at the same"),
        ({"split": {"RS": [8, 1, 1]}, "group_by": None}, True, ""),
        ({"mode": {"valid": "uni9", "test": "pop99"}}, True, ""),
        ({"mode": "labeled"}, True, "'labeled' is not offered"),
    ],
)
def test_combinations_of_eval_args(arguments: dict, sequential: bool, says: str) -> None:
    if not says:
        check_eval_args(arguments, sequential=sequential)
        return
    with pytest.raises(ConfigError, match=says):
        check_eval_args(arguments, sequential=sequential)
