"""The split by items: by hand, against plain loops on random data, and what it refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper import run
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.protocols.base import ProtocolError, cold_targets, make_split
from recbole_hyper.protocols.cold_items import ColdItems, draw_items
from tests.conftest import SMALL
from tests.raising import refused

Rows = list[list[int]]


def store_of(rows: Rows) -> SequenceStore:
    """Return a store in which row u holds the items ``rows[u]`` in time order."""
    users = [user + 1 for user, row in enumerate(rows) for _ in row]
    items = [item for row in rows for item in row]
    names = [[f"{kind}{number}" for number in range(1, 31)] for kind in "ui"]
    return SequenceStore.from_interactions(users, items, range(len(items)), ["[PAD]", *names[0]], ["[PAD]", *names[1]])


def loops(rows: Rows, valid: set[int], test: set[int]) -> dict[str, list[tuple[int, list[int], int]]]:
    """Return (row, items) that are trained on and (row, history, target) of every case, row by row."""
    found: dict[str, list] = {"train": [], "valid": [], "test": []}
    for user, row in enumerate(rows):
        stop = len(row)
        for part, items in (("test", test), ("valid", valid)):
            places = [place for place in range(stop) if row[place] in items]
            if places:
                stop = places[-1]
                history = [item for item in row[:stop] if item not in valid | test]
                if history:
                    found[part].append((user, history, row[stop]))
        found["train"].append((user, [item for item in row[:stop] if item not in valid | test]))
    return found


def unpacked(rows: Rows, argument: dict[str, Any]) -> dict[str, list]:
    split = ColdItems(argument).split(store_of(rows))
    found: dict[str, list] = {
        "train": [(row, split.store.row(row)[:length].tolist()) for row, length in enumerate(split.train_lengths)]
    }
    for name, cases in (("valid", split.valid), ("test", split.test)):
        each = zip(cases.rows, cases.starts, cases.ends, cases.targets, strict=True)
        found[name] = [
            (int(row), cases.store.row(row)[start:end].tolist(), int(target)) for row, start, end, target in each
        ]
    return found


ROWS = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=12), min_size=1, max_size=15)


@given(ROWS, st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_the_split_equals_the_loops(rows: Rows, seed: int) -> None:
    argument = {"valid": 0.2, "test": 0.3, "seed": seed}
    drawn = draw_items(store_of(rows), {"valid": 0.2, "test": 0.3}, seed)
    expected = loops(rows, *({int(item) for item in np.flatnonzero(drawn[part])} for part in ("valid", "test")))
    if not (expected["valid"] and expected["test"]):
        with refused(ProtocolError, "user"):
            unpacked(rows, argument)
        return
    assert unpacked(rows, argument) == expected


def test_shares_count_items_with_interactions_and_no_item_is_drawn_twice() -> None:
    store = store_of([list(range(1, 21))])  # 20 of the 30 items
    drawn = draw_items(store, {"valid": 0.1, "test": 0.25}, 3)
    assert {part: int(items.sum()) for part, items in drawn.items()} == {"valid": 2, "test": 5}
    assert not (drawn["valid"] & drawn["test"]).any()
    assert not (drawn["valid"] | drawn["test"])[21:].any()
    again, other = (
        draw_items(store, {"valid": 0.1, "test": 0.25}, 3),
        draw_items(store, {"valid": 0.1, "test": 0.25}, 4),
    )
    assert (again["test"] == drawn["test"]).all()
    assert (other["test"] != drawn["test"]).any()


def test_candidates_are_the_other_items_of_the_draw() -> None:
    rows = [np.random.default_rng(user).permutation(30)[:20] + 1 for user in range(12)]
    split = ColdItems({"valid": 0.2, "test": 0.3, "among": "cold"}).split(store_of([row.tolist() for row in rows]))
    for cases, size in ((split.valid, 6), (split.test, 9)):
        assert cases.candidates is not None
        pools = {
            frozenset([int(target), *row.tolist()]) for target, row in zip(cases.targets, cases.candidates, strict=True)
        }
        assert len(pools) == 1
        assert len(pools.pop()) == size
        assert not (cases.candidates == cases.targets[:, None]).any()
        assert cold_targets(cases, split) == len(cases)


@pytest.mark.parametrize("among", ["all", "cold"])
def test_drawn_candidates_are_unseen_items_of_the_draw(among: str) -> None:
    rows = [(np.random.default_rng(user).permutation(30)[:12] + 1).tolist() for user in range(60)]
    store, argument = store_of(rows), {"valid": 0.3, "test": 0.4, "among": among}
    config = {"refit": False, "candidate_seed": 1, "eval_cases": None}
    config["eval_args"] = {"split": {"CI": argument}, "order": "TO", "mode": {"valid": "uni2", "test": "uni2"}}
    split, drawn = make_split(store, config), draw_items(store, {"valid": 0.3, "test": 0.4}, 2020)
    for part, cases in (("valid", split.valid), ("test", split.test)):
        assert len(cases) > 20
        assert cases.candidates is not None
        assert cases.candidates.shape == (len(cases), 2)
        pairs = zip(cases.rows, cases.candidates.tolist(), strict=True)
        assert not any({*rows[row]} & {*found} for row, found in pairs)
        assert drawn[part][cases.candidates].all() == (among == "cold")
    config["eval_args"]["mode"]["test"] = "pop2"  # nothing cold is popular
    if among == "cold":
        with refused(ValueError, "items", "candidates"):
            make_split(store, config)


def test_the_split_passes_every_check_and_runs(random_data: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "data_path": str(random_data), "epochs": 1, "output_dir": str(tmp_path / "run")}
    keys |= {"eval_args": {"split": {"CI": {"valid": 0.2, "test": 0.3, "among": "cold"}}}}
    result = run("SASRecCE", "random", config_dict=keys)
    assert result["protocol"] == "cold items"
    counts = result["protocol_counts"]
    assert counts["test users without an earlier item, left out"] + result["n_test_cases"] <= result["n_users"]
    assert counts["test targets that are not in the training part"] == result["n_test_cases"] > 20


@pytest.mark.parametrize(
    ("argument", "match"),
    [
        (0.2, "two shares of the items"),
        ({"valid": 0.1}, "two shares of the items"),
        ({"valid": 0.5, "test": 0.5}, "less than 1 together"),
        ({"valid": 0.1, "test": 0}, r"test=0; a number in \(0, 1\) is expected"),
        ({"valid": 0.1, "test": 0.2, "seed": -1}, "seed=-1"),
        ({"valid": 0.1, "test": 0.2, "among": "warm"}, "all or cold is expected"),
        ({"valid": 0.1, "test": 0.2, "cold": True}, "two shares of the items"),
    ],
)
def test_wrong_arguments_are_refused(argument: Any, match: str) -> None:
    with pytest.raises(ProtocolError, match=match):
        ColdItems(argument).split(store_of([[1, 2, 3]]))


def test_refit_and_successive_are_refused() -> None:
    arguments = {"split": {"CI": {"valid": 0.1, "test": 0.2}}, "order": "TO", "mode": {"valid": "full", "test": "full"}}
    store = store_of([list(range(1, 21))])
    with refused(ProtocolError, "no refit"):
        make_split(store, {"eval_args": arguments, "refit": True, "candidate_seed": 1, "eval_cases": None})
