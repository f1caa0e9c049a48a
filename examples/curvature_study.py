"""Does curvature help? Six heads on one network, each tuned with the same budget: the study of docs/curvature.md.

    python -m examples.curvature_study FOLDER --data=ml-100k
    python -m examples.curvature_study FOLDER --data_path=DIR --data=amazon-beauty-sequences,ml-1m --widths=8,16,32,64
    python -m examples.curvature_study FOLDER ... --table        trains nothing, writes the tables of what is finished

For each data set, width and head: ``--trials`` runs with the first seed, over the same list of learning rates and
dropouts; then the best of them on validation with the other seeds. The network is FMLPRecCE, all other settings are its
defaults. FOLDER gets a folder for each run, study.csv with a row for each run that counts, and study.md with means over
the seeds. Each run has its own process and one thread. After a kill the same command continues, and more data, heads,
widths or seeds may be added later.

``overlap`` and ``trustworthiness`` measure whether items that users choose together are near each other in the item
vectors (examples.neighbourhoods.py).
"""

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from examples.neighbourhoods import neighbourhoods
from recbole_hyper.data.pair_counts import pair_counts
from recbole_hyper.evaluation.tables import Table
from recbole_hyper.experiment.experiment import Experiment, Run, Start, keys_file, run_alone
from recbole_hyper.files import read_json, write_json
from recbole_hyper.runs.claim import plan_runs, seed_folder
from recbole_hyper.runs.load import load_model, read_finished, read_run

HEADS: dict[str, dict[str, Any]] = {
    "dot-product": {"geometry": "euclidean"},
    "flat-limit": {"geometry": "euclidean", "temperature": 0.25},
    "learned-temperature": {"geometry": "euclidean", "temperature": "learn"},
    "poincare-auto": {"geometry": "poincare", "curvature": "auto"},
    "poincare-learned": {"geometry": "poincare", "curvature": "learn"},
    # between the curvatures that the HSASRec paper estimates for its data sets, .012 to .041
    "poincare-fixed": {"geometry": "poincare", "curvature": 0.02},
}
# in this order; the first trials are spread over the whole range
TRIALS = (
    (0.003, 0.3),
    (0.005, 0.5),
    (0.002, 0.5),
    (0.005, 0.2),
    (0.003, 0.6),
    (0.002, 0.2),
    (0.008, 0.4),
    (0.001, 0.3),
)
MODEL, METRIC, NEIGHBOURHOODS = "FMLPRecCE", "ndcg@10", "neighbourhoods.json"
NEIGHBOURS, WINDOW = 10, 10


class Cell(NamedTuple):
    """One head at one width on one data set."""

    data: str
    width: int
    head: str


@dataclass(frozen=True)
class Study:
    """The grid, where it is kept, and how many trials each cell gets."""

    folder: Path
    cells: Sequence[Cell]
    seeds: Sequence[int]
    trials: int
    keys: dict[str, Any]
    processes: int = 1

    def place(self, cell: Cell, trial: int) -> Path:
        """Return the folder of a trial, which has a folder for each seed."""
        rate, dropout = TRIALS[trial]
        return self.folder / f"{cell.data}_{cell.head}_{cell.width}_rate{rate}_dropout{dropout}"

    def runs(self, cell: Cell, trial: int, seeds: Sequence[int]) -> Iterator[Run]:
        """Yield the runs of a trial with these seeds; ConfigError for settings that cannot run."""
        rate, dropout = TRIALS[trial]
        settings = {"hidden_size": cell.width, "learning_rate": rate, "hidden_dropout_prob": dropout}
        settings |= {"n_threads": 1, "save_data": False, "save_cases": False, "show_progress": False}
        place = self.place(cell, trial)
        for seed, keys in plan_runs(
            MODEL, cell.data, seeds, place, {**settings, **HEADS[cell.head], **self.keys}
        ).items():
            yield Run(MODEL, cell.data, seed, keys, seed_folder(place, seed), place.name)

    def tune(self, start: Start) -> dict[str, str]:
        """Train all trials of all cells with the first seed; return what failed."""
        trials = itertools.product(self.cells, range(self.trials))
        runs = [run for cell, trial in trials for run in self.runs(cell, trial, self.seeds[:1])]
        return Experiment(runs, self.processes).execute(start)[1]

    def best(self, cell: Cell) -> int | None:
        """Return the trial with the best validation, None until all trials of the cell are finished."""
        files = [seed_folder(self.place(cell, trial), self.seeds[0]) / "result.json" for trial in range(self.trials)]
        if not all(file.is_file() for file in files):
            return None
        return int(np.argmax([read_json(file)["valid"][METRIC] for file in files]))

    def repeat(self, start: Start) -> dict[str, str]:
        """Train the best trial of each cell with all seeds, seed by seed; return what failed."""
        chosen = {cell: trial for cell in self.cells if (trial := self.best(cell)) is not None}
        runs = [run for seed in self.seeds for cell, trial in chosen.items() for run in self.runs(cell, trial, [seed])]
        return Experiment(runs, self.processes).execute(start)[1]

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each finished run of the best trials."""
        rows = []
        for cell in self.cells:
            if (trial := self.best(cell)) is None:
                continue
            for seed in self.seeds:
                folder = seed_folder(self.place(cell, trial), seed)
                if (folder / "result.json").is_file():
                    rate, dropout = TRIALS[trial]
                    row = {"data": cell.data, "d": cell.width, "head": cell.head, "seed": seed, "trials": self.trials}
                    rows.append(row | {"rate": rate, "dropout": dropout} | measures(folder))
        return rows


def measures(folder: Path) -> dict[str, Any]:
    """Return what a row has of a finished run; its neighbourhoods are computed once and kept in its folder."""
    result, file = read_json(folder / "result.json"), folder / NEIGHBOURHOODS
    if not file.is_file():
        config, data, split = read_finished(folder, read_run(folder), data_set=False)
        model, _ = load_model(config, data, split)
        counts, _ = pair_counts(split.store, np.asarray(split.train_lengths), window=WINDOW, neighbours=200)
        content = neighbourhoods(model.head, counts, k=NEIGHBOURS)._asdict()
        write_json(file, content | {"theta": model.head.theta_value})
    near = read_json(file)
    return {
        "theta": near["theta"],
        "valid": result["valid"][METRIC],
        METRIC: result["test"][METRIC],
        "coverage@10": result["test"]["itemcoverage@10"],
        "overlap": near["overlap"],
        "trustworthiness": near["trustworthiness"],
        "minutes": result["seconds"]["train"] / 60,
    }


def tables(rows: list[dict[str, Any]], folder: Path) -> str:
    """Write study.csv, and study.md with means over the seeds; return the text of study.md."""
    frame = pd.DataFrame(rows)
    frame.round(6).to_csv(folder / "study.csv", index=False, lineterminator="\n")
    groups = frame.groupby(["data", "d", "head"], sort=False)
    means = groups[["rate", "dropout", "theta", "valid", METRIC, "coverage@10", "overlap", "trustworthiness"]].mean()
    means.insert(0, "seeds", groups["seed"].nunique())
    means[f"{METRIC} std"] = groups[METRIC].std()
    forms = dict.fromkeys(
        ("theta", "valid", METRIC, "coverage@10", "overlap", "trustworthiness", f"{METRIC} std"), ".4f"
    )
    text = Table.of(means.reset_index(), forms=forms).markdown()
    (folder / "study.md").write_text(text, encoding="utf-8")
    return text


def alone(folder: Path) -> Start:
    """Return what trains a run in its own process, with one thread."""
    return lambda run: run_alone(run.model, run.dataset, keys_file(run, folder), 1)


def study(grid: Study, start: Start | None = None, *, table_only: bool = False) -> dict[str, str]:
    """Train what is not finished, and write the tables; return what failed, by folder."""
    grid.folder.mkdir(parents=True, exist_ok=True)
    start, failed = start or alone(grid.folder), {}
    if not table_only:
        failed = grid.tune(start) | grid.repeat(start)
    if rows := grid.rows():
        print(tables(rows, grid.folder))
    return failed


def words(allowed: Sequence[str] | None = None) -> Callable[[str], list[str]]:
    """Return what reads words separated by commas."""

    def read(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := [word for word in chosen if allowed is not None and word not in allowed]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is unknown; allowed: {', '.join(allowed or ())}")
        return chosen

    return read


def main(arguments: Sequence[str] | None = None, start: Start | None = None) -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=words(), default=["ml-100k"])
    parser.add_argument("--data_path", help="folder above the folders of the data sets; ml-100k comes with recbole")
    parser.add_argument("--heads", type=words(list(HEADS)), default=list(HEADS))
    parser.add_argument("--widths", type=words(), default=["8", "16", "32", "64"])
    parser.add_argument("--seeds", type=words(), default=["2020", "2021", "2022"])
    parser.add_argument("--trials", type=int, default=4, choices=range(1, len(TRIALS) + 1))
    parser.add_argument("--epochs", type=int, help="default: as the model chooses, 20 or fewer")
    parser.add_argument("--processes", type=int, default=1, help="runs at a time")
    parser.add_argument("--table", action="store_true", help="train nothing, write the tables")
    given = parser.parse_args(arguments)
    keys = {"data_path": given.data_path, "epochs": given.epochs}
    cells = [Cell(data, int(d), head) for data, d, head in itertools.product(given.data, given.widths, given.heads)]
    grid = Study(
        given.folder,
        cells,
        [int(seed) for seed in given.seeds],
        given.trials,
        {key: value for key, value in keys.items() if value is not None},
        given.processes,
    )
    if failed := study(grid, start, table_only=given.table):
        raise SystemExit("; ".join(f"{name}: {text}" for name, text in failed.items()))


if __name__ == "__main__":
    main()
