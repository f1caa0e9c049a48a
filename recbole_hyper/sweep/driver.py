"""The driver of a sweep: what was asked, which trials are left, which won, and what the winner does on test."""

import contextlib
import errno
import math
import shutil
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd
import yaml

from recbole_hyper.config import Config, ConfigError, all_known_keys, config_file, parse_keys, read_yaml
from recbole_hyper.errors import LockedError, NoSpaceError, did_you_mean
from recbole_hyper.evaluation.results import commit, table, versions
from recbole_hyper.files import is_no_space, locked, plain, read_json, write_json, write_text
from recbole_hyper.keys import KEYS, SCORE, deciding, is_number
from recbole_hyper.sweep.executors import SCHEDULERS, Executor, Goal, Local, RayTune
from recbole_hyper.sweep.probes import bind_values
from recbole_hyper.sweep.proposals import Listed, Optuna, Proposals, Trial, list_trials
from recbole_hyper.sweep.space import Space, parse_space, read_space
from recbole_hyper.sweep.trial import FAILED, FINISHED, STOPPED, UNFINISHED, Plan, Record, clear, read_record
from recbole_hyper.training.shared import shared_data
from recbole_hyper.yaml_files import merged

SEARCHES, EXECUTORS = ("grid", "random", "optuna"), ("ray", "local")
ASKED, OUTCOME = "sweep.yaml", "sweep.json"
# how trials are scored, the same for all of them
COMPARED = deciding(SCORE)
# what a sweep.yaml holds that a resume may not change
ASKED_TYPES = {"model": str, "dataset": str, "fixed": dict, "space": dict, "search": str, "scheduler": str}


def sweep(
    model: str | None = None,
    dataset: str | None = None,
    *,
    space: str | Path | Mapping[str, Any] | None = None,
    config_files: Sequence[str | Path] = (),
    config_dict: Mapping[str, Any] | None = None,
    budget: str = "full",
    search: str = "grid",
    num_samples: int | None = None,
    scheduler: str = "none",
    executor: str = "ray",
    max_concurrent: int | None = None,
    resources: Mapping[str, float] | None = None,
    time_budget: float | None = None,
    ray_address: str | None = None,
    n_seeds: int = 1,
) -> dict[str, Any]:
    """Try the settings of a space, select on validation, test the winner once per seed.

    Args:
        model: name of a model.
        dataset: name of a dataset folder below ``data_path``.
        space: file, name or content of the search space (:mod:`recbole_hyper.sweep.space`).
        config_files: YAML files with keys of every trial, or names of protocols.
        config_dict: keys of every trial; ``output_dir`` is the folder of the sweep, ``resume`` continues the one there.
        budget: "full", or "small" for the small space that ``space`` holds.
        search: "grid", "random" or "optuna".
        num_samples: see :func:`recbole_hyper.sweep.proposals.list_trials`; trials in all for optuna (default 20).
        scheduler: "none", or "asha" to stop trials that fall behind (Ray only).
        executor: "ray", or "local" for one trial after another in this process.
        max_concurrent: most trials at a time.
        resources: {"cpu": cores, "gpu": share} of each trial; the default is one core.
        time_budget: seconds for the search; what is left can be resumed.
        ray_address: a running Ray cluster; None starts one here.
        n_seeds: final runs of the winner, with its seed and those that follow.

    Returns:
        The content of sweep.json: best (settings, validation), test, test_mean and test_std over seeds, counts of
        trials by status, failures and unfinished trials with their reasons, seconds.

    Raises:
        ConfigError: anything that cannot run, before the first trial.
        NoSpaceError: the disk is full; the sweep can be resumed.
    """
    start = perf_counter()
    files, given = _fixed(config_files, {}), _fixed((), config_dict or {})
    own = {**files, **given}
    resume, output_dir = bool(own.get("resume", False)), own.get("output_dir")
    files, given = ({k: v for k, v in keys.items() if k not in ("resume", "output_dir")} for keys in (files, given))
    _check_options(search, scheduler, executor, {"n_seeds": n_seeds, "max_concurrent": max_concurrent}, time_budget)
    before = _before(resume, output_dir)
    model, dataset = model or before.get("model"), dataset or before.get("dataset")
    if not model or not dataset:
        raise ConfigError("a sweep needs --model and --dataset")
    found, content = _space(space, before, model, budget)
    fixed, found = _over_constants(found, files, before.get("fixed", {}), given)
    cpu, gpu = _resources(resources or {})
    base = _bind_base(model, dataset, fixed, found)
    fixed["data_path"] = str(Path(base.plain()["data_path"]).absolute())
    fixed.setdefault("use_gpu", gpu > 0)
    folder = Path(output_dir or Path("saved") / f"sweep-{model}-{dataset}-{datetime.now():%Y%m%d-%H%M%S}").absolute()
    asked: dict[str, Any] = {"model": model, "dataset": dataset, "fixed": fixed, "space": content, "search": search}
    asked |= {"scheduler": scheduler, "num_samples": num_samples, "n_seeds": n_seeds}
    with _opened(folder, plain(asked, nan_to_null=False), before, resume):
        plan = Plan(model, dataset, _with_fits(fixed, found, base, folder), str(folder), max(1, int(cpu)))
        chosen: Executor = Local() if executor == "local" else RayTune(cpu, gpu, max_concurrent, ray_address)
        goal = _goal(base, found, scheduler, time_budget)
        return _Sweep(plan, found, base, goal, chosen, asked, start).run()


class _Sweep:
    """A sweep whose arguments are checked and whose folder is open."""

    def __init__(
        self,
        plan: Plan,
        space: Space,
        base: Config,
        goal: Goal,
        executor: Executor,
        asked: Mapping[str, Any],
        start: float,
    ) -> None:
        self.plan, self.space, self.base, self.goal, self.executor = plan, space, base, goal, executor
        self.search, self.num_samples, self.n_seeds = asked["search"], asked["num_samples"], asked["n_seeds"]
        self.start, self.draws = start, (int(base["seed"]), base.final_config_dict)
        self.folder = Path(plan.folder)
        self.records = read_records(plan.trials)
        self.earlier = sum(record.status != UNFINISHED for record in self.records.values())

    def run(self) -> dict[str, Any]:
        proposals, self.total = self._proposals()
        _, split = shared_data(self._first_config(), self.plan.data)
        if not len(split.valid):
            raise ConfigError("this split has no validation case, so there is nothing to select on; change eval_args")
        print(f"{self.folder}: {self.total} trials" + (f", {self.earlier} of them done" if self.earlier else ""))
        self.executor.search(self.plan, proposals, self.goal, self._on_end)
        self._write_trials()
        best = select(self.records.values(), self.goal.bigger)
        outcome = self._outcome(best)
        if best is None:
            write_json(self.folder / OUTCOME, outcome)
            reasons = Counter([*outcome["failures"].values(), *outcome["unfinished"].values()]).most_common(3)
            raise ConfigError(
                f"none of {len(self.records)} trials finished; see {self.folder / 'trials.csv'}. "
                + "; ".join(f"{reason} ({count} times)" for reason, count in reasons)
            )
        outcome.update(self._test(best))
        outcome["seconds"]["total"] = perf_counter() - self.start
        write_json(self.folder / OUTCOME, outcome)
        self._print(best, outcome)
        return plain(outcome)

    def _outcome(self, best: Record | None) -> dict[str, Any]:
        """Return the content of sweep.json behind the search, without the tested runs."""
        seconds = {"search": perf_counter() - self.start, "trials": sum(r.seconds for r in self.records.values())}
        return {
            "model": self.plan.model,
            "dataset": self.plan.dataset,
            "valid_metric": self.goal.metric,
            "valid_metric_bigger": self.goal.bigger,
            "trials": dict(Counter(record.status for record in self.records.values())),
            "planned": self.total,
            "failures": {r.name: r.reason for r in self.records.values() if r.reason and r.status == FAILED},
            "unfinished": {r.name: r.reason for r in self.records.values() if r.status == UNFINISHED},
            "best": None if best is None else asdict(best),
            "seconds": seconds,
            "versions": versions(),
            "commit": commit(),
        }

    def _first_config(self) -> Config:
        """Return the configuration of the first setting; any that cannot run ends the sweep before it begins."""
        trials = list_trials(self.space, self.search, self.num_samples, *self.draws)
        if not trials:
            raise ConfigError("the space holds no setting at all: its conditions exclude each other")
        try:
            warning = bind_values(self.plan, self.space, [trial.settings for trial in trials], self.draws[1])
        except ConfigError as error:
            if not self.records:
                raise
            warning = str(error)  # the space of a sweep that has begun cannot be changed: those trials will fail
        if warning:
            print(f"warning: {warning}")
        return self.plan.config(trials[0].settings)

    def _proposals(self) -> tuple[Proposals, int]:
        done = {record.name: record for record in self.records.values() if record.status != UNFINISHED}
        if self.search == "optuna":
            count = self.num_samples or 20
            past = [(record.trial, record.score) for record in done.values()]
            pending = [record.trial for record in self.records.values() if record.status == UNFINISHED]
            optuna = Optuna(self.space, count, *self.draws, bigger=self.goal.bigger, past=past, pending=pending)
            return optuna, count
        trials = list_trials(self.space, self.search, self.num_samples, *self.draws)
        self._check_known(trials)
        return Listed([trial for trial in trials if trial.name not in done]), len(trials)

    def _check_known(self, trials: list[Trial]) -> None:
        names = {trial.name for trial in trials}
        foreign = sorted(record.name for record in self.records.values() if record.name not in names)
        if foreign:
            raise ConfigError(
                f"{self.folder} holds {len(foreign)} trials that this search does not have (first: {foreign[0]}); "
                "resume with the same space, seed and at least as many samples, or choose another output_dir"
            )

    def _on_end(self, record: Record) -> None:
        self.records[record.name] = record
        ended = sum(entry.status != UNFINISHED for entry in self.records.values())
        score = "-" if record.score is None else f"{record.score:.4f}"
        line = f"[{ended}/{self.total}] {record.name} {record.status} {self.goal.metric} {score} {record.seconds:.1f} s"
        print(line + (f"  {record.reason}" if record.reason else ""), flush=True)
        self._write_trials()

    def _write_trials(self) -> None:
        first = ("number", "name", "status", "score")
        last = ("best_epoch", "epochs", "seconds", "peak_memory_bytes", "reason")
        rows = [
            {
                **{key: getattr(record, key) for key in first},
                **{key: record.settings.get(key) for key in self.space.domains},
                **{f"valid_{name}": value for name, value in record.valid.items()},
                **{key: getattr(record, key) for key in last},
            }
            for record in sorted(self.records.values(), key=lambda record: record.number)
        ]
        write_text(self.folder / "trials.csv", pd.DataFrame(rows).to_csv(index=False))

    def _test(self, best: Record) -> dict[str, Any]:
        """Test the winner, once for each seed; a final run that is there already is not repeated."""
        first = int(self.plan.config(best.settings)["seed"])
        seeds = [first + offset for offset in range(self.n_seeds)]
        missing = [seed for seed in seeds if not (final_folder(self.plan, best, seed) / "result.json").is_file()]
        calls = [(self.plan, best, seed, seed == first) for seed in missing]
        # a single one runs here: starting workers again would take longer
        (Local() if len(calls) < 2 else self.executor).map(run_final, calls)
        results = {seed: read_final(final_folder(self.plan, best, seed)) for seed in seeds}
        names = list(results[first]["test"])
        values = {name: [results[seed]["test"][name] for seed in seeds] for name in names}
        return {
            "test": results[first]["test"],
            "seeds": seeds,
            "test_mean": {name: statistics.fmean(values[name]) for name in names},
            "test_std": {name: statistics.stdev(values[name]) if len(seeds) > 1 else None for name in names},
            "best_runs": [str(final_folder(self.plan, best, seed).relative_to(self.folder)) for seed in seeds],
        }

    def _print(self, best: Record, outcome: Mapping[str, Any]) -> None:
        counts = ", ".join(f"{count} {status}" for status, count in outcome["trials"].items())
        print(f"\n{self.plan.model} on {self.plan.dataset}: {counts}; selected by validation {self.goal.metric}")
        if outcome["unfinished"]:
            print(
                f"warning: {len(outcome['unfinished'])} trials are unfinished, so that another setting may still win; "
                f"continue with --resume=True --output_dir={self.folder}"
            )
        print(f"best trial {best.name}: {', '.join(f'{key}={value}' for key, value in best.settings.items())}")
        rows = []
        for name in outcome["test"] or best.valid:  # a split may have no test part
            row = {"metric": name, "valid": best.valid.get(name), "test": outcome["test"].get(name)}
            if len(outcome["seeds"]) > 1 and outcome["test"]:
                row |= {"test mean": outcome["test_mean"][name], "std": outcome["test_std"][name]}
            rows.append(row)
        print(table(rows))
        print(self.folder / OUTCOME)


def select(records: Any, bigger: bool) -> Record | None:
    """Return the record with the best validation score, the first of equal ones; None if no trial may win.

    A trial that the scheduler stopped can win only where no trial finished, and an unfinished one, whose process never
    died, only where none was stopped either.
    """
    for status in (FINISHED, STOPPED, UNFINISHED):
        scored = [record for record in records if record.status == status and record.score is not None]
        scored = [record for record in scored if status != UNFINISHED or not record.deaths]
        if scored:
            return min(scored, key=lambda record: (-record.score if bigger else record.score, record.number))
    return None


def read_records(folder: Path) -> dict[str, Record]:
    """Return the records below ``folder`` by trial name, in the order of their numbers."""
    found = [read_record(path.parent) for path in sorted(folder.glob("*/trial.json"))]
    records = [record for record in found if record is not None]
    return {record.name: record for record in sorted(records, key=lambda record: record.number)}


def final_folder(plan: Plan, best: Record, seed: int) -> Path:
    """Return the folder of the winner's tested run with ``seed``."""
    return Path(plan.folder) / "best" / f"{best.name}-seed-{seed}"


def read_final(folder: Path) -> dict[str, Any]:
    """Read the result of a tested run; ConfigError for a damaged one."""
    result = read_json(folder / "result.json")
    tested = result.get("test")
    if not isinstance(tested, dict) or not all(is_number(value) for value in tested.values()):
        raise ConfigError(f"{folder / 'result.json'} is damaged: 'test' holds no numbers; remove {folder} and resume")
    return result


def run_final(plan: Plan, best: Record, seed: int, same_seed: bool) -> None:
    """Run the winner with its test part, in :func:`final_folder`.

    With the trial's own seed its weights are tested (after the refit, where the protocol asks for one) without a new
    training; with other seeds, and for models that keep their state outside the weights, it is trained again.
    """
    from recbole_hyper.models.base import HyperRecommender
    from recbole_hyper.runs.run import run
    from recbole_hyper.sweep.trial import apart

    folder, source = final_folder(plan, best, seed), plan.trials / best.name
    folder.mkdir(parents=True, exist_ok=True)
    clear(folder)
    config = plan.config(best.settings, seed=seed)
    reuse = same_seed and best.status == FINISHED and issubclass(config.model_class, HyperRecommender)
    if reuse:
        for name in ("config.yaml", "checkpoint.pt", "model.safetensors", "train.csv"):
            shutil.copy2(source / name, folder / name)
    settings = {**plan.fixed, **best.settings, "seed": seed, "output_dir": str(folder), "resume": reuse}
    # a trial keeps no data
    settings |= {"n_threads": plan.threads, "show_progress": False, "save_data": config["save_data"]}
    with apart(folder, plan.threads):
        run(plan.model, plan.dataset, config_dict=settings)


# --- arguments -------------------------------------------------------------------------------------------------------
def _fixed(config_files: Sequence[str | Path], config_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Merge files and keys; ``eval_args`` key by key, as a configuration does."""
    return merged(*(read_yaml(config_file(path)) for path in config_files), parse_keys(config_dict))


def _space(
    space: str | Path | Mapping[str, Any] | None, before: Mapping[str, Any], model: str, budget: str
) -> tuple[Space, dict[str, Any]]:
    """Return the space and its content, from the interrupted sweep where none is given."""
    if space is None:
        if not before:
            raise ConfigError("a sweep needs --space=NAME or FILE; properties/sweep holds the grids of the papers")
        return parse_space(before["space"], ASKED), dict(before["space"])
    if isinstance(space, Mapping):
        found = parse_space(space, model=model, budget=budget)
    else:
        found = read_space(space, model, budget)
    return found, _content(found)


def _content(space: Space) -> dict[str, Any]:
    """Return the mapping that a space was read from, in its longest form."""

    def entry(domain: Any) -> dict[str, Any]:
        values = domain.values[0] if domain.kind == "value" else list(domain.values)
        return {domain.kind: values, **({"when": {k: list(v) for k, v in domain.when.items()}} if domain.when else {})}

    return {key: [entry(domain) for domain in alternatives] for key, alternatives in space.domains.items()}


def _over_constants(
    space: Space, files: Mapping[str, Any], before: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], Space]:
    """Return the keys of every trial, the constants of the space among them, and the space without those.

    A space is closer to the purpose than a file; the command line wins over its constants.
    """
    constants, space = space.split_constants()
    files = {key: value for key, value in files.items() if key not in space.domains}
    beside = {key: value for key, value in files.items() if key not in constants}
    return merged(files, constants, before, beside, given), space


def _resources(resources: Mapping[str, float]) -> tuple[float, float]:
    """Return cores and share of a GPU of each trial."""
    cpu, gpu = float(resources.get("cpu", 1)), float(resources.get("gpu", 0))
    if not (0 < cpu < math.inf and 0 <= gpu < math.inf):
        raise ConfigError(f"resources={dict(resources)}: cpu above 0 and gpu of at least 0 are expected")
    return cpu, gpu


def _goal(base: Config, space: Space, scheduler: str, time_budget: float | None) -> Goal:
    # of a value that is no number the binding of values tells
    epochs = [value for domain in space.domains.get("epochs", ()) for value in domain.values if is_number(value)]
    bigger = bool(base["valid_metric_bigger"])
    return Goal(base["valid_metric"].lower(), bigger, scheduler, int(max([base["epochs"], *epochs])), time_budget)


def _bind_base(model: str, dataset: str, fixed: Mapping[str, Any], space: Space) -> Config:
    """Bind the fixed keys alone, and refuse keys of the space that nothing knows."""
    base = Config(model, dataset, config_dict=dict(fixed))
    if (base["num_workers"] or 1) > 1:
        raise ConfigError("num_workers: trials of a sweep are single processes; leave it out")
    # a condition may name any key of the package: it is not met where the model has none such
    known = all_known_keys() | set(base.internal_config_dict) | (set(KEYS) - set(space.domains))
    # a condition may name the model and the data set, a domain may not
    set_here = {"output_dir", "resume", "epochs_done"} | ({"model", "dataset"} & set(space.domains))
    for key in space.keys:
        if key in fixed and key in space.domains:
            raise ConfigError(f"{key} is in the space and fixed to {fixed[key]!r}; leave one of them out")
        if key in set_here or key not in known:
            # a key that the sweep sets is no misspelling of itself
            hint = "; the sweep sets it" if key in known else did_you_mean(key, known)
            raise ConfigError(f"the space names {key!r}, which is no key of a trial{hint}")
        if key in COMPARED and key in space.domains:
            raise ConfigError(f"the space varies {key}: scores of its trials could not be compared; give it one value")
    return base


def _with_fits(fixed: Mapping[str, Any], space: Space, base: Config, folder: Path) -> dict[str, Any]:
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


def _before(resume: bool, output_dir: Any) -> dict[str, Any]:
    """Return what an interrupted sweep was asked for; nothing for a new one."""
    if not resume:
        return {}
    if not output_dir:
        raise ConfigError("--resume=True needs --output_dir=DIR, the folder of the sweep to continue")
    if not (Path(output_dir) / ASKED).is_file():
        raise ConfigError(f"{output_dir} holds no sweep to resume: {ASKED} is missing")
    before = read_asked(Path(output_dir))
    return {**before, "space": _content(parse_space(before["space"], ASKED, before["model"]))}


def read_asked(folder: Path) -> dict[str, Any]:
    """Return the content of sweep.yaml; ConfigError where it is damaged, or another program's."""
    file = folder / ASKED
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is damaged: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{file} is damaged: a mapping is expected, it holds a {type(content).__name__}")
    for key, kind in ASKED_TYPES.items():
        value = content.get(key, {} if key == "fixed" else None)
        if not isinstance(value, kind):
            raise ConfigError(f"{file} is damaged: {key} must be a {kind.__name__}, it is {value!r}")
        if kind is dict and not all(isinstance(name, str) for name in value):
            raise ConfigError(f"{file} is damaged: {key} holds a key that is no text")
    return content


@contextlib.contextmanager
def _opened(folder: Path, asked: Mapping[str, Any], before: Mapping[str, Any], resume: bool) -> Iterator[None]:
    """Hold the folder of a sweep, in which is written what is asked for; a full disk says how to go on."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".lock").touch()
    except OSError as error:
        raise ConfigError(f"output_dir={str(folder)!r} cannot be written: {error}") from error
    try:
        with locked(folder / ".lock", wait=False):
            _write_asked(folder, asked, before, resume)
            yield
    except LockedError as error:
        raise ConfigError(f"another sweep is running in {folder}") from error
    except Exception as error:
        if not is_no_space(error):
            raise
        again = f"continue with --resume=True --output_dir={folder}" if (folder / ASKED).is_file() else "start again"
        raise NoSpaceError(errno.ENOSPC, f"the disk is full; make room, then {again}") from error


def _write_asked(folder: Path, asked: Mapping[str, Any], before: Mapping[str, Any], resume: bool) -> None:
    """Write down what is asked for, where it may be; the lock of the folder is held."""
    # a sweep that ended before its first trial, such as for want of a cluster, leaves the folder free
    if (folder / ASKED).is_file() and (folder / "trials").is_dir() and not resume:
        raise ConfigError(f"{folder} already holds a sweep; take another output_dir, or continue by --resume=True")
    changed = [key for key in ASKED_TYPES if before and before.get(key) != asked[key]]
    if changed:
        key = changed[0]
        old, new = before.get(key), asked[key]
        if isinstance(old, dict) and isinstance(new, dict):
            parts = [name for name in {**old, **new} if old.get(name) != new.get(name)]
            what = f"{key}: " + "; ".join(f"{n} was {old.get(n)!r}, now {new.get(n)!r}" for n in parts[:3])
        else:
            what = f"{key}: it was {old!r}, now {new!r}"
        raise ConfigError(f"this sweep cannot be resumed with another {what}; take another output_dir")
    # the order of the space is the order of the trials
    write_text(folder / ASKED, yaml.safe_dump(dict(asked), sort_keys=False, allow_unicode=True))


def _check_options(
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
