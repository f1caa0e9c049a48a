"""Warm starts against training anew, week by week: quality on the next week, and minutes.

    make bench-warm_start ARGS="--data_path=DIR --dataset=amazon-beauty --output=results"

The newest ``--weeks`` weeks of a data set are today's orders, one after another. Before each of them a model is trained
anew on all that came before, another starts from the weights of the week before (``init_from``, at its defaults), and
that of the first week stays as it is. All three rank every interaction of the week, given what came before it; items
that a model does not know are left out of its cases and counted. Selection is on the last item of each user.
Writes warm_start.json and warm_start.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from recbole_hyper import run
from recbole_hyper.evaluation.tables import table
from recbole_hyper.runs.evaluate import evaluate

WEEK = 7 * 86_400
SPLIT = {"split": {"LS": "valid_only"}, "mode": "full"}
HEADER = ["user_id:token", "item_id:token", "timestamp:float"]


def trained(name: str, data: Path, folder: Path, keys: dict[str, Any]) -> dict[str, Any]:
    """Run, and return epochs, seconds of training and validation, and where it started."""
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        result = run(None, name, config_dict={**keys, "data_path": str(data), "output_dir": str(folder)})
    seconds = time.perf_counter() - start
    return {"epochs": result["epochs"], "seconds": seconds, "train_seconds": result["seconds"]["train"]}


def ranked(folder: Path, week: pd.DataFrame, since: float) -> dict[str, Any]:
    """Return the metrics of a model on the interactions of a week, and the number of its cases."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        found = evaluate(folder, data=week, since=since)
    unknown = found["protocol_counts"]["new interactions with items that the model does not know, not ranked"]
    counts = {"cases": found["protocol_counts"]["test cases"], "unknown items": unknown}
    return {**{name: found["test"][name] for name in ("ndcg@10", "hit@10")}, **counts}


def main() -> None:
    """Train and rank week by week, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", type=Path, required=True)
    parser.add_argument("--dataset", default="amazon-beauty")
    parser.add_argument("--model", default="SASRecCE")
    parser.add_argument("--weeks", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    file = options.data_path / options.dataset / f"{options.dataset}.inter"
    frame = pd.read_csv(file, sep="\t", dtype={HEADER[0]: str, HEADER[1]: str})[HEADER]
    end = frame[HEADER[2]].max() + 1
    root = Path(tempfile.mkdtemp(prefix="warm-start-"))
    keys = {
        **{"model": options.model, "epochs": options.epochs, "stopping_step": 2, "eval_args": SPLIT},
        **{"save_cases": False, "show_progress": False, "use_gpu": False, "n_threads": options.threads},
        **{"MAX_ITEM_LIST_LENGTH": 50, "hidden_size": 64, "train_batch_size": 256, "exclude_seen": False},
        **{"topk": [10], "valid_metric": "NDCG@10"},
    }
    rows: list[dict[str, Any]] = []
    for number in range(options.weeks):
        since = end - (options.weeks - number) * WEEK
        name = f"week{number}"
        (root / name).mkdir()
        frame[frame[HEADER[2]] < since].to_csv(root / name / f"{name}.inter", sep="\t", index=False)
        week = frame[frame[HEADER[2]].between(since, since + WEEK, inclusive="left")]
        week = week.set_axis([column.partition(":")[0] for column in HEADER], axis=1)
        costs = {"anew": trained(name, root, root / f"anew{number}", keys)}
        if number:
            of_run = {"model", "MAX_ITEM_LIST_LENGTH", "hidden_size", "train_batch_size", "epochs"}
            given = {key: value for key, value in keys.items() if key not in of_run}
            given["init_from"] = str(root / f"{'warm' if number > 1 else 'anew'}{number - 1}")
            costs["warm"] = trained(name, root, root / f"warm{number}", given)
            folders = {"anew": f"anew{number}", "warm": f"warm{number}", "first week's": "anew0"}
            for way, folder in folders.items():
                row = {"week": number, "way": way, **ranked(root / folder, week, since), **costs.get(way, {})}
                rows.append(row)
                print(json.dumps(row), flush=True)
        elif options.weeks > 1:
            print(json.dumps({"week": 0, "way": "anew", **costs["anew"]}), flush=True)
    shutil.rmtree(root)
    (options.output / "warm_start.json").write_text(
        json.dumps({"options": vars(options), "weeks": rows}, default=str, indent=1)
    )
    means = pd.DataFrame(rows).groupby("way", sort=False).mean(numeric_only=True).drop(columns="week")
    text = table(
        [{"way": way, **{name: f"{value:.4g}" for name, value in row.items()}} for way, row in means.iterrows()]
    )
    (options.output / "warm_start.md").write_text(
        f"{__doc__}\nMeans over {options.weeks - 1} weeks:\n\n```text\n{text}\n```\n"
    )
    print(text)


if __name__ == "__main__":
    main()
