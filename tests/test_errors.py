"""Hints for misspelled names, and checks of single values."""

import numpy as np
import pytest

from recbole_hyper.errors import ConfigError, did_you_mean, near_hint, near_key, near_names, positive_int, require
from tests.raising import refused

KEYS = ["use_gpu", "hidden_size", "learning_rate", "save_data", "state", "epochs", "topk", "n_layers"]
KEYS += ["train_batch_size"]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("hiddden_size", "hidden_size"),  # added
        ("hidden_sise", "hidden_size"),  # changed
        ("hidden_szie", "hidden_size"),  # swapped
        ("hiden_szie", "hidden_size"),  # one slip in each of two words
        ("hiddensize", "hidden_size"),
        ("num_layers", ""),  # another name, not a slip
        ("HIDDEN_SIZE", ""),  # no slip, but another case
        ("tpok", ""),  # too short to be sure
        ("epohcs", "epochs"),
        ("hidden_size", ""),
    ],
)
def test_near_keys(name: str, key: str) -> None:
    assert near_key(name, KEYS) == key


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("lr", "; did you mean learning_rate?"),
        ("device", "; did you mean use_gpu?"),
        ("train", "; did you mean train_batch_size?"),
        ("hiden_size", "; did you mean hidden_size?"),
        ("zzz", ""),
    ],
)
def test_hints_for_keys(name: str, hint: str) -> None:
    assert near_hint(name, KEYS) == hint


def test_did_you_mean_ignores_case_and_keeps_the_spelling() -> None:
    assert did_you_mean("sasrecce", ["SASRecCE", "Pop"]) == "; did you mean SASRecCE?"
    assert did_you_mean("sasrec", ["SASRecCE", "SASRecBCE"], " Or ", n=2).startswith(" Or SASRec")
    assert did_you_mean("xyz", ["SASRecCE", "Pop"]) == ""


def test_names_with_one_spelling_are_all_near() -> None:
    known = ["yelp-2018", "gowalla", "yelp2018", "ml-1m"]
    assert near_names("yelp2O18", known, 1, 0.7, lambda name: name.replace("-", "")) == ["yelp-2018", "yelp2018"]


@pytest.mark.parametrize("value", [0, -1, True, 3.0, "3", None, float("nan")])
def test_what_is_not_a_positive_int(value: object) -> None:
    with refused(ConfigError, "k="):
        positive_int("k", value)


def test_a_positive_int_of_numpy_is_one_of_python() -> None:
    assert type(positive_int("k", np.int32(3))) is int


def test_a_missing_package_names_its_extra() -> None:
    require("any", "this", "json")
    with refused(ConfigError, "no_such_one", "'recbole-hyper[extra]'"):
        require("extra", "this", "json", "no_such_one")
