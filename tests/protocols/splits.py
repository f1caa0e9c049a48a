"""What the tests of the protocols share: stores, settings, and splits by name."""

from typing import Any

from hypothesis import strategies as st

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.types import Cases, Split
from tests.reference import protocols as reference

Triple = tuple[str, str, float]


def store_of(triples: list[Triple]) -> SequenceStore:
    users = sorted({user for user, _, _ in triples})
    items = sorted({item for _, item, _ in triples})
    return SequenceStore.from_interactions(
        [users.index(user) + 1 for user, _, _ in triples],
        [items.index(item) + 1 for _, item, _ in triples],
        [time for _, _, time in triples],
        ["[PAD]", *users],
        ["[PAD]", *items],
    )


def config_of(split: dict[str, Any], **keys: Any) -> dict[str, Any]:
    mode = keys.pop("mode", "full")
    arguments = {"split": split, "order": "TO", "mode": {"valid": mode, "test": mode}, **keys.pop("eval_args", {})}
    return {"eval_args": arguments, "refit": False, "candidate_seed": 7, "eval_cases": None, **keys}


def unpack(split: Split) -> reference.Parts:
    """Turn pointers into names."""
    store = split.store
    train = {
        str(store.user_tokens[store.users[row]]): [str(store.item_tokens[i]) for i in store.row(row)[:length]]
        for row, length in enumerate(split.train_lengths)
        if length
    }

    def cases(part: Cases) -> list[reference.Case]:
        return [
            (
                str(part.store.user_tokens[part.store.users[row]]),
                tuple(str(part.store.item_tokens[i]) for i in part.store.row(row)[start:end]),
                str(part.store.item_tokens[target]),
            )
            for row, start, end, target in zip(part.rows, part.starts, part.ends, part.targets, strict=True)
        ]

    return train, cases(split.valid), cases(split.test)


def without_empty(parts: reference.Parts) -> reference.Parts:
    return {user: items for user, items in parts[0].items() if items}, parts[1], parts[2]


# x is seen by many, "late" first after the test starts, "mid" first in validation; user n is new in the test part
BY_HAND: list[Triple] = [
    ("a", "x", 1), ("a", "y", 2), ("a", "z", 12), ("a", "mid", 13), ("a", "w", 21), ("a", "mid", 22), ("a", "x", 23),
    ("b", "w", 3), ("b", "z", 4), ("b", "x", 5), ("b", "y", 14),
    ("n", "late", 24), ("n", "y", 25), ("n", "late", 26), ("n", "w", 27),
    ("o", "z", 28),
]  # fmt: skip


POINTS = {"valid": "1970-01-01 00:00:10", "test": "1970-01-01 00:00:20"}


TRIPLES = st.lists(
    st.tuples(st.sampled_from("abcdefg"), st.sampled_from("qrstuvwxyz"), st.integers(0, 30).map(float)),
    min_size=12,
    max_size=70,
)
