"""RecBole's own functions with models of this package by name: the results are those of ``recbole_hyper.run``."""

from __future__ import annotations

import logging
import pickle
import pickletools
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.quick_start import load_data_and_model, objective_function, run, run_recbole
from recbole.trainer import HyperTuning, Trainer
from recbole.utils import ModelType, get_model, get_trainer, init_seed

import recbole_hyper
from recbole_hyper import registry
from recbole_hyper.bridge.patches.old_checkpoints import translated
from recbole_hyper.config.recbole_keys import TRANSLATED
from recbole_hyper.errors import ConfigError
from tests.config.test_recbole_keys import OTHER, READ_ELSEWHERE, documented
from tests.conftest import SMALL

KEYS = {**SMALL, "topk": [5], "metrics": ["NDCG", "Hit", "MRR", "ItemCoverage"], "valid_metric": "NDCG@5"}
KEYS |= {"eval_args": {"mode": "full"}, "rank": 8}


@pytest.fixture
def settings(random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Return the keys of a run on "random"; RecBole writes its logs into the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["script.py"])
    handlers = list(logging.getLogger().handlers)
    yield {**KEYS, "data_path": str(random_data), "use_gpu": False}
    for handler in logging.getLogger().handlers[:]:
        if handler not in handlers:
            logging.getLogger().removeHandler(handler)
            handler.close()


def ours(model: str, settings: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return recbole_hyper.run(model, "random", config_dict={**settings, **keys, "output_dir": "own"})


def prepared(model: Any, settings: dict[str, Any], **keys: Any) -> tuple[Any, Any, Any, Any]:
    """Return configuration and the three parts of the data by RecBole's functions."""
    config = Config(model, "random", config_dict={**settings, **keys})
    init_seed(config["seed"], config["reproducibility"])
    return config, *data_preparation(config, create_dataset(config))


def trained(model: Any, settings: dict[str, Any], **keys: Any) -> tuple[Any, Any, tuple[float, Any]]:
    """Return trainer, test part and the result of fit."""
    config, train, valid, test = prepared(model, settings, **keys)
    init_seed(config["seed"], config["reproducibility"])
    network = get_model(config["model"])(config, train._dataset).to(config["device"])
    trainer = get_trainer(config["MODEL_TYPE"], config["model"])(config, network)
    return trainer, test, trainer.fit(train, valid, saved=True, show_progress=False)


@pytest.mark.parametrize("model", ["HSASRecCE", "gSASRec", "DualSASRec", "GRU4RecCE", "EASER", "PureSVDN"])
def test_run_recbole(model: str, settings: dict[str, Any]) -> None:
    result = run_recbole(model=model, dataset="random", config_dict=dict(settings))
    expected = ours(model, settings)
    assert dict(result["test_result"]) == expected["test"]
    assert dict(result["best_valid_result"]) == expected["valid"]
    assert result["best_valid_score"] == expected["valid"]["ndcg@5"]
    assert result["valid_score_bigger"] is True


@pytest.mark.parametrize("keys", [
    {"encoder": "hstu"},
    {"eval_args": {"split": {"GT": {"valid": 0.8, "test": 0.9}}, "mode": "full"}},
    {"eval_args": {"mode": {"valid": "uni9", "test": "full"}}},
    {"exclude_seen": False, "lr_plateau": {"factor": 0.5, "patience": 0}, "epochs": 5, "eval_step": 2},
    {"curvature": "auto"},
    {"learner": "riemannian_adam", "curvature": "learn"},
])  # fmt: skip
def test_other_settings(keys: dict[str, Any], settings: dict[str, Any]) -> None:
    result = run_recbole(model="HSASRecCE", dataset="random", config_dict={**settings, **keys})
    assert dict(result["test_result"]) == ours("HSASRecCE", settings, **keys)["test"]


@pytest.mark.slow
def test_run_recbole_on_ml_100k(settings: dict[str, Any]) -> None:
    keys = {"epochs": 1, "valid_metric": "NDCG@10", "seed": 3}
    result = run_recbole(model="HSASRecCE", dataset="ml-100k", config_dict=dict(keys))
    expected = recbole_hyper.run("HSASRecCE", "ml-100k", config_dict={**keys, "output_dir": "own"})
    assert dict(result["test_result"]) == expected["test"]


def test_config(settings: dict[str, Any]) -> None:
    config = Config(model="HSASRecCE", dataset="random", config_dict=settings)
    assert isinstance(config, Config)
    assert config["MODEL_TYPE"] == ModelType.SEQUENTIAL
    assert config["geometry"] == "poincare"
    assert config["hidden_size"] == settings["hidden_size"]
    assert "poincare" in str(config)
    with pytest.raises(ConfigError, match="unknown key 'learning_rat'; did you mean learning_rate"):
        Config("HSASRecCE", "random", config_dict={**settings, "learning_rat": 1})


def test_config_of_a_file_and_of_a_class(settings: dict[str, Any]) -> None:
    Path("first.yaml").write_text("model: BPR\n")
    Path("second.yaml").write_text("model: SASRecCE\nhidden_size: 24\n")
    config = Config(dataset="random", config_file_list=["first.yaml", "second.yaml"], config_dict=dict(settings))
    assert (config["model"], config["hidden_size"]) == ("SASRecCE", settings["hidden_size"])
    stock = Config(dataset="random", config_file_list=["second.yaml", "first.yaml"], config_dict=dict(settings))
    assert type(stock) is Config
    assert Config(recbole_hyper.SASRecCE, "random", config_dict=settings).model_class is recbole_hyper.SASRecCE


def test_the_command_line_wins(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    words = ["--model=SASRecCE", "--epochs=7", "--eval_args={mode: full}", "--config_files=a.yaml", "--note=x", "word"]
    monkeypatch.setattr("sys.argv", ["run_recbole.py", *words])
    config = Config(dataset="random", config_dict={**settings, "model": "BPR", "epochs": 3})
    assert (config["model"], config["epochs"], config["eval_args"]["mode"]["test"]) == ("SASRecCE", 7, "full")
    assert "--note of the command line is no key" in caplog.text
    assert "'word' of the command line" in caplog.text
    assert "config_files" not in caplog.text
    monkeypatch.setattr("sys.argv", ["run_recbole.py", "--epochs=7", "--epochs=8"])
    with pytest.raises(ConfigError, match="epochs is given twice"):
        Config("SASRecCE", "random", config_dict=settings)


@pytest.mark.parametrize(("key", "value"), [("refit", True), ("resume", True), ("num_workers", 2)])
def test_what_only_a_run_can_do_is_refused(key: str, value: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{key}={value} has no meaning in RecBole's own functions"):
        Config("SASRecCE", "random", config_dict={**settings, key: value})


def test_what_only_a_run_writes_is_warned_of(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    Config("SASRecCE", "random", config_dict={**settings, "output_dir": "x", "checkpoint_dir": "y"})
    assert "does not read output_dir" in caplog.text
    assert "checkpoint_dir:" not in caplog.text


def test_get_model_by_name() -> None:
    from recbole.model.general_recommender import BPR
    from recbole.model.general_recommender import Pop as RecBolePop

    assert get_model("HSASRecCE") is recbole_hyper.HSASRecCE
    assert get_model("BPR") is BPR
    assert get_model("Pop") is RecBolePop
    with pytest.raises(
        ValueError, match=r"neither RecBole nor this package has a model 'SASRecCEE'.*Did you mean.*SASRecCE"
    ):
        get_model("SASRecCEE")
    with pytest.raises(ValueError, match=r"Did you mean BPR"):
        get_model("bpr")


@pytest.mark.parametrize("name", ["XGBoost", "LightGBM"])
def test_a_missing_package_is_named(name: str) -> None:
    if all(map(find_spec, ("xgboost", "lightgbm"))):
        pytest.skip("both are installed")
    with pytest.raises(ModuleNotFoundError, match=f"RecBole's {name} needs the package '(xgboost|lightgbm)'"):
        get_model(name)


def test_a_class_that_recbole_would_not_find_by_its_name(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._registry, "models", dict(registry._registry["models"]))
    with pytest.raises(ConfigError, match="'Pop' is recbole"):
        Config(recbole_hyper.Pop, "random", config_dict=settings)

    class OwnSASRec(recbole_hyper.SASRecCE):
        """A user's own."""

    result = run_recbole(model=OwnSASRec, dataset="random", config_dict=dict(settings))
    assert dict(result["test_result"]) == ours("SASRecCE", settings)["test"]


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
    with pytest.raises(ConfigError, match="needs the dataset that create_dataset"):
        data_preparation(Config("SASRecCE", "random", config_dict=settings), object())


def test_trainer(settings: dict[str, Any]) -> None:
    seen: list[int] = []
    config, train, valid, test = prepared("SASRecCE", settings)
    init_seed(config["seed"], config["reproducibility"])
    trainer = Trainer(config, get_model("SASRecCE")(config, train.dataset))
    score, result = trainer.fit(train, valid, False, True, False, lambda epoch, score: seen.append(epoch))
    expected = ours("SASRecCE", settings)
    assert (score, dict(result)) == (expected["valid"]["ndcg@5"], expected["valid"])
    assert seen == [0, 1]
    assert Path(trainer.saved_model_file).parent.name == "saved"
    assert dict(trainer.evaluate(test, load_best_model=True)) == expected["test"]
    assert [file.name for file in Path("saved").iterdir()] == [Path(trainer.saved_model_file).name]


def test_nothing_is_saved_where_that_is_asked(settings: dict[str, Any]) -> None:
    result = run_recbole(model="SASRecCE", dataset="random", config_dict={**settings, "eval_step": 3}, saved=False)
    assert result["best_valid_result"]
    assert list(Path("saved").iterdir()) == []


def test_a_trainer_of_ones_own_stays_as_it_is(settings: dict[str, Any]) -> None:
    class MyTrainer(Trainer):
        """Changes nothing."""

    config, train, _, test = prepared("SASRecCE", settings, exclude_seen=False)
    trainer = MyTrainer(config, get_model("SASRecCE")(config, train.dataset))
    assert type(trainer) is MyTrainer
    trainer.fit(train)
    found = trainer.evaluate(test._loader, load_best_model=False)
    again = Trainer(config, trainer.model).evaluate(test, load_best_model=False)
    # RecBole rounds to 4 places what this package rounds to 6, by another way
    assert found["ndcg@5"] == pytest.approx(again["ndcg@5"], abs=1e-6)


def test_resume_checkpoint(settings: dict[str, Any]) -> None:
    trainer, _, (score, _) = trained("SASRecCE", settings)
    config, train, valid, test = prepared("SASRecCE", settings, epochs=4)
    again = get_trainer(config["MODEL_TYPE"], config["model"])(config, get_model("SASRecCE")(config, train._dataset))
    again.resume_checkpoint(trainer.saved_model_file)
    assert again.start_epoch == trainer.best_epoch + 1
    assert again.best_valid_score == score
    assert again.fit(train, valid)[0] >= score
    assert [row["epoch"] for row in again.loop.history[again.start_epoch :]] == list(range(again.start_epoch, 4))
    assert again.evaluate(test)["ndcg@5"] >= 0


@pytest.mark.parametrize("model", ["HSASRecCE", "EASER"])
def test_load_data_and_model(model: str, settings: dict[str, Any]) -> None:
    trainer, test, _ = trained(model, settings, curvature="auto")
    expected = dict(trainer.evaluate(test))
    config, network, dataset, train, valid, loaded_test = load_data_and_model(trainer.saved_model_file)
    assert config["model"] == model
    assert config["curvature"] != "auto"
    assert (len(train), len(valid)) == (len(train), len(loaded_test))
    assert dataset.item_num == network.n_items
    assert dict(Trainer(config, network).evaluate(loaded_test, load_best_model=False)) == expected


def test_case_study_of_recbole(settings: dict[str, Any]) -> None:
    from recbole.utils.case_study import full_sort_topk

    from recbole_hyper.training.validation import rank as rank_cases

    trainer, test, _ = trained("SASRecCE", settings, exclude_seen=False)
    users = test.evaluation.cases.store.users[test.evaluation.cases.rows[:3]]
    scores, items = full_sort_topk(users, trainer.model, test, k=5)
    assert scores.shape == items.shape == (3, 5)
    ranks = rank_cases(trainer.model, trainer.config, test.evaluation).ranks[:3]
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


def test_objective_function(settings: dict[str, Any]) -> None:
    result = objective_function({**settings, "model": "SASRecCE", "dataset": "random"})
    assert result["model"] == "SASRecCE"
    assert dict(result["test_result"]) == ours("SASRecCE", settings)["test"]


def test_hyper_tuning(settings: dict[str, Any]) -> None:
    pytest.importorskip("hyperopt")
    lines = [f"{key}: {value!r}\n" for key, value in settings.items() if key not in ("hidden_size", "data_path")]
    Path("fixed.yaml").write_text(
        "".join(lines) + f"data_path: {settings['data_path']}\nmodel: SASRecCE\ndataset: random\n"
    )
    Path("space.hyper").write_text("learning_rate loguniform -8,0\nhidden_size choice [8,16]\n")
    tuning = HyperTuning(
        objective_function, algo="random", max_evals=2, params_file="space.hyper", fixed_config_file_list=["fixed.yaml"]
    )
    tuning.run()
    tuning.export_result("found.txt")
    assert len(tuning.params2result) == 2
    best = ours("SASRecCE", {**settings, **tuning.best_params})
    assert tuning.best_score == best["valid"]["ndcg@5"]
    assert "hidden_size" in Path("found.txt").read_text()


def test_more_processes_are_refused_before_they_start(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="nproc=2, world_size=-1: RecBole's distributed training"):
        run("SASRecCE", "random", config_dict=settings, nproc=2)
    assert run("EASER", "random", config_dict=settings)["test_result"]


@pytest.mark.parametrize("model", ["SASRecCE", "EASER"])
def test_every_documented_key_is_read_or_refused_or_warned_of(
    model: str, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    config = Config(model, "random", config_dict=settings)
    keys = {"load_col", *settings, "data_path", "model", "dataset", *READ_ELSEWHERE}
    for key in sorted(documented() - keys):
        before = config.internal_config_dict.get(key)
        value = OTHER.get(key, (not before) if isinstance(before, bool) else f"{before} and more")
        caplog.clear()
        message = ""
        try:
            found = Config(model, "random", config_dict={**settings, key: value})
        except ValueError as error:
            message = str(error)
        # what is put into another key's words is read
        warned = f"does not read {key}" in caplog.text or key in TRANSLATED
        assert key in message or (not message and (warned or found[key] in (value, [value]))), (key, message)


# --- models of RecBole -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", ["BPR", "SASRec", "EASE", "ItemKNN", "Pop", "LightGCN", "SASRecF"])
def test_recboles_own_models_are_saved_and_loaded(model: str, settings: dict[str, Any]) -> None:
    names = ("topk", "valid_metric", "epochs", "show_progress", "data_path")
    keys = {key: settings[key] for key in names} | {"load_col": {"inter": ["user_id", "item_id", "timestamp"]}}
    if model.startswith("SASRec"):
        keys |= {"train_neg_sample_args": None, "eval_args": {"split": {"LS": "valid_and_test"}, "order": "TO"}}
    if model == "SASRecF":
        folder = Path(settings["data_path"]) / "random"
        rows = "".join(f"i{item}\tc{item % 3}\n" for item in range(50))
        (folder / "random.item").write_text("item_id:token\tclass:token\n" + rows)
        keys["load_col"] |= {"item": ["item_id", "class"]}
        keys["selected_features"] = ["class"]
    result = run_recbole(model=model, dataset="random", config_dict=keys)
    (file,) = Path("saved").glob("*.pth")
    config, network, _, _, _, test = load_data_and_model(str(file))
    assert type(config) is Config
    trainer = get_trainer(config["MODEL_TYPE"], config["model"])(config, network)
    assert trainer.evaluate(test, load_best_model=False) == result["test_result"]
    trainer.resume_checkpoint(str(file))
    assert trainer.start_epoch >= 1


@pytest.mark.parametrize("model", ["BPR", "EASE", "ItemKNN", "LightGCN"])
def test_a_checkpoint_that_recbole_wrote_alone_is_read(
    model: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {key: settings[key] for key in ("topk", "valid_metric", "epochs", "show_progress", "data_path")}
    trainer, test, _ = trained(model, keys)
    expected = trainer.evaluate(test)
    content = torch.load(trainer.saved_model_file)
    with monkeypatch.context() as patch:
        # as RecBole's own trainer writes it
        patch.delattr(Config, "__reduce_ex__")
        content |= {"config": trainer.config, "best_valid_score": np.float64(content["best_valid_score"])}
        torch.save(content, "old.pth", pickle_protocol=4)
    config, network, _, _, _, loaded = load_data_and_model("old.pth")
    assert type(config) is Config
    assert config["valid_metric"] == keys["valid_metric"]
    again = get_trainer(config["MODEL_TYPE"], config["model"])(config, network)
    assert again.evaluate(loaded, load_best_model=False) == expected
    assert trainer.evaluate(test, model_file="old.pth") == expected
    again.resume_checkpoint("old.pth")
    assert (again.start_epoch, again.saved_model_file) == (content["epoch"] + 1, "old.pth")


@pytest.mark.parametrize("model", ["SASRecCE", "BPR"])
def test_a_checkpoint_of_an_earlier_release_is_read(model: str, settings: dict[str, Any]) -> None:
    """Its Config names the modules recbole_hyper.compat and recbole_hyper.hosted, which are called otherwise now."""
    # of RecBole's own models, what a loaded trainer has not collected in training is not computed
    keys = settings if model != "BPR" else {**settings, "metrics": ["NDCG"]}
    trainer, test, _ = trained(model, keys)
    expected = trainer.evaluate(test)
    earlier = Path("earlier.pth")
    with zipfile.ZipFile(trainer.saved_model_file) as now, zipfile.ZipFile(earlier, "w") as old:
        for entry in now.namelist():
            data = now.read(entry)
            if entry.endswith("/data.pkl"):
                assert data.count(b"crecbole_hyper.bridge.patches.checkpoints\n") == 1
                data = data.replace(
                    b"crecbole_hyper.bridge.patches.checkpoints\n", b"crecbole_hyper.compat.checkpoints\n"
                )
            old.writestr(entry, data)
    config, network, _, _, _, loaded = load_data_and_model(str(earlier))
    again = get_trainer(config["MODEL_TYPE"], config["model"])(config, network)
    assert again.evaluate(loaded, load_best_model=False) == expected


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_a_translated_pickle_means_the_same(protocol: int) -> None:
    text = "twice"
    value = {
        text: [text, (1, 2.5, None, True), {"a": b"bytes", "b": -(2**40)}],
        "kind": ModelType.SEQUENTIAL,
        "x": text,
    }
    value["again"] = value["kind"]
    found = pickle.loads(translated(pickle.dumps(value, protocol=protocol)))
    assert found == value
    assert translated(pickle.dumps(value, protocol=protocol))[:2] == b"\x80\x02"
    names = {code.name for code, _, _ in pickletools.genops(translated(pickle.dumps(value, protocol=protocol)))}
    assert not names & {"STACK_GLOBAL", "MEMOIZE", "FRAME", "SHORT_BINUNICODE", "SHORT_BINBYTES"}


class Evil:
    """Runs code where a pickle of it is read."""

    def __reduce__(self) -> Any:
        return open, ("evil.txt", "w")


@pytest.mark.parametrize("entry", ["config", "other_parameter", "optimizer"])
@pytest.mark.parametrize("protocol", [2, 4])
def test_code_in_a_checkpoint_is_refused(entry: str, protocol: int, settings: dict[str, Any]) -> None:
    trainer, test, _ = trained("SASRecCE", settings)
    content = torch.load(trainer.saved_model_file)
    torch.save({**content, entry: {"x": Evil()}}, "evil.pth", pickle_protocol=protocol)
    for read in (load_data_and_model, trainer.resume_checkpoint, lambda file: trainer.evaluate(test, model_file=file)):
        with pytest.raises(Exception, match="open"):
            read("evil.pth")
    assert not Path("evil.txt").exists()


def test_a_damaged_matrix_in_a_checkpoint_is_refused(settings: dict[str, Any]) -> None:
    keys = {key: settings[key] for key in ("topk", "valid_metric", "data_path")}
    run_recbole(model="ItemKNN", dataset="random", config_dict=keys)
    (file,) = Path("saved").glob("*.pth")
    content = torch.load(file)
    content["other_parameter"]["w"].indices = content["other_parameter"]["w"].indices + 10_000
    torch.save(content, file)
    with pytest.raises(ValueError, match="ind"):
        load_data_and_model(str(file))


def test_numpy_values_in_a_checkpoint_load(tmp_path: Path) -> None:
    content = {"scalar": np.float64(0.5), "array": np.arange(6.0).reshape(2, 3), "whole": np.int32(3)}
    torch.save(content, tmp_path / "x.pth")
    found = torch.load(tmp_path / "x.pth")
    assert (found["scalar"], found["whole"]) == (0.5, 3)
    assert found["array"].tolist() == content["array"].tolist()
