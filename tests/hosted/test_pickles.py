"""Checkpoints of RecBole alone load once they are translated, and translated pickles mean the same."""

import pickle
import pickletools

import numpy as np
import pytest
import torch
from recbole.config import Config
from recbole.quick_start import load_data_and_model
from recbole.utils import ModelType, get_trainer

from examples.translate_checkpoint import main, translated
from tests.hosted.conftest import trained


@pytest.mark.parametrize("model", ["BPR", "EASE", "ItemKNN", "LightGCN"])
def test_a_checkpoint_that_recbole_wrote_alone_is_read(model, settings, monkeypatch) -> None:
    keys = {key: settings[key] for key in ("topk", "valid_metric", "epochs", "show_progress", "data_path")}
    trainer, test, _ = trained(model, keys)
    expected = trainer.evaluate(test)
    content = torch.load(trainer.saved_model_file)
    with monkeypatch.context() as patch:
        # as RecBole's own trainer writes it
        patch.delattr(Config, "__reduce_ex__")
        content |= {"config": trainer.config, "best_valid_score": np.float64(content["best_valid_score"])}
        torch.save(content, "by_recbole.pth", pickle_protocol=4)
    monkeypatch.setattr("sys.argv", ["translate", "by_recbole.pth", "old.pth"])
    assert (main(), main()) == (0, 1)  # the second time the file exists
    config, network, _, _, _, loaded = load_data_and_model("old.pth")
    assert type(config) is Config
    assert config["valid_metric"] == keys["valid_metric"]
    again = get_trainer(config["MODEL_TYPE"], config["model"])(config, network)
    assert again.evaluate(loaded, load_best_model=False) == expected
    assert trainer.evaluate(test, model_file="old.pth") == expected
    again.resume_checkpoint("old.pth")
    assert (again.start_epoch, again.saved_model_file) == (content["epoch"] + 1, "old.pth")


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_a_translated_pickle_means_the_same(protocol: int) -> None:
    text = "twice"
    value = {
        text: [text, (1, 2.5, None, True), {"a": b"bytes", "b": -(2**40)}],
        "kind": ModelType.SEQUENTIAL,
        "x": text,
    }
    value["again"] = value["kind"]
    assert pickle.loads(translated(pickle.dumps(value, protocol=protocol))) == value
    assert translated(pickle.dumps(value, protocol=protocol))[:2] == b"\x80\x02"
    names = {code.name for code, _, _ in pickletools.genops(translated(pickle.dumps(value, protocol=protocol)))}
    assert not names & {"STACK_GLOBAL", "MEMOIZE", "FRAME", "SHORT_BINUNICODE", "SHORT_BINBYTES"}
