"""``recbole-hyper sweep --model=NAME --dataset=NAME [--key=value ...]``: tune on validation, test once."""

import argparse
import re

from recbole_hyper.commands import add_dataset, options_of

HELP = "try the settings of a space, select on validation, test the winner once"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options; every other ``--key=value`` is a configuration key of all trials."""
    parser.add_argument("-m", "--model", help="a model of this package, or a general or sequential model of RecBole")
    space = "a name in properties/sweep, a YAML or a RecBole hyper file; default: tune, which fits every model of this"
    parser.add_argument("--space", help=f"{space} package (50 random settings in 1h, with ASHA)")
    parser.add_argument("--budget", default="full", help="full (default), or small: the small space of the file")
    parser.add_argument("--search", help="grid (default), random or optuna")
    parser.add_argument("--num_samples", type=int, help="draws of a random (10) or optuna (20) search; grids: repeats")
    parser.add_argument("--scheduler", help="none (default), or asha to stop trials that fall behind")
    parser.add_argument("--max_concurrent", type=int, help="most trials at a time; default: as many as fit")
    parser.add_argument("--time_budget", type=duration, help="of the search: 90s, 30m, 1h30m; the rest can be resumed")
    parser.add_argument("--ray_address", help="a running Ray cluster, host:port; default: one is started here")
    parser.add_argument("--resources", default="cpu=1", help="of each trial, such as cpu=2,gpu=0.5; default cpu=1")
    parser.add_argument("--n_seeds", type=int, help="tested runs of the winner, for mean and spread; default 1")
    add_dataset(parser, "keys of all trials")


def main(arguments: argparse.Namespace) -> None:
    """Sweep; configuration keys, ``output_dir`` and ``resume`` are in ``arguments.keys``."""
    from recbole_hyper.sweep import sweep

    options = options_of(sweep, arguments) | {"resources": parse_resources(arguments.resources)}
    sweep(**options, config_dict=arguments.keys)


def parse_resources(text: str) -> dict[str, float]:
    """Read ``cpu=2,gpu=0.5``; raises ConfigError for anything else."""
    from recbole_hyper.config import ConfigError

    try:
        resources = {name.strip(): float(value) for name, value in (entry.split("=") for entry in text.split(","))}
    except ValueError:
        resources = {"": 0.0}
    if not set(resources) <= {"cpu", "gpu"}:
        raise ConfigError(f"resources={text!r}: cpu=NUMBER and gpu=NUMBER are expected, separated by a comma")
    return resources


def duration(text: str) -> float:
    """Return the seconds of ``text``: 90, 90s, 30m, 1.5h or 1h30m; argparse reports anything else."""
    match = re.fullmatch(r"(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s?)?", text.strip())
    try:
        if match is None or not text.strip():
            raise ValueError(text)
        return sum(size * float(part or 0) for size, part in zip((3600, 60, 1), match.groups(), strict=True))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: a time such as 90s, 30m or 1h30m is expected") from None
