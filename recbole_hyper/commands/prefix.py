"""``recbole-hyper prefix``: the noisy-prefix task, Euclidean and hyperbolic, with learning curves."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recbole_hyper.commands.recommend import switch
from recbole_hyper.yaml_files import properties_folder, read_yaml

if TYPE_CHECKING:
    import pandas as pd

    from recbole_hyper.prefix.model import PrefixClassifier

HELP = "train the noisy-prefix classifier (PREFIX-Z%%) and draw its learning curves"
_SIZES = ("embedding_size", "hidden_size", "projection_size", "n_layers")
_SWITCHES = ("share_encoder", "use_distance", "embedding_type", "decision_type")
MODEL_KEYS = ("n_words", *_SIZES, *_SWITCHES, "curvature", "initializer_range")
DATA_KEYS = ("noise", "n_words", "max_words", "n_train", "n_valid", "n_test")
TRAIN_KEYS = ("learning_rate", "manifold_learning_rate", "stabilize", "train_batch_size", "epochs", "seed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``prefix``; names and defaults are those of properties/prefix/prefix.yaml."""
    for key, value in read_yaml(properties_folder() / "prefix" / "prefix.yaml").items():
        kind: Any = switch if isinstance(value, bool) else (float if value is None else type(value))
        parser.add_argument(f"--{key}", type=kind, default=value, help=f"default: {value}")
    parser.add_argument("--data_path", type=Path, default=Path("dataset"), help="folder of the generated pairs")
    parser.add_argument(
        "--output_dir", type=Path, default=Path("saved"), help="for a folder per run; one there is continued"
    )


def main(arguments: argparse.Namespace) -> int:
    """Train every combination of geometry and optimizer that is asked for."""
    import pandas as pd

    from recbole_hyper.prefix.train import plot_curves

    geometries, learners = arguments.geometry.split(","), arguments.optimizer.split(",")
    _check(vars(arguments), geometries, learners)
    results, curves = _train_all(arguments, geometries, learners)
    figure = arguments.output_dir / f"prefix-{arguments.noise}-seed{arguments.seed}.png"
    plot_curves(curves, figure, f"PREFIX-{arguments.noise}%")
    shown = ["noise", "geometry", "learner", "epochs", "best_epoch", "valid_accuracy", "test_accuracy", "train_seconds"]
    print(pd.DataFrame(results)[shown].to_string(index=False))
    print(figure)
    return 0


def _check(values: dict[str, Any], geometries: list[str], learners: list[str]) -> None:
    """Raise ValueError for a value out of range, before the pairs are drawn."""
    from recbole_hyper.keys import RIEMANNIAN_LEARNERS
    from recbole_hyper.prefix.model import GEOMETRIES
    from recbole_hyper.prefix.train import check_settings

    for given, name, known in ((geometries, "geometry", GEOMETRIES), (learners, "optimizer", RIEMANNIAN_LEARNERS)):
        if wrong := [entry for entry in given if entry not in known]:
            raise ValueError(f"--{name}={wrong[0]}: allowed are {', '.join(known)}, or several with a comma")
    check_settings(values)
    for name in ("data_seed", "threads"):
        if values[name] < 0:
            raise ValueError(f"{name}={values[name]}: a whole number of at least 0 is needed")
    for geometry in geometries:
        _model(values, geometry)


def _model(values: dict[str, Any], geometry: str) -> PrefixClassifier:
    from recbole_hyper.prefix.model import PrefixClassifier

    return PrefixClassifier(geometry=geometry, **{key: values[key] for key in MODEL_KEYS})


def _train_all(
    arguments: argparse.Namespace, geometries: list[str], learners: list[str]
) -> tuple[list[dict[str, Any]], dict[str, pd.DataFrame]]:
    """Return the result of every combination, and its curve by name."""
    import pandas as pd
    import torch

    from recbole_hyper.prefix.data import load_or_generate
    from recbole_hyper.prefix.train import train_prefix

    values = vars(arguments)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    data = load_or_generate(arguments.data_path, seed=arguments.data_seed, **{key: values[key] for key in DATA_KEYS})
    results, curves = [], {}
    for geometry, learner in itertools.product(geometries, learners):
        torch.manual_seed(arguments.seed)
        folder = arguments.output_dir / f"prefix-{arguments.noise}-{geometry}-{learner}-seed{arguments.seed}"
        print(f"PREFIX-{arguments.noise}%, {geometry}, {learner} -> {folder}", flush=True)
        settings = {"geometry": geometry} | {key: values[key] for key in ("data_seed", *DATA_KEYS, *MODEL_KEYS)}
        result = train_prefix(
            _model(values, geometry),
            data,
            folder,
            learner=learner,
            settings=settings,
            report=lambda line: print(line, flush=True),
            **{key: values[key] for key in TRAIN_KEYS},
        )
        results.append(result)
        curves[f"{geometry}, {learner}"] = pd.read_csv(folder / "curve.csv")
    return results, curves
