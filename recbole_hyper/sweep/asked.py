"""What a sweep is asked for: its arguments, checked, and sweep.yaml, from which a resume goes on."""

import contextlib
import errno
import logging
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.parts import PARTS, part_keys
from recbole_hyper.data.download import with_data
from recbole_hyper.errors import NoSpaceError, near_hint
from recbole_hyper.files import is_no_space, read_written_yaml, write_yaml
from recbole_hyper.options import SCORE, is_number
from recbole_hyper.runs.folder import alone_in
from recbole_hyper.settings import deciding, declared
from recbole_hyper.sweep.executors import SCHEDULERS
from recbole_hyper.sweep.space import Space
from recbole_hyper.sweep.trial import quiet
from recbole_hyper.yaml_files import merged

logger = logging.getLogger("recbole_hyper")

SEARCHES, EXECUTORS = ("grid", "random", "optuna"), ("ray", "local")
ASKED = "sweep.yaml"
# how trials are scored, the same for all of them
COMPARED = deciding(SCORE)
# what a sweep.yaml holds that a resume may not change
ASKED_TYPES = {"model": str, "dataset": str, "fixed": dict, "space": dict, "search": str, "scheduler": str}


def over_constants(
    space: Space, files: Mapping[str, Any], before: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], Space]:
    """Return the keys of every trial, the constants of the space among them, and the space without those.

    A space is closer to the purpose than a file; the command line wins over its constants.
    """
    constants, space = space.split_constants()
    files = {key: value for key, value in files.items() if key not in space.domains}
    beside = {key: value for key, value in files.items() if key not in constants}
    return merged(files, constants, before, beside, given), space


def per_trial(resources: Mapping[str, float]) -> tuple[float, float]:
    """Return cores and share of a GPU of each trial."""
    cpu, gpu = float(resources.get("cpu", 1)), float(resources.get("gpu", 0))
    if not (0 < cpu < math.inf and 0 <= gpu < math.inf):
        raise ConfigError(f"resources={dict(resources)}: cpu above 0 and gpu of at least 0 are expected")
    return cpu, gpu


def most_epochs(base: Config, space: Space) -> int:
    # of a value that is no number the binding of values tells
    epochs = [value for domain in space.domains.get("epochs", ()) for value in domain.values if is_number(value)]
    return int(max([base["epochs"], *epochs]))


def bind_base(
    model: str, dataset: str, fixed: Mapping[str, Any], space: Space, of_files: Mapping[str, str] | None = None
) -> Config:
    """Bind the fixed keys alone, and refuse keys of the space that nothing knows.

    ``of_files`` names the file of each fixed key that comes from one.
    """
    with quiet():
        base = with_data(lambda: Config(model, dataset, config_dict=dict(fixed), keys_of_files=of_files))
    for text in base.remarks:
        logger.warning("%s", text)
    if (base["num_workers"] or 1) > 1:
        raise ConfigError("num_workers: trials of a sweep are single processes; leave it out")
    # a condition may name any key of the package: it is not met where the model has none such
    known = base.known_keys() | (set(declared()) - set(space.domains)) | _keys_of_parts(space)
    # a condition may name the model and the data set, a domain may not
    set_here = {"output_dir", "resume", "epochs_done"} | ({"model", "dataset"} & set(space.domains))
    for key in space.keys:
        if key in fixed and key in space.domains:
            raise ConfigError(f"{key} is in the space and fixed to {fixed[key]!r}; leave one of them out")
        if key in set_here or key not in known:
            # a key that the sweep sets is no misspelling of itself
            hint = "; the sweep sets it" if key in known else near_hint(key, known)
            raise ConfigError(f"the space names {key!r}, which is no key of a trial{hint}")
        if key in COMPARED and key in space.domains:
            raise ConfigError(f"the space varies {key}: scores of its trials could not be compared; give it one value")
    return base


def _keys_of_parts(space: Space) -> set[str]:
    """Return the keys of every part that the space names; of a name that is no part the binding of values tells."""
    found: set[str] = set()
    for key in PARTS.keys() & space.domains.keys():
        for name in (name for domain in space.domains[key] for name in domain.values):
            with contextlib.suppress(ConfigError):
                found |= part_keys(key, str(name))
    return found


def with_fits(fixed: Mapping[str, Any], space: Space, base: Config, folder: Path) -> dict[str, Any]:
    """Let linear models share their decompositions: one of the largest rank serves all ranks."""
    result = dict(fixed)
    if "fit_cache" in base and "fit_cache" not in {**fixed, **space.domains}:
        result["fit_cache"] = str(folder / "data" / "fits")
    if "max_rank" in base and "max_rank" not in {**fixed, **space.domains}:
        ranks = [value for domain in space.domains.get("rank", ()) for value in domain.values]
        finite = all(domain.is_finite for domain in space.domains.get("rank", ()))
        if ranks and finite and all(isinstance(rank, int) for rank in ranks):
            result["max_rank"] = max(ranks)
    return result


def read_asked(folder: Path) -> dict[str, Any]:
    """Return the content of sweep.yaml; ConfigError where it is missing, damaged, or another program's."""
    file = folder / ASKED
    if not file.is_file():
        raise ConfigError(f"{folder} holds no sweep to resume: {ASKED} is missing")
    content = read_written_yaml(file, "damaged")
    for key, kind in ASKED_TYPES.items():
        value = content.get(key, {} if key == "fixed" else None)
        if not isinstance(value, kind):
            raise ConfigError(f"{file} is damaged: {key} must be a {kind.__name__}, it is {value!r}")
        if kind is dict and not all(isinstance(name, str) for name in value):
            raise ConfigError(f"{file} is damaged: {key} holds a key that is no text")
    return content


@contextlib.contextmanager
def opened(folder: Path, asked: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[None]:
    """Hold the folder of a sweep, in which is written what is asked for; a full disk and Ctrl-C say how to go on."""
    try:
        with alone_in(folder, ".lock", f"another sweep is running in {folder}"):
            # a sweep that ended before its first trial, such as for want of a cluster, leaves the folder free
            if (folder / ASKED).is_file() and (folder / "trials").is_dir() and not before:
                raise ConfigError(
                    f"{folder} already holds a sweep; take another output_dir, or continue by --resume=True"
                )
            if before:
                _require_same(asked, before)
            # the order of the space is the order of the trials
            write_yaml(folder / ASKED, asked, sort_keys=False)
            yield
    except KeyboardInterrupt:
        print(f"interrupted; {how_to_go_on(folder)}", flush=True)
        raise
    except Exception as error:
        if not is_no_space(error):
            raise
        raise NoSpaceError(errno.ENOSPC, f"the disk is full; make room, then {how_to_go_on(folder)}") from error


def how_to_go_on(folder: Path) -> str:
    """Return what continues the sweep in ``folder``, where it has got as far as to be one."""
    return f"continue with --resume=True --output_dir={folder}" if (folder / ASKED).is_file() else "start again"


def _require_same(asked: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Raise ConfigError where a resumed sweep is asked for anything else than before."""
    for key in ASKED_TYPES:
        old, new = before.get(key), asked[key]
        if old == new:
            continue
        what = f"{key}: it was {old!r}, now {new!r}"
        if isinstance(old, dict):
            parts = [name for name in {**old, **new} if old.get(name) != new.get(name)]
            what = f"{key}: " + "; ".join(f"{n} was {old.get(n)!r}, now {new.get(n)!r}" for n in parts[:3])
        raise ConfigError(f"this sweep cannot be resumed with another {what}; take another output_dir")


def check_options(
    search: str, scheduler: str, executor: str, counts: Mapping[str, int | None], time_budget: float | None
) -> None:
    choices = ("search", search, SEARCHES), ("scheduler", scheduler, SCHEDULERS), ("executor", executor, EXECUTORS)
    for option, value, allowed in choices:
        if value not in allowed:
            raise ConfigError(f"{option}={value!r} is unknown; allowed: {', '.join(allowed)}")
    if scheduler == "asha" and executor == "local":
        raise ConfigError("--scheduler=asha needs trials side by side: leave out --executor=local")
    for name, count in counts.items():
        if count is not None and count < 1:
            raise ConfigError(f"{name}={count}: at least 1 is needed")
    if time_budget is not None and not 0 < time_budget < math.inf:
        raise ConfigError(f"time_budget={time_budget}: seconds above 0 are expected")
