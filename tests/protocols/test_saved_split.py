"""A split in a folder: the same in every process that maps it."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from recbole_hyper.config import Config
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.protocols.saved_split import load_split, save_split
from recbole_hyper.runs.build import read_data
from recbole_hyper.types import Cases
from tests.conftest import SMALL

SPLITS = [
    {"split": {"LS": "valid_and_test"}},
    {"split": {"RS": [0.6, 0.2, 0.2]}},
    {"split": {"LS": "valid_and_test"}, "mode": "uni9"},
    {"split": {"GT": {"valid": 0.5, "test": 0.9}}},
]


@pytest.mark.parametrize("eval_args", SPLITS, ids=["leave-one-out", "ratio", "candidates", "point in time"])
def test_every_field_of_a_split_survives(eval_args: dict, random_data: Path, tmp_path: Path) -> None:
    """A new field of Split has to be saved as well, or processes would train on another split."""
    data, split = read_data(
        Config("SASRecCE", "random", config_dict={**SMALL, "data_path": str(random_data), "eval_args": eval_args})
    )
    store = data.store
    split = dataclasses.replace(
        split,
        points={"valid": 3.5, "test": 7.0},
        refit_lengths=store.lengths,
        counts={"kept": 3},
        catalogue=np.arange(store.n_items) > 1,
        valid_catalogue=np.arange(store.n_items) > 2,
    )
    save_split(tmp_path / "saved", store, split)
    everything, loaded = load_split(tmp_path / "saved")
    assert everything.fingerprint() == store.fingerprint()
    assert isinstance(everything.items, np.memmap)
    for entry in dataclasses.fields(split):
        before, after = getattr(split, entry.name), getattr(loaded, entry.name)
        if isinstance(before, Cases):
            for name in ("rows", "ends", "starts", "targets", "times"):
                np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
            assert (before.candidates is None) == (after.candidates is None)
            if before.candidates is not None:
                np.testing.assert_array_equal(before.candidates, after.candidates)
        elif isinstance(before, SequenceStore):
            assert before.fingerprint() == after.fingerprint()
        else:
            assert len(before) > 0, f"{entry.name} needs a value in this test"
            np.testing.assert_array_equal(before, after)
