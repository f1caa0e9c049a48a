"""Interactions that are divided at random or by counts: parts that need not follow one another in time."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.config import Config
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.protocols.base import Protocol, ProtocolError, check, make_split, repeated_targets
from recbole_hyper.runs.dataset import SequenceDataset
from tests.protocols.part_files import NAMES, in_order, random_parts, write_parts
from tests.protocols.splits import TRIPLES, Triple, config_of, store_of, unpack, without_empty
from tests.raising import refused
from tests.reference import protocols as reference


@given(TRIPLES, st.integers(0, 9), st.booleans())
@settings(max_examples=60, deadline=None)
def test_targets_of_the_history_are_counted(triples: list[Triple], seed: int, successive: bool) -> None:
    whole = store_of(triples)
    in_rows = [(user, item, time) for user, row in reference.by_user(triples).items() for item, time in row]
    numbers = np.random.default_rng(seed).integers(0, 3, len(triples)).astype(np.int8)
    users = np.repeat(whole.users, whole.lengths)
    store = SequenceStore.from_interactions(
        users, whole.items, whole.times, whole.user_tokens, whole.item_tokens, numbers
    )
    try:
        split = make_split(store, config_of({"files": NAMES}, eval_args={"successive": successive}))
    except ProtocolError:  # nobody to learn from, or nothing to ask
        expected = reference.files([[t for t, n in zip(in_rows, numbers, strict=True) if n == p] for p in range(3)])
        assert not any(len(items) >= 2 for items in expected[0].values()) or not (expected[1] or expected[2])
        return
    _, valid, test = unpack(split)
    assert repeated_targets(split.valid).sum() == sum(target in history for _, history, target in valid)
    assert repeated_targets(split.test).sum() == sum(target in history for _, history, target in test)


RANDOM = [
    ({"RS": [0.8, 0.1, 0.1]}, "user"),
    ({"RS": [0.5, 0.2, 0.3]}, "none"),
    ({"LS": "valid_and_test"}, "user"),
    ({"LS": "valid_only"}, "none"),
    ({"LS": "test_only"}, None),
]


@pytest.mark.parametrize(("eval_split", "group"), RANDOM)
def test_random_order_gives_the_sizes_of_recboles_own_split(tmp_path, eval_split, group) -> None:
    from recbole.data.dataset import Dataset

    triples = [triple for part in random_parts() for triple in part]
    write_parts(tmp_path, [triples], names=["all"])
    (tmp_path / "d" / "d.all.inter").rename(tmp_path / "d" / "d.inter")
    arguments = {"split": eval_split, "order": "RO", "group_by": group}
    config = Config("BPR", "d", config_dict={"data_path": str(tmp_path), "eval_args": arguments})
    theirs = [part.inter_feat["user_id"].tolist() for part in Dataset(config).build()]
    store = SequenceDataset(config).store
    split = make_split(store, config)
    sizes = [split.train_lengths.sum(), None, None]
    sizes[1:] = [
        len(cases) + split.counts[f"{name} cases of users without an earlier interaction, left out"]
        for name, cases in (("validation", split.valid), ("test", split.test))
    ]
    assert sizes == [len(part) for part in theirs]
    if group == "user" or "LS" in eval_split:
        for ours, part in (
            (np.repeat(store.users, split.train_lengths), theirs[0]),
            (store.users[split.valid.rows], theirs[1]),
            (store.users[split.test.rows], theirs[2]),
        ):
            assert sorted(ours.tolist()) == sorted(part)


@pytest.mark.parametrize(("eval_split", "group"), RANDOM)
def test_random_order_deals_every_interaction_once(eval_split: dict[str, Any], group: str | None) -> None:
    triples = [triple for part in random_parts() for triple in part]
    store = store_of(triples)
    arguments = {"order": "RO", "group_by": group}
    splits = [make_split(store, config_of(eval_split, eval_args=arguments, candidate_seed=seed)) for seed in (1, 1, 2)]
    assert unpack(splits[0]) == unpack(splits[1]) != unpack(splits[2])
    rows = reference.by_user(triples)
    for split in splits:
        assert "in random order" in str(split.counts["protocol"])
        train, valid, test = unpack(split)
        for user, row in rows.items():
            items = [item for item, _ in row]
            asked = [[target for who, _, target in cases if who == user] for cases in (valid, test)]
            lost = user not in train  # its cases may be left out
            assert lost or sorted(items) == sorted([*train[user], *asked[0], *asked[1]])
            # every part is in time order, and so are histories: training, then training and validation
            assert lost or all(history == tuple(train[user]) for who, history, _ in valid if who == user)
            assert lost or all(history == (*train[user], *asked[0]) for who, history, _ in test if who == user)
        # numbers of items tell the order of two interactions apart where times do
        times = split.store.times
        inside = split.store.positions < split.train_lengths[split.store.row_of]
        same_row = (np.diff(split.store.row_of) == 0) & inside[1:]
        assert (np.diff(times)[same_row] >= 0).all()


def test_refit_in_random_order() -> None:
    store = store_of([triple for part in random_parts() for triple in part])
    random = {"order": "RO"}
    split = make_split(store, config_of({"RS": [0.6, 0.2, 0.2]}, eval_args=random, refit=True))
    assert split.refit_lengths is not None
    rows = np.unique(split.test.rows)
    assert split.refit_lengths[split.test.rows].tolist() == split.test.ends.tolist()
    n_valid = np.bincount(split.valid.rows, minlength=store.n_rows)
    assert (split.refit_lengths - split.train_lengths)[rows].tolist() == n_valid[rows].tolist()
    with refused(ProtocolError, "needs", "validation"):
        make_split(store, config_of({"LS": "test_only"}, eval_args=random, refit=True))
    with refused(ProtocolError, "{LS", "valid_only}"):
        make_split(store, config_of({"LS": "valid_only"}, eval_args=random, refit=True))


@given(TRIPLES, st.sampled_from([[0.8, 0.1, 0.1], [0.5, 0.3, 0.2], [1, 1, 1], [6, 0, 4]]))
@settings(max_examples=80, deadline=None)
def test_ratio_of_all_interactions_equals_the_loops(triples: list[Triple], ratios: list[float]) -> None:
    from recbole.data.dataset import Dataset

    rows = reference.by_user(triples)
    total = sum(len(row) - 1 for row in rows.values())
    ends = [0, *Dataset._calcu_split_ids(None, total, [ratio / sum(ratios) for ratio in ratios]), total]
    sizes = tuple(np.diff(ends).tolist())
    expected = without_empty(reference.ratio_of_all(triples, sizes))
    try:
        split = make_split(store_of(triples), config_of({"RS": ratios}, eval_args={"group_by": "none"}))
    except ProtocolError:
        shares = [ratio for ratio, size in zip(ratios, sizes, strict=True) if ratio and not size]
        assert shares or not any(len(items) >= 2 for items in expected[0].values())
        return
    assert in_order(unpack(split)) == in_order(expected)


def test_ratio_of_all_interactions_equals_recboles_own_split(tmp_path: Path) -> None:
    from tests.conftest import write_inter
    from tests.protocols.test_ratio import recbole_split

    generator = np.random.default_rng(3)
    times = generator.permutation(600)
    triples = [(f"u{generator.integers(40):02d}", f"i{generator.integers(30):02d}", float(t)) for t in times[:500]]
    data = write_inter(tmp_path, "small", triples)
    theirs = recbole_split(data, {"RS": [0.8, 0.1, 0.1]}, group_by="none")
    split = make_split(store_of(triples), config_of({"RS": [0.8, 0.1, 0.1]}, eval_args={"group_by": "none"}))
    train, valid, test = unpack(split)
    assert (sorted(valid), sorted(test)) == (theirs[1], theirs[2])
    prefixes = [(user, tuple(items[:end]), items[end]) for user, items in train.items() for end in range(1, len(items))]
    assert sorted(prefixes) == theirs[0]


class LastFew(Protocol):
    """Of users with enough interactions the last is the test, and the n before it are for validation."""

    title = "the last few"

    def sizes(self, totals: np.ndarray) -> np.ndarray:
        n, long = int(self.argument), totals > int(self.argument) + 2
        return np.stack((totals - long * (n + 1), long * n, long), axis=1)


@pytest.mark.parametrize("refit", [False, True])
def test_a_protocol_needs_only_the_sizes_of_its_parts(refit: bool) -> None:
    lengths = [2, 4, 5, 9]
    store = store_of(
        [(f"u{user}", f"i{user}{n}", float(n)) for user, length in enumerate(lengths) for n in range(length)]
    )
    split = LastFew(2, refit=refit).split(store)
    check(split)
    for row in range(store.n_rows):
        length = int(store.lengths[row])
        end = length - 3 if length > 4 else length
        assert split.train_lengths[row] == end
        valid = [int(asked) for asked in split.valid.target_positions[split.valid.rows == row]]
        assert valid == (list(range(end, length - 1)) if length > 4 else [])
        assert [int(asked) for asked in split.test.target_positions[split.test.rows == row]] == (
            [length - 1] if length > 4 else []
        )
        if refit:
            assert split.refit_lengths is not None
            assert split.refit_lengths[row] == (length - 1 if length > 4 else length)
    # the history of a case is everything before it
    assert (split.valid.ends == split.valid.target_positions).all()
    assert (split.test.ends == split.test.target_positions).all()
    assert not split.valid.starts.any()
