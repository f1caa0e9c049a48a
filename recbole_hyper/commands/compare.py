"""``recbole-hyper compare --models=A,B,C --dataset=NAME``: train each on one split, print and save one table."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recbole_hyper.commands import argument, command, dataset, options_of, words
from recbole_hyper.settings import COMMON

if TYPE_CHECKING:
    from recbole_hyper.experiment.comparison import Comparison


def names(text: str) -> list[str]:
    """Return the names of an option, separated by commas or blanks."""
    return re.sub(r"[\[\],]", " ", text).split()


@command(
    "train several models on one split, and print and save one table with significance against the best",
    argument("--models", type=names, required=True, help="names separated by commas; ours or RecBole's"),
    *dataset("keys of all models (keys below a model's name are its own, as is --EASER.reg_weight=64)", required=True),
    argument("--output_dir", help="folder with a folder per model; finished models are not run again"),
    argument("--segments", type=words, default="", help="such as history_length,item_popularity,item.COLUMN"),
    argument("--seeds", help="such as 1,2,3: train every model with each, in MODEL/seed-N; shows means and deviations"),
    argument(
        "--scores",
        action="append",
        metavar="NAME=FILE",
        help="csv or parquet of another library: user_id, item_id, score",
    ),
    argument("--tuned", action="append", metavar="MODEL=DIR", help="the sweep whose winner has the settings of MODEL"),
    argument("--package", type=Path, help="new folder with all that repeats the table"),
    argument("--max_concurrent", type=int, help="most models that train at a time; default: one per core"),
    argument("--ray_address", help="a running Ray cluster, host:port, that shares output_dir; default: this machine"),
    example="compare --models=HSASRecCE,SASRecCE,BPR --dataset=ml-100k",
    keys=COMMON,
)
def compare(arguments: argparse.Namespace) -> int:
    """Train the models that are not finished, then print and save the table; return 1 if a model failed."""
    from recbole_hyper.experiment.compare import compare
    from recbole_hyper.experiment.package import write_package

    folder = Path(arguments.output_dir or Path("saved") / f"compare-{arguments.dataset}")
    files = {option: by_name(getattr(arguments, option), option) for option in ("scores", "tuned")}
    compared = compare(folder=folder, **options_of(compare, arguments) | files)
    paths = save_tables(compared, folder)
    if arguments.segments:
        paths += save_segments(compared, arguments.segments, folder)
    if arguments.package:
        paths.append(write_package(arguments.package, compared, **files))
    print(*paths, sep="\n")
    return 1 if compared.failed else 0


def save_tables(compared: "Comparison", folder: Path) -> list[Path]:
    """Print the table of a comparison, and save it and the pairs; return the paths."""
    from recbole_hyper.report.page import write_page

    table, pairs = compared.tables()
    paths = [*table.save(folder, "compare"), write_page(table, folder / "compare.html", "Comparison")]
    if pairs is not None:
        paths += pairs.save(folder, "compare_pairs")[:1]
    print(f"\n{table.caption}\n\n{table.text()}\n\n{table.note}")
    return paths


def save_segments(compared: "Comparison", names: Sequence[str], folder: Path) -> list[Path]:
    """Print the metric by segment, and save the table; return the paths."""
    from recbole_hyper.evaluation.segments import segments_of_models

    metric, folders = compared.metric, {name: list(runs.values()) for name, runs in compared.folders.items()}
    table = segments_of_models(folders, names, metric, items=compared.items or Path(), part=compared.part)
    print(f"\n{table.text()}\n\n{table.note}")
    return table.save(folder, "compare_segments")


def by_name(given: Sequence[str] | None, option: str) -> dict[str, Path]:
    """Return the paths of ``--option=NAME=PATH`` by name; ConfigError for another form, or a missing path."""
    from recbole_hyper.errors import ConfigError

    paths = {}
    for text in given or ():
        name, _, path = text.partition("=")
        if not (name.strip() and path) or name in paths or Path(name).name != name:
            raise ConfigError(f"--{option}={text}: NAME=PATH is expected, once for each name")
        if not Path(path).exists():
            raise ConfigError(f"--{option}={text}: {path} does not exist")
        paths[name] = Path(path)
    return paths
