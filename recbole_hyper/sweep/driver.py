"""The driver of a sweep: what was asked, which trials are left, which won, and what the winner does on test."""

import shutil
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd

from recbole_hyper.bridge import user_files
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.binding import parse_keys
from recbole_hyper.evaluation.compare import deviation
from recbole_hyper.evaluation.results import commit, versions
from recbole_hyper.evaluation.tables import table
from recbole_hyper.files import plain, read_json, write_json, write_text
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.options import is_number
from recbole_hyper.runs.run import run
from recbole_hyper.sweep.asked import (
    ASKED,
    bind_base,
    check_options,
    how_to_go_on,
    most_epochs,
    opened,
    over_constants,
    per_trial,
    read_asked,
    with_fits,
)
from recbole_hyper.sweep.executors import OUT_OF_TIME, Executor, Local, RayTune
from recbole_hyper.sweep.probes import bind_values
from recbole_hyper.sweep.proposals import Listed, Optuna, Proposals, Trial, list_trials
from recbole_hyper.sweep.space import Space, parse_space, read_space
from recbole_hyper.sweep.trial import (
    FAILED,
    FINISHED,
    STOPPED,
    UNFINISHED,
    Plan,
    Record,
    apart,
    clear,
    continued,
    read_record,
)
from recbole_hyper.training.shared import shared_data
from recbole_hyper.yaml_files import config_file

OUTCOME = "sweep.json"
# what a run of the winner takes from its trial
CONTINUED = ("config.yaml", "checkpoint.pt", "model.safetensors", "train.csv")


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
    check_options(search, scheduler, executor, {"n_seeds": n_seeds, "max_concurrent": max_concurrent}, time_budget)
    files, of_files = user_files.read_all([config_file(path) for path in config_files])
    given = parse_keys(config_dict or {})
    place: dict[str, Any] = {name: {**files, **given}.get(name) for name in ("resume", "output_dir")}
    files, given = ({key: value for key, value in keys.items() if key not in place} for keys in (files, given))
    if place["resume"] and not place["output_dir"]:
        raise ConfigError("--resume=True needs --output_dir=DIR, the folder of the sweep to continue")
    before = read_asked(Path(place["output_dir"])) if place["resume"] else {}
    model, dataset = model or before.get("model"), dataset or before.get("dataset")
    if not model or not dataset:
        raise ConfigError("a sweep needs --model and --dataset")
    if space is None and not before:
        raise ConfigError("a sweep needs --space=NAME or FILE; properties/sweep holds the grids of the papers")
    whole = parse_space(before["space"], ASKED) if space is None else read_space(space, model, budget)
    fixed, found = over_constants(whole, files, before.get("fixed", {}), given)
    cpu, gpu = per_trial(resources or {})
    base = bind_base(model, dataset, fixed, found, {key: file for key, file in of_files.items() if key not in given})
    fixed = {key: value for key, value in fixed.items() if key not in base.foreign_keys}
    if fixed.get("plugins"):
        fixed["plugins"] = base["plugins"]  # a trial of Ray has another working folder
    fixed["data_path"] = str(Path(base.plain()["data_path"]).absolute())
    fixed.setdefault("use_gpu", gpu > 0)
    name = f"sweep-{model}-{dataset}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = Path(place["output_dir"] or Path("saved") / name).absolute()
    plan = Plan(
        model,
        dataset,
        with_fits(fixed, found, base, folder),
        str(folder),
        max(1, int(cpu)),
        metric=base["valid_metric"].lower(),
        bigger=bool(base["valid_metric_bigger"]),
        scheduler=scheduler,
        epochs=most_epochs(base, found),
        time_budget=time_budget,
    )
    asked: dict[str, Any] = {"model": model, "dataset": dataset, "fixed": fixed, "space": whole.content}
    asked |= {"search": search, "scheduler": scheduler, "num_samples": num_samples, "n_seeds": n_seeds}
    chosen: Executor = Local() if executor == "local" else RayTune(cpu, gpu, max_concurrent, ray_address)
    with opened(folder, plain(asked, nan_to_null=False), before):
        return _Sweep(plan, found, base, chosen, asked, start).run()


class _Sweep:
    """A sweep whose arguments are checked and whose folder is open."""

    def __init__(
        self, plan: Plan, space: Space, base: Config, executor: Executor, asked: Mapping[str, Any], start: float
    ) -> None:
        self.plan, self.space, self.executor, self.start = plan, space, executor, start
        self.search, self.num_samples, self.n_seeds = asked["search"], asked["num_samples"], asked["n_seeds"]
        self.draws = int(base["seed"]), base.final_config_dict
        self.folder = Path(plan.folder)
        self.records = read_records(plan.trials)

    def run(self) -> dict[str, Any]:
        trials = list_trials(self.space, self.search, self.num_samples, *self.draws)
        proposals, self.total = self._proposals(trials)
        self._bind(trials)
        _, split = shared_data(self.plan.config(trials[0].settings), self.plan.data)
        if not len(split.valid):
            raise ConfigError("this split has no validation case, so there is nothing to select on; change eval_args")
        self.earlier, self.search_start = self._ended(), perf_counter()
        print(f"{self.folder}: {self.total} trials" + (f", {self.earlier} of them done" if self.earlier else ""))
        self.executor.search(self.plan, proposals, self._on_end)
        self._write_trials()
        best = select(self.records.values(), self.plan.bigger)
        outcome = self._outcome(best)
        if best is None:
            write_json(self.folder / OUTCOME, outcome)
            reasons = Counter([*outcome["failures"].values(), *outcome["unfinished"].values()]).most_common(3)
            raise ConfigError(
                f"none of {self.total} trials finished; see {self.folder / 'trials.csv'}: "
                + ("; ".join(f"{reason} ({count} times)" for reason, count in reasons) or OUT_OF_TIME)
            )
        outcome.update(self._test(best))
        outcome["seconds"]["total"] = perf_counter() - self.start
        write_json(self.folder / OUTCOME, outcome)
        self._print(best, outcome)
        return plain(outcome)

    def _ended(self) -> int:
        return sum(record.status != UNFINISHED for record in self.records.values())

    def _outcome(self, best: Record | None) -> dict[str, Any]:
        """Return the content of sweep.json behind the search, without the tested runs."""
        seconds = {"search": perf_counter() - self.start, "trials": sum(r.seconds for r in self.records.values())}
        return {
            "model": self.plan.model,
            "dataset": self.plan.dataset,
            "valid_metric": self.plan.metric,
            "valid_metric_bigger": self.plan.bigger,
            "trials": dict(Counter(record.status for record in self.records.values())),
            "planned": self.total,
            "failures": {r.name: r.reason for r in self.records.values() if r.reason and r.status == FAILED},
            "unfinished": {r.name: r.reason for r in self.records.values() if r.status == UNFINISHED},
            "best": None if best is None else asdict(best),
            "seconds": seconds,
            "versions": versions(),
            "commit": commit(),
        }

    def _bind(self, trials: list[Trial]) -> None:
        """Bind the values of the space; any that cannot run ends the sweep before it begins."""
        if not trials:
            raise ConfigError("the space holds no setting at all: its conditions exclude each other")
        if self.space.domains and not any(trial.settings for trial in trials):
            keys = ", ".join(self.space.domains)
            raise ConfigError(
                f"the space varies nothing of {self.plan.model}: no condition of {keys} holds; give a space of keys "
                "that it reads, which 'recbole-hyper keys MODEL' lists"
            )
        try:
            warnings = bind_values(self.plan, self.space, [trial.settings for trial in trials], self.draws[1])
        except ConfigError as error:
            if not self.records:
                raise
            warnings = [str(error)]  # the space of a sweep that has begun cannot be changed: those trials will fail
        for text in warnings:
            print(f"warning: {text}")

    def _proposals(self, trials: list[Trial]) -> tuple[Proposals, int]:
        """Return what proposes the trials that are left, and how many there are in all."""
        done = {record.name: record for record in self.records.values() if record.status != UNFINISHED}
        if self.search == "optuna":
            count = self.num_samples or 20
            past = [(record.trial, record.score) for record in done.values()]
            pending = [record.trial for record in self.records.values() if record.status == UNFINISHED]
            return Optuna(self.space, count, *self.draws, bigger=self.plan.bigger, past=past, pending=pending), count
        foreign = sorted(set(self.records) - {trial.name for trial in trials})
        if foreign:
            raise ConfigError(
                f"{self.folder} holds {len(foreign)} trials that this search does not have (first: {foreign[0]}); "
                "resume with the same space, seed and at least as many samples, or choose another output_dir"
            )
        return Listed([trial for trial in trials if trial.name not in done]), len(trials)

    def _on_end(self, record: Record) -> None:
        self.records[record.name] = record
        score = "-" if record.score is None else f"{record.score:.4f}"
        line = f"{record.name} {record.status} {self.plan.metric} {score} {record.seconds:.1f} s"
        reason = f"  {record.reason}" if record.reason else ""
        print(f"[{self._ended()}/{self.total}] {line}{reason}{self._left()}", flush=True)
        self._write_trials()

    def _left(self) -> str:
        """Return how many trials are left and how long they take, if as long as those of this session did."""
        left, ended = self.total - self._ended(), self._ended() - self.earlier
        if left <= 0 or ended <= 0:
            return ""
        seconds = (perf_counter() - self.search_start) / ended * left
        budget = self.plan.time_budget
        if budget is not None:
            seconds = min(seconds, max(0.0, budget - (perf_counter() - self.search_start)))
        return f"  ({left} left, about {in_minutes(seconds)})"

    def _write_trials(self) -> None:
        rows = []
        for record in sorted(self.records.values(), key=lambda record: record.number):
            row = asdict(record)
            rows.append(
                {
                    **{key: row[key] for key in ("number", "name", "status", "score")},
                    **{key: record.settings.get(key) for key in self.space.domains},
                    **{f"valid_{name}": value for name, value in record.valid.items()},
                    **{key: row[key] for key in ("best_epoch", "epochs", "seconds", "peak_memory_bytes", "reason")},
                }
            )
        write_text(self.folder / "trials.csv", pd.DataFrame(rows).to_csv(index=False))

    def _test(self, best: Record) -> dict[str, Any]:
        """Test the winner, once for each seed; a final run that is there already is not repeated."""
        first = int(self.plan.config(best.settings)["seed"])
        folders = {seed: final_folder(self.plan, best, seed) for seed in range(first, first + self.n_seeds)}
        missing = [seed for seed, folder in folders.items() if not (folder / "result.json").is_file()]
        calls = [(self.plan, best, seed, seed == first) for seed in missing]
        # a single one runs here: starting workers again would take longer
        (Local() if len(calls) < 2 else self.executor).map(run_final, calls)
        tests = [read_final(folder)["test"] for folder in folders.values()]
        values = {name: [test[name] for test in tests] for name in tests[0]}
        return {
            "test": tests[0],
            "seeds": list(folders),
            "test_mean": {name: statistics.fmean(of_seeds) for name, of_seeds in values.items()},
            "test_std": {name: deviation(of_seeds) for name, of_seeds in values.items()},
            "best_runs": [str(folder.relative_to(self.folder)) for folder in folders.values()],
        }

    def _print(self, best: Record, outcome: Mapping[str, Any]) -> None:
        counts = ", ".join(f"{count} {status}" for status, count in outcome["trials"].items())
        print(f"\n{self.plan.model} on {self.plan.dataset}: {counts}; selected by validation {self.plan.metric}")
        if outcome["unfinished"]:
            print(
                f"warning: {len(outcome['unfinished'])} trials are unfinished, so that another setting may still win; "
                f"{how_to_go_on(self.folder)}"
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


def in_minutes(seconds: float) -> str:
    """Return a time as one reads it: 40 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


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

    With the trial's own seed the trial goes on where it ended: one that finished is tested (after the refit, where the
    protocol asks for one) without a new training, another is trained to its end. With other seeds, for models that keep
    their state outside the weights, and where a process ended while it wrote, the winner is trained from the start.
    """
    folder, config = final_folder(plan, best, seed), plan.config(best.settings, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {**plan.fixed, **best.settings, "seed": seed, "output_dir": str(folder), "n_threads": plan.threads}
    # a trial keeps no data
    settings |= {"show_progress": False, "save_data": config["save_data"]}

    clear(folder)
    begun = [plan.trials / best.name / name for name in CONTINUED]
    if same_seed and issubclass(config.model_class, HyperRecommender) and all(path.is_file() for path in begun):
        for path in begun:
            shutil.copy2(path, folder)

    def attempt(resume: bool) -> dict[str, Any]:
        with apart(folder, plan.threads):
            return run(plan.model, plan.dataset, config_dict={**settings, "resume": resume})

    continued(folder, attempt)
