"""Copy the results of finished runs into results/runs, under the names of their folders.

    python results/keep.py FOLDER [NAME ...]     all runs below FOLDER, or those of these names

FOLDER/a/seed-2021 and FOLDER/a_seed2021 become a_seed2021.json; the first seed, 2020, is a.json. Paths of the machine
are left out. A run that is not finished is skipped. A file that is there with other metrics is left as it is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RUNS = Path(__file__).parent / "runs"
FIRST_SEED = "_seed2020"


def name_of(run: Path, folder: Path) -> str:
    """Return the name of the run in the folder ``run``, which is below ``folder``."""
    return "_".join(run.relative_to(folder).parts).replace("seed-", "seed").removesuffix(FIRST_SEED)


def finished(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the results of the finished runs below ``folder`` by name, without paths of this machine."""
    found = {}
    for file in sorted(folder.rglob("result.json")):
        result = json.loads(file.read_text(encoding="utf-8"))
        if result.get("test"):
            result["config"] |= dict.fromkeys(("data_path", "output_dir"))
            found[name_of(file.parent, folder)] = result
    return found


def keep(folder: Path, names: Sequence[str] = (), runs: Path = RUNS) -> dict[str, str]:
    """Copy the finished runs below ``folder`` to ``runs``; return what happened to each, by name."""
    results = finished(folder)
    if unknown := sorted(set(names) - set(results)):
        raise SystemExit(f"{folder} has no finished run {', '.join(unknown)}; it has {', '.join(results) or 'none'}")
    said = {}
    for name in names or results:
        file = runs / f"{name}.json"
        if not file.exists():
            file.write_text(json.dumps(results[name], indent=2) + "\n", encoding="utf-8")
            said[name] = "new"
        elif json.loads(file.read_text(encoding="utf-8"))["test"] == results[name]["test"]:
            said[name] = "there"
        else:
            said[name] = "left as it is: its file has other metrics"
    return said


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    for one, text in keep(Path(sys.argv[1]), sys.argv[2:]).items():
        print(f"{one}: {text}")
