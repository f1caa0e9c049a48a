"""Write finished runs as a row of RecBoard: one json file with the figures of each seed.

    python examples/recboard.py Amazon2014Beauty_550_LOU FMLPRecMemory.json saved/beauty/seed-*

The runs are ranked again, as RecBoard has cut-offs that a run seldom has. Its "best" is the best epoch by test; these
runs chose by validation and were tested once, so it has the figures of "test".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recbole_hyper.runs.evaluate import evaluate

CUTOFFS = {"Hit": (1, 5, 10, 20, 50), "NDCG": (5, 10, 20, 50)}
NAMES = {"Hit": "HITRATE", "NDCG": "NDCG"}


def of_part(values: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of a part by RecBoard's names."""
    return {f"{NAMES[name]}@{k}": values[f"{name.lower()}@{k}"] for name, cuts in CUTOFFS.items() for k in cuts}


def row(dataset: str, folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the row of a model: its runs on RecBoard's ``dataset`` in one entry."""
    runs, result = [], dict[str, Any]()
    for folder in folders:
        changes = {"topk": list(CUTOFFS["Hit"]), "metrics": list(CUTOFFS), "metric_decimal_place": 12}
        result = evaluate(folder, config_dict=changes)
        parts = {part: of_part(result[part]) for part in ("valid", "test")}
        params = {"seed": result["seed"], "commit": result["commit"]}
        runs.append({"id": folder.name, "params": params, "metrics": {**parts, "best": parts["test"]}})
    tags = ["Sequential", "CE", str(result["config"]["hidden_size"])]
    return [{"description": result["model"], "dataset": dataset, "tags": tags, "runs": runs}]


if __name__ == "__main__":
    content = row(sys.argv[1], [Path(folder) for folder in sys.argv[3:]])
    Path(sys.argv[2]).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
