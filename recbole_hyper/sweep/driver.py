"""The driver of a sweep: runs the trials that are missing, selects the winner on validation, and tests it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd

from recbole_hyper.config import ConfigError
from recbole_hyper.config.binding import parse_keys
from recbole_hyper.evaluation.tables import table
from recbole_hyper.experiment.experiment import time_left
from recbole_hyper.files import plain, read_json, validated, write_json, write_text
from recbole_hyper.host import user_files
from recbole_hyper.runs.build import read_data
from recbole_hyper.runs.folder import RESULT
from recbole_hyper.sweep.checks import bind_base, readable
from recbole_hyper.sweep.folder import OUTCOME, how_to_continue, opened, read_request
from recbole_hyper.sweep.search import Optuna, list_trials
from recbole_hyper.sweep.space import Space, read_space
from recbole_hyper.sweep.trial import FINISHED, OUT_OF_TIME, UNFINISHED, Plan, Trial, read_records, run_final
from recbole_hyper.sweep.workers import Options, run_trials
from recbole_hyper.yaml_files import config_file, merged, properties_folder, without

# the space of a sweep without one, and the options of its search
TUNE = "tune"
TUNE_DEFAULTS = {"search": "random", "scheduler": "asha", "num_samples": 50, "time_budget": 3600.0}


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
        by status, seconds. trials.csv says why a trial failed.

    Raises:
        ConfigError: something cannot run; raised before the first trial.
        NoSpaceError: the disk is full; the sweep can be resumed.
    """
    start = perf_counter()
    files, file_of_key = user_files.read_all([config_file(path) for path in config_files])
    keys: dict[str, Any] = parse_keys(config_dict or {})
    resume, output_dir = ({**files, **keys}.get(name) for name in ("resume", "output_dir"))
    files, keys = (without(("resume", "output_dir"), layer) for layer in (files, keys))
    if resume and not output_dir:
        raise ConfigError("--resume=True needs --output_dir=DIR, the folder of the sweep to continue")
    before = read_request(Path(str(output_dir))) if resume else {}
    model, dataset = model or before.get("model"), dataset or before.get("dataset")
    name = space or TUNE
    saved = {"search": search, "scheduler": scheduler, "num_samples": num_samples}
    given = {**saved, "time_budget": time_budget, "max_concurrent": max_concurrent, "ray_address": ray_address}
    defaults = before or (TUNE_DEFAULTS if name == TUNE else {})
    wanted = {**defaults, **(resources or {}), **{key: value for key, value in given.items() if value is not None}}
    options = validated(Options, wanted, "sweep")

    if before and space is None:
        whole = read_space(before["space"])
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
    model, dataset = str(model), str(dataset)
    plan = Plan(model, dataset, fixed, folder, max(1, int(options.cpu)), metric, bigger)
    varied = readable(plan, whole)
    if not len(read_data(base)[1].valid):
        raise ConfigError("this split has no validation case, so there is nothing to select on; change eval_args")
    request = {"model": model, "dataset": dataset, "fixed": fixed, "space": whole.content}
    request |= options.model_dump(include=set(saved))
    with opened(folder, plain(request, nan_to_null=False), before):
        return _Sweep(plan, varied, int(base["seed"]), options, start).run()


@dataclass
class _Sweep:
    """A sweep whose arguments are checked and whose folder is open."""

    plan: Plan
    space: Space
    seed: int
    options: Options
    start: float

    def run(self) -> dict[str, Any]:
        """Search, test the winner, write sweep.json and return its content."""
        plan, folder = self.plan, self.plan.folder
        self.trials = read_records(plan)
        trials = self._missing_trials()
        self.earlier, self.begun = self._n_ended(), perf_counter()
        print(f"{folder}: {self.total} trials" + (f", {self.earlier} of them done" if self.earlier else ""))
        if self.earlier < self.total:
            run_trials(plan, trials, self._on_end, self.options)
        self.trials = read_records(plan)  # with those that were running when time was up
        self._write_trials()
        best, searched = select(self.trials.values(), bigger=plan.bigger), perf_counter()
        if best is None:
            reasons = Counter(trial.reason for trial in self.trials.values()).most_common(3)
            why = "; ".join(f"{reason} ({count} times)" for reason, count in reasons) or OUT_OF_TIME
            advice = f"; {how_to_continue(folder)}" if self._n_ended() < self.total else ""
            raise ConfigError(f"none of {self.total} trials finished: {why}; see {folder / 'trials.csv'}{advice}")
        final = run_final(plan, best)
        try:
            tested = read_json(final / RESULT)["test"]
        except (KeyError, ValueError) as error:
            advice = f"delete the folder {final}, then {how_to_continue(folder)}"
            raise ConfigError(f"{final / RESULT} is damaged; {advice}") from error
        seconds = {"search": searched - self.start, "trials": sum(trial.seconds for trial in self.trials.values())}
        outcome = {
            "model": plan.model,
            "dataset": plan.dataset,
            "valid_metric": plan.metric,
            "valid_metric_bigger": plan.bigger,
            "trials": dict(Counter(trial.status for trial in self.trials.values())),
            "planned": self.total,
            "best": {"name": best.name, **asdict(best)},
            "test": tested,
            "best_run": str(final.relative_to(folder)),
            "seconds": {**seconds, "total": perf_counter() - self.start},
        }
        write_json(folder / OUTCOME, outcome)
        self._print(best, outcome)
        return plain(outcome)

    def _missing_trials(self) -> Iterator[Trial]:
        """Return the trials that have not ended; set ``total``, and ``optuna`` if it proposes them."""
        self.optuna: Optuna | None = None
        if self.options.search == "optuna":
            self.total = self.options.num_samples or 20
            earlier = self.trials.values()
            self.optuna = Optuna(self.space, self.total, self.seed, bigger=self.plan.bigger, earlier=earlier)
            return iter(self.optuna)
        planned = list_trials(self.space, self.options.search, self.options.num_samples, self.seed)
        self.total = len(planned)
        ended = {name for name, trial in self.trials.items() if trial.status != UNFINISHED}
        return iter([trial for trial in planned if trial.name not in ended])

    def _n_ended(self) -> int:
        return sum(trial.status != UNFINISHED for trial in self.trials.values())

    def _on_end(self, trial: Trial) -> None:
        """Take in a trial that ended, and print a line about it."""
        if self.optuna is not None:
            self.optuna.tell(trial)
        self.trials[trial.name] = trial
        ended = self._n_ended()
        score = "-" if trial.score is None else f"{trial.score:.4f}"
        line = f"[{ended}/{self.total}] {trial.name} {trial.status} {self.plan.metric} {score} {trial.seconds:.1f} s"
        line += f"  {trial.reason}" if trial.reason else ""
        print(line + time_left(self.begun, ended - self.earlier, self.total - ended), flush=True)
        self._write_trials()

    def _write_trials(self) -> None:
        rows = [
            {key: getattr(trial, key) for key in ("number", "name", "status", "score")}
            | {key: trial.settings.get(key) for key in self.space.domains}
            | {f"valid_{name}": value for name, value in trial.valid.items()}
            | {key: getattr(trial, key) for key in ("best_epoch", "epochs", "seconds", "peak_memory_bytes", "reason")}
            for trial in sorted(self.trials.values(), key=lambda trial: trial.number)
        ]
        write_text(self.plan.folder / "trials.csv", pd.DataFrame(rows).to_csv(index=False))

    def _print(self, best: Trial, outcome: Mapping[str, Any]) -> None:
        counts = ", ".join(f"{count} {status}" for status, count in outcome["trials"].items())
        print(f"\n{self.plan.model} on {self.plan.dataset}: {counts}; selected by validation {self.plan.metric}")
        if unfinished := outcome["trials"].get(UNFINISHED):
            text = f"warning: {unfinished} trials are unfinished, so another setting may still win"
            print(f"{text}; {how_to_continue(self.plan.folder)}")
        print(f"best trial {best.name}: {', '.join(f'{key}={value}' for key, value in best.settings.items())}")
        tested = outcome["test"]  # a split may have no test part
        print(table([{"metric": m, "valid": best.valid.get(m), "test": tested.get(m)} for m in tested or best.valid]))
        print(self.plan.folder / OUTCOME)


def select(trials: Iterable[Trial], *, bigger: bool) -> Trial | None:
    """Return the finished trial with the best validation score, the first of equals; None if there is none."""
    scored = [(trial.score, trial) for trial in trials if trial.status == FINISHED and trial.score is not None]
    best = min(scored, key=lambda pair: (-pair[0] if bigger else pair[0], pair[1].number), default=None)
    return best and best[1]
