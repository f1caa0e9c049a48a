"""RecBole models as they are published run unchanged: by name from their files, under every protocol and command."""

from pathlib import Path
from typing import Any

import pytest

from recbole_hyper import cli, load, run
from recbole_hyper.host import models
from recbole_hyper.sweep import sweep
from tests.conftest import write_inter
from tests.host.conftest import FILES, keys

POINT = {"split": {"GT": {"valid": 0.7, "test": 0.85}}, "successive": True}
CANDIDATES = {"mode": "uni5"}


@pytest.mark.parametrize("model", FILES)
def test_runs_and_is_read_back(model: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(model, "d", config_dict=keys(place, model))
    assert 0 < result["test"]["ndcg@10"] <= 1
    assert result["leak_check"] == "scores depend neither on the target nor on other rows"
    folder = place / "runs" / model
    if model == "Fading":  # its trainer warms the loss up
        losses = [float(line.split(",")[2]) for line in (folder / "train.csv").read_text().splitlines()[1:]]
        assert losses[0] < 0.6 * losses[1]
    if model == "NamedItems":
        assert load(folder).model.names[1:].abs().sum() > 0
    assert len(load(folder).recommend(["u1", "u2"], k=3)) == 6
    assert cli.main(["evaluate", str(folder), "--topk=[5,10]"]) == 0
    assert f"{result['test']['ndcg@10']:.4f}" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    "split", [POINT, {"split": {"RS": [0.7, 0.1, 0.2]}}, {"split": {"LS": "test_only"}}, {"mode": "uni5"}]
)
@pytest.mark.parametrize("model", FILES)
def test_under_every_protocol(model: str, split: dict[str, Any], place: Path) -> None:
    result = run(model, "d", config_dict=keys(place, model, eval_args=split))
    assert 0 < result["test"]["ndcg@10"] <= 1


def test_the_items_are_those_of_the_data(place: Path) -> None:
    """A model may count more of them."""
    plain = run("GatedAverage", "d", config_dict=keys(place, "GatedAverage"))
    masked = run("MaskToken", "d", config_dict=keys(place, "MaskToken", plugins="various.py"))
    assert masked["test"] == plain["test"]
    assert len(load(place / "runs" / "MaskToken").recommend(["u1"], k=3)) == 3


def test_a_class_runs_as_its_name_does(place: Path) -> None:
    named = run("GatedAverage", "d", config_dict=keys(place, "GatedAverage"))
    cls = models.models()["GatedAverage"]
    own = keys(place, "GatedAverage", output_dir=str(place / "runs" / "class"), plugins=None)
    given = run(cls, "d", config_files=["GatedAverage.yaml"], config_dict=own)
    assert given["test"] == named["test"]


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("WithFeatures", {"load_col": {"inter": ["user_id", "item_id", "timestamp"], "item": ["item_id", "class"]}}),
        ("TwoLosses", {}),
        ("Factors", {"factors": 8}),
        ("GatedAverage", {"loss_type": "BPR", "train_neg_sample_args": {"uniform": 2}}),
    ],
)
def test_other_habits_of_published_models(model: str, more: dict[str, Any], place: Path) -> None:
    items = "".join(f"i{number}\t{'ab'[number % 2]}\n" for number in range(20))
    (place / "data" / "d" / "d.item").write_text(f"item_id:token\tclass:token\n{items}")
    result = run(model, "d", config_dict=keys(place, model, plugins="various.py", **more))
    assert 0 < result["test"]["ndcg@10"] <= 1


def test_equal_to_recboles_own_trainer_and_evaluator(place: Path) -> None:
    """Same seed, same split, rows in one order: the metrics of training in both are equal to the last digit."""
    from recbole.config import Config as RecBoleConfig
    from recbole.data import create_dataset, data_preparation
    from recbole.trainer import Trainer
    from recbole.utils import init_seed

    # RecBole's rows come user by user, the user first who is first
    rows = [(f"u{u}", f"i{(3 * u + s) % 20}", 100 * s + u) for u in range(30) for s in range(6 + u % 5)]
    write_inter(place / "data", "d", rows)
    settings = keys(place, "GatedAverage", shuffle=False, metric_decimal_place=10, train_batch_size=16)
    settings |= {"metrics": ["NDCG", "Hit", "MRR"], "valid_metric": "NDCG@10", "eval_args": {"mode": "full"}}
    ours = run("GatedAverage", "d", config_dict={**settings, "exclude_seen": False})
    cls = models.models()["GatedAverage"]
    theirs = {key: value for key, value in settings.items() if key not in ("plugins", "output_dir", "use_gpu")}
    theirs |= {"load_col": {"inter": ["user_id", "item_id", "timestamp"]}, "checkpoint_dir": str(place / "saved")}
    theirs["eval_args"] = {"split": {"LS": "valid_and_test"}, "order": "TO", "group_by": "user", "mode": "full"}
    config = RecBoleConfig(cls, "d", config_file_list=["GatedAverage.yaml"], config_dict={**theirs, "gpu_id": ""})
    init_seed(config["seed"], config["reproducibility"])
    train, valid, test = data_preparation(config, create_dataset(config))
    init_seed(config["seed"], config["reproducibility"])
    trainer = Trainer(config, cls(config, train.dataset))
    trainer.fit(train, valid, show_progress=False)
    result = trainer.evaluate(test)
    assert {name: ours["test"][name] for name in result} == dict(result)


class Stopped(RuntimeError):
    """Replaces a kill."""


@pytest.mark.parametrize("model", ["GatedAverage", "Fading"])
def test_resumes_after_an_error(model: str, place: Path) -> None:
    whole = run(model, "d", config_dict=keys(place, model, epochs=4))

    def stop(epoch: int, _: float) -> None:
        if epoch == 1:
            raise Stopped

    settings = keys(place, model, epochs=4, output_dir=str(place / "runs" / "stopped"))
    with pytest.raises(Stopped):
        run(model, "d", config_dict=settings, on_validation=stop)
    assert run(config_dict={"output_dir": settings["output_dir"], "resume": True})["test"] == whole["test"]


@pytest.mark.usefixtures("serial_sweeps")
def test_swept_over_two_keys(place: Path) -> None:
    space = place / "space.yaml"
    space.write_text("mix_alpha: {grid_search: [0.2, 0.8]}\nn_layers: {grid_search: [2]}\n")
    settings = keys(place, "GatedAverage", epochs=1)
    result = sweep("GatedAverage", "d", space=str(space), config_dict=settings)
    assert result["trials"]["finished"] == 2
    assert set(result["best"]["settings"]) == {"mix_alpha", "n_layers"}
    again = sweep(config_dict={"output_dir": settings["output_dir"], "resume": True})
    assert again["best"]["settings"] == result["best"]["settings"]
