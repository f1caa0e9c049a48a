"""From a configuration to data, model and batches, for models of this package and of RecBole."""

from pathlib import Path

import pytest
import torch
from recbole.utils import init_seed

from recbole_hyper.batches.loader import PrefixLoader, WindowLoader
from recbole_hyper.config import Config
from recbole_hyper.runs.build import build, build_model, read_data, reader_of_store
from tests.conftest import SMALL


def config_of(model: str, data: Path) -> Config:
    return Config(model, "random", config_dict={**SMALL, "data_path": str(data), "use_gpu": False})


@pytest.mark.parametrize(("name", "loader"), [("SASRecCE", WindowLoader), ("GRU4Rec", PrefixLoader), ("BPR", None)])
def test_a_loaded_model_is_the_one_of_the_run(name: str, loader: type | None, random_data: Path) -> None:
    """``build_model`` draws the weights that a run with this seed starts from, and leaves the generators alone."""
    config = config_of(name, random_data)
    data, split = read_data(config)
    init_seed(config["seed"], config["reproducibility"])
    model, batches, training = build(config, data, split, split.train_lengths)
    assert loader is None or isinstance(batches, loader)
    assert training.inter_num == int(split.train_lengths.sum())
    before = torch.get_rng_state()
    again = build_model(config, data, split.store, split.train_lengths)
    assert torch.equal(before, torch.get_rng_state())
    own, other = model.state_dict(), again.state_dict()
    assert own.keys() == other.keys()
    assert all(own[key].shape == other[key].shape for key in own)
    assert all(torch.equal(own[key], other[key]) for key in own)


def test_sequences_in_memory_are_split_as_those_of_files(random_data: Path) -> None:
    config = config_of("SASRecCE", random_data)
    data, split = read_data(config)
    again, same = reader_of_store(data.store)(config)
    assert again.store is data.store
    assert same.train_lengths.tolist() == split.train_lengths.tolist()
    assert same.test.targets.tolist() == split.test.targets.tolist()
