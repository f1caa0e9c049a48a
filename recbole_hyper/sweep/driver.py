"""The driver of a sweep: runs the trials that are missing, selects the winner on validation, and tests it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel, NonNegativeFloat, PositiveFloat, PositiveInt

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.config.binding import parse_keys
from recbole_hyper.evaluation.results import commit, versions
from recbole_hyper.evaluation.tables import table
from recbole_hyper.experiment.experiment import in_minutes
from recbole_hyper.files import plain, validated, write_json, write_text
from recbole_hyper.host import user_files
from recbole_hyper.models.data_defaults import MOST_EPOCHS
from recbole_hyper.sweep.checks import bind_base, bind_trials, readable
from recbole_hyper.sweep.folder import OUTCOME, REQUEST, how_to_continue, opened, read_request
from recbole_hyper.sweep.search import Optuna, list_trials
from recbole_hyper.sweep.space import Space, parse_space, read_space
from recbole_hyper.sweep.trial import (
    FAILED,
    FINISHED,
    OUT_OF_TIME,
    STOPPED,
    UNFINISHED,
    Plan,
    Trial,
    close_trial,
    final_folder,
    read_final,
    read_records,
    run_final,
)
from recbole_hyper.sweep.workers import Workers, run_trials
from recbole_hyper.values import is_number
from recbole_hyper.yaml_files import config_file, merged, properties_folder, without

# the space of a sweep without one, and the options of its search
TUNE = "tune"
TUNE_DEFAULTS = {"search": "random", "scheduler": "asha", "num_samples": 50, "time_budget": 3600.0}


class Options(BaseModel, allow_inf_nan=False):
    """The options of a sweep that need no configuration."""

    search: Literal["grid", "random", "optuna"] = "grid"
    scheduler: Literal["none", "asha"] = "none"
    num_samples: PositiveInt | None = None
    time_budget: PositiveFloat | None = None
    max_concurrent: PositiveInt | None = None
    cpu: PositiveFloat = 1.0
    gpu: NonNegativeFloat = 0.0
    ray_address: str | None = None


def sweep(
    model: str | None = None,
    dataset: str | None = None,
    *,
    space: str | Path | Mapping[str, Any] | None = None,
    config_files: Sequence[str | Path] = (),
    config_dict: Mapping[str, Any] | None = None,
    budget: str = "full",
    search: str | None = None,
    num_samples: int | None = None,
    scheduler: str | None = None,
    max_concurrent: int | None = None,
    resources: Mapping[str, float] | None = None,
    time_budget: float | None = None,
    ray_address: str | None = None,
) -> dict[str, Any]:
    """Try the settings of a space, select on validation, test the winner once.

    Without a space it searches "tune", which fits every model of this package: 50 random settings in an hour, with
    ASHA. A resumed sweep keeps its space and its options.

    Args:
        model: name of a model.
        dataset: name of a dataset folder below ``data_path``.
        space: file, name or content of the search space (:mod:`recbole_hyper.sweep.space`); default "tune".
        config_files: YAML files with keys of every trial, or names of protocols.
        config_dict: keys of every trial; ``output_dir`` is the folder of the sweep, ``resume`` continues the one there.
        budget: "full", or "small" for the small space in ``space``.
        search: "grid" (default), "random" or "optuna".
        num_samples: see :func:`recbole_hyper.sweep.search.list_trials`; for optuna all trials (default 20).
        scheduler: "none" (default), or "asha" to stop trials that fall behind.
        max_concurrent: most trials at a time.
        resources: {"cpu": cores, "gpu": share} of each trial; the default is one core.
        time_budget: seconds for the search; a resume continues it.
        ray_address: a running Ray cluster; None starts one here.

    Returns:
        The content of sweep.json: best (settings, validation), its test and the folder of that run, counts of trials
        by status, failures and unfinished trials with their reasons, seconds.

    Raises:
        ConfigError: something cannot run; raised before the first trial.
        NoSpaceError: the disk is full; the sweep can be resumed.
    """
    start = perf_counter()
    files, file_of_key = user_files.read_all([config_file(path) for path in config_files])
    keys = parse_keys(config_dict or {})
    resume, output_dir = ({**files, **keys}.get(name) for name in ("resume", "output_dir"))
    for layer in (files, keys):
        layer.pop("resume", None)
        layer.pop("output_dir", None)
    if resume and not output_dir:
        raise ConfigError("--resume=True needs --output_dir=DIR, the folder of the sweep to continue")
    before = read_request(Path(str(output_dir))) if resume else {}
    model, dataset = model or before.get("model"), dataset or before.get("dataset")
    if not model or not dataset:
        missing = "dataset" if model else "model"
        raise ConfigError(f"no {missing} given: use --{missing}=NAME")
    name = space or TUNE
    saved = {"search": search, "scheduler": scheduler, "num_samples": num_samples}
    given = {**saved, "time_budget": time_budget, "max_concurrent": max_concurrent, "ray_address": ray_address}
    defaults = before or (TUNE_DEFAULTS if name == TUNE else {})
    wanted = {**defaults, **(resources or {}), **{key: value for key, value in given.items() if value is not None}}
    options = validated(Options, wanted, "sweep")

    if before and space is None:
        whole = parse_space(before["space"], REQUEST)
    else:
        own = f"{TUNE}-{model}"
        has_own = name == TUNE and (properties_folder() / "sweep" / f"{own}.yaml").is_file()
        whole = read_space(own if has_own else name, budget)
    # the space wins over files, the command line over the constants of the space
    others = without(whole.content, files)
    fixed = merged(without(whole.domains, files), whole.constants, before.get("fixed", {}), others, keys)
    base = bind_base(model, dataset, fixed, whole, without(keys, file_of_key))
    folder = Path(output_dir or f"saved/sweep-{model}-{dataset}-{datetime.now():%Y%m%d-%H%M%S}").absolute()
    fixed = without(base.resolved.foreign, fixed)
    # trials are processes with another working folder
    fixed |= {"plugins": base["plugins"]} if fixed.get("plugins") else {}
    fixed = {"use_gpu": options.gpu > 0, **fixed, "data_path": str(Path(base["data_path"]).parent.absolute())}
    metric, bigger = base["valid_metric"].lower(), bool(base["valid_metric_bigger"])
    shared = _shared_fits(fixed, whole, base, folder)
    plan = Plan(model, dataset, {**fixed, **shared}, folder, max(1, int(options.cpu)), metric, bigger)
    varied = readable(plan, whole)
    request = {"model": model, "dataset": dataset, "fixed": fixed, "space": whole.content}
    request |= options.model_dump(include=set(saved))
    with opened(folder, plain(request, nan_to_null=False), before):
        return _Sweep(plan, varied, base, options, start).run()


def _shared_fits(fixed: Mapping[str, Any], space: Space, base: Config, folder: Path) -> dict[str, Any]:
    """Return keys that let trials of linear models share a decomposition: that of the largest rank serves all ranks."""
    keys: dict[str, Any] = {}
    taken = fixed.keys() | space.domains.keys()
    if "fit_cache" in base and "fit_cache" not in taken:
        keys["fit_cache"] = str(folder / "data" / "fits")
    if "max_rank" in base and "max_rank" not in taken:
        domain = space.domains.get("rank")
        if domain is not None and all(isinstance(rank, int) for rank in domain.ends):
            keys["max_rank"] = max(domain.ends)
    return keys


@dataclass
class _Sweep:
    """A sweep whose arguments are checked and whose folder is open."""

    plan: Plan
    space: Space
    base: Config
    options: Options
    start: float

    def run(self) -> dict[str, Any]:
        """Search, test the winner, write sweep.json and return its content."""
        self.folder, self.trials, options = self.plan.folder, read_records(self.plan), self.options
        trials = self._missing_trials()
        self.earlier, self.search_start = self._n_ended(), perf_counter()
        print(f"{self.folder}: {self.total} trials" + (f", {self.earlier} of them done" if self.earlier else ""))
        if self.earlier < self.total:
            workers = Workers(options.cpu, options.gpu, options.max_concurrent, options.ray_address)
            limits: dict[str, Any] = {"scheduler": options.scheduler, "time_budget": options.time_budget}
            run_trials(self.plan, trials, self._on_end, workers, max_epochs=self._max_epochs(), **limits)
        for name, trial in read_records(self.plan).items():
            unfinished = trial.status == UNFINISHED  # it was running when time was up
            self.trials[name] = close_trial(self.plan, trial, UNFINISHED, OUT_OF_TIME) if unfinished else trial
        self._write_trials()
        best = select(self.trials.values(), self.plan.bigger)
        outcome = self._outcome(best) | ({} if best is None else self._test(best))
        outcome["seconds"]["total"] = perf_counter() - self.start
        write_json(self.folder / OUTCOME, outcome)
        if best is None:
            reasons = Counter([*outcome["failures"].values(), *outcome["unfinished"].values()]).most_common(3)
            raise ConfigError(
                f"none of {self.total} trials finished; see {self.folder / 'trials.csv'}: "
                + ("; ".join(f"{reason} ({count} times)" for reason, count in reasons) or OUT_OF_TIME)
            )
        self._print(best, outcome)
        return plain(outcome)

    def _missing_trials(self) -> Iterator[Trial]:
        """Check all trials and return those that have not ended; set ``total``, and ``optuna`` if it proposes them."""
        seed = int(self.base["seed"])
        planned = list_trials(self.space, self.options.search, self.options.num_samples, seed)
        self.optuna: Optuna | None = None
        if self.options.search == "optuna":
            self.total = self.options.num_samples or 20
            earlier = self.trials.values()
            self.optuna = Optuna(self.space, self.total, seed, bigger=self.plan.bigger, earlier=earlier)
            missing = iter(self.optuna)
        else:
            self.total = len(planned)
            if foreign := sorted(self.trials.keys() - {trial.name for trial in planned}):
                raise ConfigError(
                    f"{self.folder} has {len(foreign)} trials that this search does not have (first: {foreign[0]}); "
                    "resume with the same space, seed and at least as many samples, or choose another output_dir"
                )
            ended = {name for name, trial in self.trials.items() if trial.status != UNFINISHED}
            missing = iter([trial for trial in planned if trial.name not in ended])
        for text in bind_trials(self.plan, [trial.settings for trial in planned]):
            print(f"warning: {text}")
        _, split = self.plan.data(self.plan.config(planned[0].settings))
        if not len(split.valid):
            raise ConfigError("this split has no validation case, so there is nothing to select on; change eval_args")
        return missing

    def _max_epochs(self) -> int:
        """Return the most epochs of any trial."""
        domain = self.space.domains.get("epochs")
        values = () if domain is None else domain.ends
        # a value that is not a number is "auto"
        return int(max(value if is_number(value) else MOST_EPOCHS for value in (self.base["epochs"], *values)))

    def _n_ended(self) -> int:
        return sum(trial.status != UNFINISHED for trial in self.trials.values())

    def _outcome(self, best: Trial | None) -> dict[str, Any]:
        """Return the content of sweep.json without the tested runs."""
        trials = self.trials.values()
        failed, unfinished = (
            {trial.name: trial.reason for trial in trials if trial.status == status} for status in (FAILED, UNFINISHED)
        )
        return {
            "model": self.plan.model,
            "dataset": self.plan.dataset,
            "valid_metric": self.plan.metric,
            "valid_metric_bigger": self.plan.bigger,
            "trials": dict(Counter(trial.status for trial in trials)),
            "planned": self.total,
            "failures": failed,
            "unfinished": unfinished,
            "best": None if best is None else best.content(),
            "seconds": {"search": perf_counter() - self.start, "trials": sum(trial.seconds for trial in trials)},
            "versions": versions(),
            "commit": commit(),
        }

    def _on_end(self, trial: Trial) -> None:
        """Take in a trial that ended, and print a line about it."""
        if self.optuna is not None:
            self.optuna.tell(trial)
        self.trials[trial.name] = trial
        ended, passed = self._n_ended(), perf_counter() - self.search_start
        score = "-" if trial.score is None else f"{trial.score:.4f}"
        line = f"[{ended}/{self.total}] {trial.name} {trial.status} {self.plan.metric} {score} {trial.seconds:.1f} s"
        line += f"  {trial.reason}" if trial.reason else ""
        if (left := self.total - ended) > 0 and ended > self.earlier:
            # at the pace of this session
            seconds = passed / (ended - self.earlier) * left
            if (budget := self.options.time_budget) is not None:
                seconds = min(seconds, max(0.0, budget - passed))
            line += f"  ({left} left, about {in_minutes(seconds)})"
        print(line, flush=True)
        self._write_trials()

    def _write_trials(self) -> None:
        rows = [
            {key: getattr(trial, key) for key in ("number", "name", "status", "score")}
            | {key: trial.settings.get(key) for key in self.space.domains}
            | {f"valid_{name}": value for name, value in trial.valid.items()}
            | {key: getattr(trial, key) for key in ("best_epoch", "epochs", "seconds", "peak_memory_bytes", "reason")}
            for trial in sorted(self.trials.values(), key=lambda trial: trial.number)
        ]
        write_text(self.folder / "trials.csv", pd.DataFrame(rows).to_csv(index=False))

    def _test(self, best: Trial) -> dict[str, Any]:
        """Test the winner, if that is not done, and return what sweep.json says about it."""
        folder = final_folder(self.plan, best)
        if not (folder / "result.json").is_file():
            run_final(self.plan, best)
        return {"test": read_final(folder), "best_run": str(folder.relative_to(self.folder))}

    def _print(self, best: Trial, outcome: Mapping[str, Any]) -> None:
        counts = ", ".join(f"{count} {status}" for status, count in outcome["trials"].items())
        print(f"\n{self.plan.model} on {self.plan.dataset}: {counts}; selected by validation {self.plan.metric}")
        if outcome["unfinished"]:
            print(
                f"warning: {len(outcome['unfinished'])} trials are unfinished, so another setting may still win; "
                f"{how_to_continue(self.folder)}"
            )
        print(f"best trial {best.name}: {', '.join(f'{key}={value}' for key, value in best.settings.items())}")
        tested = outcome["test"]  # a split may have no test part
        rows = [{"metric": m, "valid": best.valid.get(m), "test": tested.get(m)} for m in tested or best.valid]
        print(table(rows))
        print(self.folder / OUTCOME)


def select(trials: Iterable[Trial], bigger: bool) -> Trial | None:
    """Return the trial with the best validation score, the first of equals; None if no trial has a score.

    A trial that the scheduler stopped can win only if no trial finished, and an unfinished one only if none was stopped
    either.
    """
    trials = list(trials)
    for status in (FINISHED, STOPPED, UNFINISHED):
        scored = [(trial.score, trial) for trial in trials if trial.status == status and trial.score is not None]
        if scored:
            return min(scored, key=lambda pair: (-pair[0] if bigger else pair[0], pair[1].number))[1]
    return None
