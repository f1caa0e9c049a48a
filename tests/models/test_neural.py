"""Neural models run under RecBole's own trainer, and score alike in both ways."""

from pathlib import Path

import pytest
import torch
from recbole.data.utils import create_samplers, get_dataloader
from recbole.trainer import Trainer

from recbole_hyper.config import Config
from recbole_hyper.models.contract import make_scorer
from recbole_hyper.protocols.base import make_split
from recbole_hyper.runs.dataset import SequenceDataset
from recbole_hyper.training.settings import RankSettings
from recbole_hyper.training.validation import Evaluation, metrics, rank
from tests.conftest import SMALL
from tests.models.fitting import built

MODELS = ["SASRecBCE", "HSASRecCE", "FMLPRecMemory", "HGRU4Rec", "HSTU"]


@pytest.fixture
def recbole_argv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide pytest's command line from RecBole, and let it write its logs into another folder."""
    monkeypatch.setattr("sys.argv", ["test"])
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("model", MODELS)
def test_recboles_own_trainer_and_evaluator_agree(model, random_data, tmp_path, recbole_argv) -> None:
    """One epoch through RecBole's unmodified Trainer, loaders, collector and evaluator; then our ranker."""
    keys = {**SMALL, "data_path": str(random_data), "epochs": 1, "exclude_seen": False, "checkpoint_dir": str(tmp_path)}
    keys |= {"n_negatives": 8} if model == "HSTU" else {}
    keys |= {"learning_rate": 0.005, "weight_decay": 0.0, "softmax_items": None} if model == "FMLPRecMemory" else {}
    config = Config(model, "random", config_dict=keys)
    dataset = SequenceDataset(config)
    parts = dataset.build()
    samplers = create_samplers(config, dataset, parts)
    train, valid, test = (
        get_dataloader(config, phase)(config, part, sampler, shuffle=phase == "train")
        for phase, part, sampler in zip(("train", "valid", "test"), parts, samplers, strict=True)
    )
    made = config.model_class(config, parts[0])
    before = made.item_embedding.weight.detach().clone()
    trainer = Trainer(config, made)
    trainer.fit(train, valid, saved=False, show_progress=False)
    assert not torch.equal(before, made.item_embedding.weight)
    theirs = trainer.evaluate(test, load_best_model=False)
    split = make_split(dataset.store, config)
    evaluation = Evaluation("test", split.test, split, None, None)
    settings = RankSettings.of(config)
    ours = metrics(settings, evaluation, rank(make_scorer(made.eval(), config), settings, evaluation))
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        # RecBole counts padding as an item of the catalogue
        scale = dataset.item_num / (dataset.item_num - 1) if name.startswith("itemcoverage") else 1.0
        assert ours[name] == pytest.approx(value * scale, abs=2e-6), name


@pytest.mark.parametrize("model", MODELS)
def test_predict_agrees_with_full_sort_predict(model: str, random_data: Path) -> None:
    made, config, _, _ = built(model, "random", {**SMALL, "data_path": str(random_data)})
    made.eval()
    dataset = SequenceDataset(config)
    batch = dataset.build()[2].inter_feat
    full = made.full_sort_predict(batch)
    assert full.shape == (len(batch), dataset.item_num)
    single = made.predict(batch)
    torch.testing.assert_close(single, full[torch.arange(len(batch)), batch["item_id"]], rtol=1e-4, atol=1e-5)
