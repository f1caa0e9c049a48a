"""``python -m examples.noisy_prefix`` trains on the task, Euclidean and hyperbolic, and plots learning curves."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from examples.noisy_prefix.data import load_or_generate
from examples.noisy_prefix.model import GEOMETRIES, PrefixClassifier
from examples.noisy_prefix.train import check_settings, plot_curves, train_prefix
from recbole_hyper.commands.recommend import switch
from recbole_hyper.settings import RIEMANNIAN_LEARNERS
from recbole_hyper.yaml_files import read_yaml

HELP = "train the noisy-prefix classifier (PREFIX-Z%) and plot its learning curves"
_SIZES = ("embedding_size", "hidden_size", "projection_size", "n_layers")
_SWITCHES = ("share_encoder", "use_distance", "embedding_type", "decision_type")
MODEL_KEYS = ("n_words", *_SIZES, *_SWITCHES, "curvature", "initializer_range")
DATA_KEYS = ("noise", "n_words", "max_words", "n_train", "n_valid", "n_test")
TRAIN_KEYS = ("learning_rate", "manifold_learning_rate", "stabilize", "train_batch_size", "epochs", "seed")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options, whose names and defaults are in settings.yaml."""
    parser = argparse.ArgumentParser(prog="python -m examples.noisy_prefix", description=HELP)
    for key, value in read_yaml(Path(__file__).with_name("settings.yaml")).items():
        kind: Any = switch if isinstance(value, bool) else (float if value is None else type(value))
        parser.add_argument(f"--{key}", type=kind, default=value, help=f"default: {value}")
    parser.add_argument("--data_path", type=Path, default=Path("dataset"), help="folder for the generated pairs")
    parser.add_argument(
        "--output_dir", type=Path, default=Path("saved"), help="gets a folder per run; existing runs are resumed"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Train every combination of geometry and optimizer; an error is one line and returns 1."""
    try:
        train(parse(argv))
    except (ValueError, OSError, FloatingPointError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def train(arguments: argparse.Namespace) -> None:
    """Train, plot the curves and print the results."""
    geometries, learners = arguments.geometry.split(","), arguments.optimizer.split(",")
    _check(vars(arguments), geometries, learners)
    results, curves = _train_all(arguments, geometries, learners)
    figure = arguments.output_dir / f"prefix-{arguments.noise}-seed{arguments.seed}.png"
    plot_curves(curves, figure, f"PREFIX-{arguments.noise}%")
    shown = ["noise", "geometry", "learner", "epochs", "best_epoch", "valid_accuracy", "test_accuracy", "train_seconds"]
    print(pd.DataFrame(results)[shown].to_string(index=False))
    print(figure)


def _check(values: dict[str, Any], geometries: list[str], learners: list[str]) -> None:
    """Raise ValueError for a value out of range, before the pairs are generated."""
    for values_of, name, known in ((geometries, "geometry", GEOMETRIES), (learners, "optimizer", RIEMANNIAN_LEARNERS)):
        if wrong := [entry for entry in values_of if entry not in known]:
            raise ValueError(f"--{name}={wrong[0]} is unknown; allowed: {', '.join(known)}, separated by commas")
    check_settings(values)
    for name in ("data_seed", "threads"):
        if values[name] < 0:
            raise ValueError(f"{name}={values[name]}: a whole number of at least 0 is needed")
    for geometry in geometries:
        _model(values, geometry)


def _model(values: dict[str, Any], geometry: str) -> PrefixClassifier:
    return PrefixClassifier(geometry=geometry, **{key: values[key] for key in MODEL_KEYS})


def _train_all(
    arguments: argparse.Namespace, geometries: list[str], learners: list[str]
) -> tuple[list[dict[str, Any]], dict[str, pd.DataFrame]]:
    """Return the result of every combination, and its curve by name."""
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


if __name__ == "__main__":
    raise SystemExit(main())
