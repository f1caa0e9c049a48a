"""Warm starts compared with training from scratch, week by week: quality on the next week, and processor minutes.

    make bench-warm_start ARGS="--data_path=DIR --work=DIR --output=results"

The newest ``--weeks`` weeks of a data set play the role of new orders. Before each week, one model is trained from
scratch on all earlier interactions ("anew"), another one starts from the weights of the week before (``init_from`` with
its defaults), and a third one remains that of the first week. All three rank every interaction of the week after its
history. Interactions with items that a model does not know are not ranked, but counted. Epochs are selected on the last
item of each user. ``--work`` keeps the runs: if the script is called again, it resumes after the last finished run.
With --output=FOLDER it writes warm_start.json and warm_start.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from recbole_hyper import run
from recbole_hyper.evaluation.tables import table
from recbole_hyper.runs.evaluate import evaluate

WEEK = 7 * 86_400
HEADER = ["user_id:token", "item_id:token", "timestamp:float"]
KEYS = {
    **{"eval_args": {"split": {"LS": "valid_only"}, "mode": "full"}, "topk": [10], "valid_metric": "NDCG@10"},
    **{"stopping_step": 2, "save_cases": False, "show_progress": False, "use_gpu": False, "exclude_seen": False},
}
OF_MODEL = {"MAX_ITEM_LIST_LENGTH": 20, "hidden_size": 32, "train_batch_size": 256, "learning_rate": 0.003}


def trained(name: str, folder: Path, keys: dict[str, Any]) -> dict[str, Any]:
    """Train, and return epochs and processor minutes; a run that finished in an earlier call is not repeated."""
    file = folder / "cost.json"
    if not file.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        start = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            result = run(None, name, config_dict={**keys, "output_dir": str(folder)})
        minutes = (time.process_time() - start) / 60
        file.write_text(json.dumps({"epochs": result["epochs"], "best": result["best_epoch"] + 1, "minutes": minutes}))
    return json.loads(file.read_text())


def ranked(folder: Path, week: pd.DataFrame, since: float) -> dict[str, Any]:
    """Return the metrics of a model on the interactions of a week, and the numbers of cases and unknown items."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        found = evaluate(folder, data=week, since=since)
    unknown = found["protocol_counts"]["new interactions with unknown items, not ranked"]
    counts = {"cases": found["protocol_counts"]["test cases"], "unknown items": unknown}
    return {**{name: found["test"][name] for name in ("ndcg@10", "hit@10")}, **counts}


def main() -> None:
    """Train and rank week by week; print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", type=Path, required=True)
    parser.add_argument("--dataset", default="amazon-beauty")
    parser.add_argument("--model", default="SASRecCE")
    parser.add_argument("--weeks", type=int, default=4)
    parser.add_argument(
        "--epochs", type=int, default=9, help="epochs of a model that is trained from scratch; every third is validated"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--output", type=Path, help="folder of warm_start.json and .md; default: print only")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    file = options.data_path / options.dataset / f"{options.dataset}.inter"
    frame = pd.read_csv(file, sep="\t", dtype={HEADER[0]: str, HEADER[1]: str})[HEADER]
    end, root, rows = frame[HEADER[2]].max() + 1, options.work, []
    keys = {**KEYS, "data_path": str(root), "n_threads": options.threads}
    for number in range(options.weeks):
        since, name = end - (options.weeks - number) * WEEK, f"week{number}"
        (root / name).mkdir(parents=True, exist_ok=True)
        frame[frame[HEADER[2]] < since].to_csv(root / name / f"{name}.inter", sep="\t", index=False)
        week = frame[frame[HEADER[2]].between(since, since + WEEK, inclusive="left")]
        week = week.set_axis([column.partition(":")[0] for column in HEADER], axis=1)
        anew = {**keys, **OF_MODEL, "model": options.model, "epochs": options.epochs, "eval_step": 3}
        costs = {"anew": trained(name, root / f"anew{number}", anew)}
        if not number:
            print(json.dumps({"week": 0, "way": "anew", **costs["anew"]}), flush=True)
            continue
        before = root / f"{'warm' if number > 1 else 'anew'}{number - 1}"
        costs["warm"] = trained(name, root / f"warm{number}", {**keys, "eval_step": 1, "init_from": str(before)})
        for way, folder in {"anew": f"anew{number}", "warm": f"warm{number}", "first week's": "anew0"}.items():
            rows.append({"week": number, "way": way, **ranked(root / folder, week, since), **costs.get(way, {})})
            print(json.dumps(rows[-1]), flush=True)
    about = {
        "options": {
            name: str(value) for name, value in vars(options).items() if name not in ("work", "data_path", "output")
        }
    }
    means = pd.DataFrame(rows).groupby("way", sort=False).mean(numeric_only=True).drop(columns="week")
    text = table(
        [{"way": way, **{name: f"{value:.4g}" for name, value in row.items()}} for way, row in means.iterrows()]
    )
    print(text)
    if options.output:
        (options.output / "warm_start.json").write_text(json.dumps({**about, "weeks": rows}, indent=1))
        (options.output / "warm_start.md").write_text(
            f"{__doc__}\nMeans over {options.weeks - 1} weeks:\n\n```text\n{text}\n```\n"
        )


if __name__ == "__main__":
    main()
