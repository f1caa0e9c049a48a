"""The tested runs of a sweep's winner."""

import shutil
from pathlib import Path
from typing import Any

from recbole_hyper.errors import ConfigError
from recbole_hyper.files import read_json
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.options import is_number
from recbole_hyper.runs.run import run
from recbole_hyper.sweep.trial import Plan, Record, clear, isolated, resume_or_restart

# what a tested run takes from the winner's trial
CONTINUED = ("config.yaml", "checkpoint.pt", "model.safetensors", "train.csv")


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

    With the trial's own seed, the run continues the trial: one that finished is tested (after the refit, where the
    protocol has one) without a new training, another is trained to its end. With other seeds, for models that keep
    their state outside the weights, and for a damaged trial, the winner is trained from the start.
    """
    folder, config = final_folder(plan, best, seed), plan.config(best.settings, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {**plan.fixed, **best.settings, "seed": seed, "output_dir": str(folder), "n_threads": plan.threads}
    # trials save no data
    settings |= {"show_progress": False, "save_data": config["save_data"]}

    clear(folder)
    begun = [plan.trials / best.name / name for name in CONTINUED]
    if same_seed and issubclass(config.model_class, HyperRecommender) and all(path.is_file() for path in begun):
        for path in begun:
            shutil.copy2(path, folder)

    def attempt(resume: bool) -> dict[str, Any]:
        with isolated(folder, plan.threads):
            return run(plan.model, plan.dataset, config_dict={**settings, "resume": resume})

    resume_or_restart(folder, attempt)
