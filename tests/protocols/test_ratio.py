"""The splits by ratio, against plain loops and RecBole's own splits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.config import Config
from recbole_hyper.protocols.base import ProtocolError, make_split
from recbole_hyper.protocols.ratio import part_sizes
from recbole_hyper.runs.dataset import SequenceDataset
from tests.conftest import write_inter
from tests.protocols.splits import Triple, config_of, store_of, unpack
from tests.raising import refused
from tests.reference import protocols as reference


def recbole_split(data: Path, eval_split: dict[str, Any], group_by: str = "user") -> list[list[reference.Case]]:
    """(user, history, target) of every row of RecBole's own SequentialDataset.build()."""
    from recbole.data.dataset import SequentialDataset

    from recbole_hyper.config import Config

    arguments = {"split": eval_split, "group_by": group_by}
    keys = {"data_path": str(data), "use_gpu": False, "eval_args": arguments, "MAX_ITEM_LIST_LENGTH": 40}
    config = Config("SASRecCE", "small", config_dict=keys)
    dataset = SequentialDataset(config)
    parts: list[list[reference.Case]] = []
    for part in dataset.build():
        rows = part.inter_feat
        cases = []
        for index in range(len(rows)):
            length = int(rows["item_length"][index])
            history = dataset.field2id_token["item_id"][rows["item_id_list"][index][:length].numpy()]
            target = dataset.id2token("item_id", rows["item_id"][index])
            cases.append(
                (str(dataset.id2token("user_id", rows["user_id"][index])), tuple(map(str, history)), str(target))
            )
        parts.append(sorted(cases))
    return parts


@pytest.mark.parametrize(
    "eval_split",
    [
        {"LS": "valid_and_test"},
        {"LS": "test_only"},
        {"LS": "valid_only"},
        {"RS": [0.8, 0.1, 0.1]},
        {"RS": [0.5, 0.2, 0.3]},
        {"RS": [0.34, 0.33, 0.33]},
        {"RS": [7, 0, 3]},
    ],
)
def test_ls_and_rs_equal_recboles_own_split(tmp_path: Path, eval_split: dict[str, Any]) -> None:
    from tests.conftest import write_inter

    generator = np.random.default_rng(3)
    triples: list[Triple] = []
    for user in range(60):
        times = np.sort(generator.choice(500, size=int(generator.integers(1, 30)), replace=False))
        triples += [(f"u{user:02d}", f"i{generator.integers(0, 50):02d}", float(time)) for time in times]
    data = write_inter(tmp_path, "small", triples)
    theirs = recbole_split(data, eval_split)
    split = make_split(store_of(triples), config_of(eval_split))
    _, valid, test = unpack(split)
    assert sorted(valid) == theirs[1]
    assert sorted(test) == theirs[2]
    # RecBole's training rows are every prefix of the training part
    prefixes = [
        (user, tuple(items[:end]), items[end])
        for user, items in unpack(split)[0].items()
        for end in range(1, len(items))
    ]
    assert sorted(prefixes) == theirs[0]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=20), st.lists(st.integers(0, 9), min_size=3, max_size=3))
@settings(max_examples=100, deadline=None)
def test_part_sizes_are_recboles(totals: list[int], ratios: list[int]) -> None:
    from recbole.data.dataset import Dataset

    if not sum(ratios):
        return
    shares = [ratio / sum(ratios) for ratio in ratios]
    ours = part_sizes(np.array(totals), [float(ratio) for ratio in ratios])
    for total, sizes in zip(totals, ours, strict=True):
        cuts = Dataset._calcu_split_ids(None, tot=total, ratios=shares)
        assert np.cumsum(sizes)[:-1].tolist() == list(cuts)
        assert sizes.sum() == total


def test_time_ratio_equals_the_loops() -> None:
    """Percentile of the times of all targets, then a share of each user's targets before it, as RecBole 1.2.1."""
    draw = np.random.default_rng(3)
    triples = [
        (f"u{user}", f"i{draw.integers(20)}", float(time))
        for user in range(30)
        for time in draw.permutation(200)[: draw.integers(1, 15)]
    ]
    split = make_split(store_of(triples), config_of({"TS": [0.7, 0.1, 0.2]}))
    of_user = {user: sorted(t for t in triples if t[0] == user) for user, _, _ in triples}
    of_user = {user: sorted(rows, key=lambda row: row[2]) for user, rows in of_user.items()}
    point = np.percentile([time for rows in of_user.values() for _, _, time in rows[1:]], 80)
    expected: dict[str, list[tuple[str, tuple[str, ...], str]]] = {"valid": [], "test": []}
    for user, rows in sorted(of_user.items()):
        before = sum(time <= point for _, _, time in rows[1:])
        trained = int(before * (0.7 / (1 - 0.2)))
        items = [item for _, item, _ in rows]
        for place in range(trained + 1, len(items)):
            part = "valid" if place <= before else "test"
            expected[part].append((user, tuple(items[:place]), items[place]))
    _, valid, test = unpack(split)
    assert (sorted(valid), sorted(test)) == (sorted(expected["valid"]), sorted(expected["test"]))
    with refused(ProtocolError, "[0", "1]"):
        make_split(store_of(triples), config_of({"TS": 0.8}))


def test_time_ratio_is_recboles(tmp_path: Path) -> None:
    from recbole.data.dataset import SequentialDataset

    if not hasattr(SequentialDataset, "time_based_split"):
        pytest.skip("RecBole 1.2.1 brought it")
    draw = np.random.default_rng(4)
    rows = [
        (f"u{user}", f"i{draw.integers(20)}", int(time))
        for user in range(30)
        for time in draw.permutation(200)[: draw.integers(2, 15)]
    ]
    keys = {"data_path": str(write_inter(tmp_path, "d", rows)), "eval_args": {"split": {"TS": [0.7, 0.1, 0.2]}}}
    config = Config("GRU4Rec", "d", config_dict=keys)
    split = make_split(SequenceDataset(config).store, config)
    recboles = SequentialDataset(config).build()
    for cases, part in zip((split.valid, split.test), recboles[1:], strict=True):
        table = part.inter_feat
        theirs = np.stack([table[name].numpy() for name in ("user_id", "item_length", "item_id")], axis=1)
        ours = np.stack([cases.store.users[cases.rows], cases.ends, cases.targets], axis=1)
        assert sorted(ours.tolist()) == sorted(theirs.tolist())
