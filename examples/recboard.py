"""Write finished runs as rows of RecBoard: one json file of a model, with the figures of each data set and seed.

    python examples/recboard.py Amazon2014Beauty_550_LOU FMLPRecMemory.json saved/beauty/seed-*

Other data sets that the file has stay in it. The runs are ranked again, as RecBoard has cut-offs that a run seldom has.
Its "best" is the best epoch by test; these runs chose by validation and were tested once, so it has the figures of
"test".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recbole_hyper.files import read_json
from recbole_hyper.runs.evaluate import evaluate

CUTOFFS = {"Hit": (1, 5, 10, 20, 50), "NDCG": (5, 10, 20, 50)}
NAMES = {"Hit": "HITRATE", "NDCG": "NDCG"}


def of_part(values: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of a part by RecBoard's names."""
    return {f"{NAMES[name]}@{k}": values[f"{name.lower()}@{k}"] for name, cuts in CUTOFFS.items() for k in cuts}


def row(dataset: str, folders: Sequence[Path]) -> dict[str, Any]:
    """Return the row of a model: its runs on RecBoard's ``dataset``."""
    runs, result = [], dict[str, Any]()
    for folder in folders:
        changes = {"topk": list(CUTOFFS["Hit"]), "metrics": list(CUTOFFS), "metric_decimal_place": 12}
        result = evaluate(folder, config_dict=changes)
        parts = {part: of_part(result[part]) for part in ("valid", "test")}
        params = {key: read_json(folder / "result.json")[key] for key in ("seed", "commit")}
        runs.append({"id": folder.name, "params": params, "metrics": {**parts, "best": parts["test"]}})
    tags = ["Sequential", "CE", str(result["config"]["hidden_size"])]
    return {"description": result["model"], "dataset": dataset, "tags": tags, "runs": runs}


def write(dataset: str, file: Path, folders: Sequence[Path]) -> None:
    """Write the row of ``dataset`` into ``file``, where it replaces an earlier one."""
    rows = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    rows = [one for one in rows if one["dataset"] != dataset] + [row(dataset, folders)]
    file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]), [Path(folder) for folder in sys.argv[3:]])
