"""The folder of a run: whose it is, what a resumed run may change, and the log in it."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.files import plain

# a resumed run may differ in these: they do not change what is learned
RESUMABLE_KEYS = {
    "resume", "output_dir", "epochs", "show_progress", "checkpoint_dir", "data_path", "n_threads", "confidence",
    "save_cases", "ranking_memory_budget", "log_tensorboard", "checkpoint_step", "state", "gpu_id", "use_gpu",
    "protocol_report", "num_workers", "ray_address", "refit",
}  # fmt: skip


def files_of_resumed_run(settings: Mapping[str, Any], *, named: bool) -> list[Path]:
    """Return the configuration of the run that ``settings`` continue, [] for a new run.

    Raises:
        ConfigError: nothing to resume, and no model is ``named`` that could be started.
    """
    if not settings.get("resume") or not settings.get("output_dir"):
        return []
    file = Path(settings["output_dir"]) / "config.yaml"
    if not file.is_file() and not named:
        raise ConfigError(f"{file.parent} holds no run to resume: config.yaml is missing")
    return [file] if file.is_file() else []


def claim_folder(config: Config) -> Path:
    """Create the folder of the run, and make sure that it is this run's to write to."""
    name = config["output_dir"]
    if not name:
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
        name = str(Path("saved") / f"{config['model']}-{config['dataset']}-{stamp}")
        config["output_dir"] = name
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(f"output_dir={name!r} cannot be written: {error}") from error
    if (folder / "config.yaml").is_file():
        if not config["resume"]:
            raise ConfigError(
                f"{folder} already holds a run; choose another output_dir, or continue it with --resume=True"
            )
        require_same_run(config, yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")))
    return folder


def require_same_run(config: Config, before: dict[str, Any]) -> None:
    """Raise ConfigError where ``config`` differs from that of an earlier run in more than a resumed run may change."""
    now = yaml.safe_load(yaml.safe_dump(plain(config.plain(), nan_to_null=False)))
    # a key that came later stands for its default before, or for being off where it has none
    defaults = config.internal_config_dict
    earlier = {key: defaults.get(key, None if value else value) for key, value in now.items()} | before
    changed = sorted(
        key
        for key in (set(now) | set(before)) - RESUMABLE_KEYS
        if not config.ignores(key)
        and now.get(key) != earlier.get(key)
        and not (key == "curvature" and now.get(key) == "auto")
    )
    if changed:
        detail = "; ".join(f"{key}: {earlier.get(key)!r} before, {now.get(key)!r} now" for key in changed[:5])
        raise ConfigError(
            f"this run cannot be resumed with another configuration ({detail}); choose another output_dir"
        )


@contextlib.contextmanager
def logging_to(output_dir: Path, level: str) -> Iterator[None]:
    """Log to the terminal and to run.log, without colours in the file."""
    root = logging.getLogger()
    before, old_level = list(root.handlers), root.level
    terminal, file = logging.StreamHandler(sys.stderr), logging.FileHandler(output_dir / "run.log", encoding="utf-8")
    no_colour, form = _NoColour(), "%(asctime)s %(message)s"
    for handler in (terminal, file):
        handler.setFormatter(logging.Formatter(form, "%H:%M:%S"))
    file.addFilter(no_colour)
    if not sys.stderr.isatty():
        terminal.addFilter(no_colour)
    root.handlers = [terminal, file]
    root.setLevel(str(level).upper() if str(level).upper() in logging.getLevelNamesMapping() else "INFO")
    try:
        yield
    finally:
        root.handlers = before
        root.setLevel(old_level)
        file.close()


class _NoColour(logging.Filter):
    """Strip the escape sequences that RecBole puts into its messages."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the message in place and let it pass."""
        record.msg = re.sub(r"\x1B\[[0-?]*[ -/]*[@-~]", "", record.getMessage())
        record.args = None
        return True
