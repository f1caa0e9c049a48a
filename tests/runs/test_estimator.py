"""Models from Python: options, a frame, recommendations, a folder; the same run as by every other way."""

import copy
import gc
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
import torch

import recbole_hyper
from recbole_hyper import Estimator, HSASRecCE, registry, run
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.encoders.fmlp import FMLPEncoder
from recbole_hyper.errors import NoSpaceError
from recbole_hyper.models import MODULES
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.runs.dataset import SequenceDataset
from recbole_hyper.training.checkpoint import WEIGHTS, read_weights
from tests.conftest import LEARN, SMALL, cycle_rows, write_inter
from tests.raising import refused
from tests.reference import planted

COLUMNS = ["user_id", "item_id", "timestamp"]


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame(cycle_rows(), columns=COLUMNS)


def test_every_model_of_the_package_is_a_name_of_it() -> None:
    ours = {
        name
        for name in registry.names("models")
        if registry.resolve("models", name).__module__.startswith("recbole_hyper.models.")
    }
    assert set(MODULES) == ours
    assert {getattr(recbole_hyper, name).__name__ for name in ours} == ours
    assert ours < set(recbole_hyper.__all__)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hiden_size": 8}, "unknown key 'hiden_size'; did you mean hidden_size"),
        ({"hidden_size": 0}, "hidden_size=0: a whole number of at least 1"),
        ({"hidden_size": 8, "n_heads": 3}, "n_heads"),
        ({"eval_args": {"mode": "all"}}, "mode='all'"),
    ],
)
def test_options_are_checked_when_an_estimator_is_made(options: dict, message: str) -> None:
    with refused(ConfigError, message):
        Estimator("HSASRecCE", **options)


def test_a_fit_is_a_run(frame: pd.DataFrame, tmp_path: Path) -> None:
    model = Estimator("HSASRecCE", **SMALL, eval_args={"mode": "uni2"}).fit(frame)
    by_run = run(
        "HSASRecCE",
        interactions=frame,
        config_dict={**SMALL, "eval_args": {"mode": "uni2"}, "output_dir": str(tmp_path / "run")},
    )
    for key in ("test", "valid", "data_fingerprint", "protocol_counts", "parameters", "best_epoch", "protocol"):
        assert model.result[key] == by_run[key], key
    given = tmp_path / "given"
    assert Estimator("Pop").fit(frame, output_dir=given).folder == given
    assert (given / "result.json").is_file()
    with refused(ConfigError, "inside the run's folder"):
        model.save(model.folder / "copy")


def test_ids_that_pandas_made_floats_are_found(frame: pd.DataFrame) -> None:
    numbers = {name: frame[name].str[1:].astype(float) for name in ("user_id", "item_id")}
    frame = frame.assign(**numbers)
    model = Estimator("Pop").fit(frame)
    assert set(model.user_ids) == {str(int(user)) for user in numbers["user_id"]}
    user = frame["user_id"].iloc[0]
    own = frame[frame["user_id"] == user]
    for asked in ({"users": [user]}, {"histories": own}, {"histories": {user: own["item_id"]}}):
        found = model.recommend(**asked, k=1, cold="error", unknown="error")
        assert found["user_id"].tolist() == [user]
    assert len(model.score([own["item_id"]], items=frame["item_id"].unique())[0]) == frame["item_id"].nunique()


def test_recommendations_stay_the_same_in_a_folder_elsewhere(tmp_path: Path) -> None:
    frame = pd.DataFrame(planted.walk_rows(), columns=["user", "item", "time"])
    model = Estimator("SASRecCE", **LEARN).fit(frame)
    found = model.recommend(users=["u1", "u2"], k=3)
    assert found.groupby("user_id").size().to_dict() == {"u1": 3, "u2": 3}
    place = model.folder
    saved = model.save(tmp_path / "models" / "walk")
    assert sorted(path.name for path in saved.parent.iterdir()) == ["walk"]
    with refused(ConfigError, "another", "folder"):
        model.save(saved)
    del model
    gc.collect()
    assert not place.exists()
    pd.testing.assert_frame_equal(recbole_hyper.load(saved).recommend(users=["u1", "u2"], k=3), found)


def test_a_failed_fit_keeps_the_earlier_one(frame, tmp_path, monkeypatch) -> None:
    model = Estimator("Pop")
    with refused(ValueError, "'Pop'"):
        model.recommend(users=["u1"])
    assert not hasattr(model, "recommend")
    model.fit(frame)
    before = model.result
    with refused(ValueError, "frame", "rows"):
        model.fit(frame.iloc[:0])
    assert model.result is before

    def full(*arguments: object, **keywords: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("recbole_hyper.runs.estimator.shutil.copytree", full)
    with pytest.raises(NoSpaceError):
        model.save(tmp_path / "out" / "pop")
    assert list((tmp_path / "out").iterdir()) == []


def test_an_estimator_of_a_users_model(frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._registry, "models", dict(registry._registry["models"]))

    class OwnNetwork(HyperRecommender):
        parts = {"encoder": "gru", "geometry": "euclidean", "loss_type": "ce"}

    model = Estimator(OwnNetwork, **{**SMALL, "epochs": 1}).fit(frame)
    assert model.result["model"] == "OwnNetwork"
    assert len(model.similar_items(["i3"], k=2)) == 2


def test_fits_in_several_threads_equal_single_fits(frame: pd.DataFrame) -> None:
    """They drew from one stream of random numbers."""
    alone = Estimator("SASRecCE", **{**SMALL, "epochs": 2}).fit(frame).result
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: Estimator("SASRecCE", **{**SMALL, "epochs": 2}).fit(frame), range(3)))
    assert [model.result["valid"] for model in found] == [alone["valid"]] * 3
    scores = [model.score([["i1", "i2"]]) for model in found]
    assert all((one == scores[0]).all() for one in scores)


def test_another_thread_does_not_change_a_training(frame, tmp_path, monkeypatch) -> None:
    """A run that is loaded drew from the generator of the training."""
    other = Estimator("FMLPRecCE", **SMALL).fit(frame, output_dir=tmp_path / "other").folder
    drawn, ended, built = threading.Event(), threading.Event(), FMLPEncoder.__init__

    def build_and_wait(*args: object, **options: object) -> None:
        built(*args, **options)
        drawn.set()
        ended.wait()

    monkeypatch.setattr(FMLPEncoder, "__init__", build_and_wait)

    def trained(name: str, on_validation: Callable[[int, float], object]) -> dict[str, torch.Tensor]:
        keys = {**SMALL, "epochs": 3, "output_dir": str(tmp_path / name)}
        run("SASRecCE", interactions=frame, config_dict=keys, on_validation=on_validation)
        return read_weights(tmp_path / name / WEIGHTS)[0]

    alone = trained("alone", lambda epoch, score: None)
    with ThreadPoolExecutor(1) as pool:
        try:
            beside = trained(
                "beside", lambda epoch, score: epoch or (pool.submit(recbole_hyper.load, other), drawn.wait(60))
            )
        finally:
            ended.set()
    assert drawn.is_set()
    assert all((alone[name] == beside[name]).all() for name in alone)


def test_a_model_class_makes_networks_only(tmp_path: Path) -> None:
    path = write_inter(tmp_path, "d", cycle_rows())
    config = Config("HSASRecCE", "d", config_dict={**SMALL, "data_path": str(path)})
    dataset = SequenceDataset(config)
    for model in (HSASRecCE(config, dataset), HSASRecCE(config=config, dataset=dataset)):
        assert isinstance(model, HSASRecCE)
        assert isinstance(copy.deepcopy(model), HSASRecCE)
    with refused(TypeError, "unexpected keyword argument"):
        HSASRecCE(hidden_size=8)
    assert pickle.loads(pickle.dumps(HSASRecCE)) is HSASRecCE
