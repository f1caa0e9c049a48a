"""Make scores of items from the semantic ids that a generative model wrote, for ``compare --scores``.

    python examples/semantic_ids.py Instruments.index.json generated.csv scores.parquet

The index says the tokens of each item, {"0": ["<a_128>", "<b_241>", ...], ...}; ``generated`` has user_id, code (the
tokens of one item without blanks) and score. Every item of a code gets its score. Such items tie, and a tie counts
against the target: to count the code as a hit would count it for each of them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd


def codes_of(index: Path) -> pd.DataFrame:
    """Return item_id and code of each item, a row each."""
    tokens = json.loads(index.read_text(encoding="utf-8"))
    return pd.DataFrame({"item_id": list(tokens), "code": ["".join(one) for one in tokens.values()]})


def share_with_others(codes: pd.DataFrame) -> float:
    """Return the share of the items that have a code of several items."""
    return float(codes["code"].duplicated(keep=False).mean())


def item_scores(codes: pd.DataFrame, generated: pd.DataFrame) -> pd.DataFrame:
    """Return user_id, item_id and score: the score of a code for each of its items; ValueError for an unknown code."""
    if unknown := sorted(set(generated["code"]) - set(codes["code"])):
        raise ValueError(f"{len(unknown)} codes are of no item, such as {unknown[0]!r}: decode with a prefix tree")
    best = generated.groupby(["user_id", "code"], as_index=False)["score"].max()
    return best.merge(codes, on="code")[["user_id", "item_id", "score"]]


if __name__ == "__main__":
    table = codes_of(Path(sys.argv[1]))
    print(f"{share_with_others(table):.1%} of {len(table)} items share their code with others")
    item_scores(table, pd.read_csv(sys.argv[2], dtype={"user_id": str})).to_parquet(sys.argv[3], index=False)
