"""Add finished runs to runs.csv: python results/collect.py FOLDER...

Each folder is searched for result.json. A run is named by its place: FOLDER/a/seed-2021 and FOLDER/a_seed2021 are
a_seed2021; the first seed, 2020, is a. A run that is in the table already replaces its row. The column `keys` has what
differs from the defaults of the model and the protocol, at the commit of the run; no path of the machine is kept.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

sys.path.append(str(Path(__file__).parent))
from table import COLUMNS, FILE, METRICS, Run, read_runs

from recbole_hyper.config import Config
from recbole_hyper.config.parts import PARTS
from recbole_hyper.evaluation.results import costs
from recbole_hyper.report.differences import canonical, read_settings
from recbole_hyper.yaml_files import config_files

FIRST_SEED = "_seed2020"
PROTOCOLS = {name: name.replace(" ", "_") for name in ("global timepoint", "temporal users", "sessions")}
# keys of FMLPRecMemory that runs before them lack, and what these runs had
BEFORE = {"memory_rerank": False, "memory_ease": False}
# keys that say where the data were, or which kernel a GPU takes
NOT_KEPT = ("interactions", "load_col", "triton_kernel")


def name_of(run: Path, folder: Path) -> str:
    """Return the name of the run in the folder ``run``, which is ``folder`` or below it."""
    place = run.relative_to(folder).parts or (run.resolve().name,)
    return "_".join(place).replace("seed-", "seed").removesuffix(FIRST_SEED)


def keys_of(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys that such a run sets, as they are typed."""
    model, dataset, asked = result["model"], result["dataset"], BEFORE | result["config"]
    protocol = PROTOCOLS.get(result["protocol"], "")
    if "target" in (result["eval_args"]["split"].get("GT") or {}):
        protocol = "last_item_after_timepoint"
    given = {"interactions": "given", "selected_features": None}  # no data set is opened
    default = Config(model, dataset, config_files(protocol), given)
    parts = {key: asked[key] for key in PARTS if key in asked and key in default}
    # options of a part have their defaults beside it
    usual = read_settings(model, Config(model, dataset, config_files(protocol), {**given, **parts}).plain())
    usual |= {key: default[key] for key in parts}
    differing = {
        key: value
        for key, value in read_settings(model, asked).items()
        if key in usual and canonical(usual[key]) != canonical(value) and key not in NOT_KEPT
    }
    if "curvature_interval" in result:
        differing["curvature"] = "auto"
    if "init_from" in differing:  # the name of the earlier run, without its place
        differing["init_from"] = f"saved/{Path(differing['init_from']).name}"
    measured = {key: asked[key] for key in ("seed", "metrics", "topk", "valid_metric") if asked[key] != default[key]}
    found = ({"config_files": protocol} if protocol else {}) | measured | differing
    return {
        key: yaml.safe_dump(value, default_flow_style=True, width=10**6).strip().removesuffix("\n...")
        for key, value in found.items()
    }


def protocol_of(result: Mapping[str, Any]) -> str:
    """Return the protocol of a run in words."""
    split, mode = result["eval_args"]["split"], result["eval_args"]["mode"]
    words = [result["protocol"]]
    (value,) = split.values()
    if isinstance(value, dict) and value.get("target") == "last":
        words.append("last item of each user")
        words += ["unknown targets are misses"] if value.get("unknown") == "miss" else []
    candidates = mode["test"] if isinstance(mode, dict) else mode
    words.append("all items ranked" if candidates == "full" else f"{candidates.removeprefix('uni')} drawn candidates")
    return ", ".join(words)


def row_of(name: str, result: Mapping[str, Any]) -> Run:
    """Return the row of a run."""
    spent, device, config = costs(result), result.get("device") or {}, result["config"]
    row = {name: result[name] for name in ("model", "dataset", "seed", "commit", "exclude_seen", "epochs")}
    row |= {"run": name, "fingerprint": result["data_fingerprint"], "protocol": protocol_of(result)}
    row |= {"cases": result["n_test_cases"], "best_epoch": result["best_epoch"], "threads": result.get("threads")}
    row |= {"device": " ".join(device[key] for key in ("type", "name") if key in device)}
    row |= {"minutes": round((spent["train_seconds"] or 0.0) / 60, 4), "keys": keys_of(result)}
    row |= {"mib": spent["peak_memory_mib"] and round(spent["peak_memory_mib"], 1)}
    # models that are fitted in one step have no windows
    windows = config.get("train_windows") if result["best_epoch"] >= 0 else None
    row |= {"width": config.get("hidden_size"), "windows": windows or "-", "refit": bool(config.get("refit"))}
    for metric in METRICS:
        row |= {f"{part} {metric}": result[part].get(metric) for part in ("valid", "test")}
        low, high = (result.get("test_intervals") or {}).get(metric) or (None, None)
        row |= {f"test {metric} {end}": value and round(value, 8) for end, value in (("low", low), ("high", high))}
    return row


def write_runs(rows: Mapping[str, Run], file: Path) -> None:
    """Write a table of runs, ordered by name."""
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for _, row in sorted(rows.items()):
            writer.writerow(row | {"keys": json.dumps(row["keys"], separators=(",", ":"))})


def collect(folders: Sequence[Path], file: Path = FILE) -> dict[str, str]:
    """Write the finished runs below ``folders`` into the table; return what happened to each, by name."""
    rows, said = read_runs(file) if file.is_file() else {}, {}
    for folder in folders:
        for place in sorted(folder.rglob("result.json")):
            result = json.loads(place.read_text(encoding="utf-8"))
            if result.get("test"):
                name = name_of(place.parent, folder)
                said[name] = "replaced" if name in rows else "new"
                rows[name] = row_of(name, result)
    write_runs(rows, file)
    return said


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    for one, text in collect([Path(folder) for folder in sys.argv[1:]]).items():
        print(f"{one}: {text}")
