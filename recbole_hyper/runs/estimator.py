"""Estimators: a model with its options trains on a frame and recommends, without files.

``Estimator("HSASRecCE", hidden_size=64).fit(frame)`` equals :func:`recbole_hyper.runs.run.run` with this key.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recbole_hyper.config import Config, ConfigError
from recbole_hyper.files import replaced_folder, require_empty
from recbole_hyper.registry import register
from recbole_hyper.runs.claim import LOCK
from recbole_hyper.runs.load import load
from recbole_hyper.runs.run import run

if TYPE_CHECKING:
    from recbole_hyper.serving.recommender import Recommender as Asked
else:
    # the methods of a recommender come through __getattr__, once there is a run
    Asked = object


class Estimator(Asked):
    """A model and its options; after :meth:`fit` also its run, with all methods of a loaded run.

    ``model`` is the name or class of a model, as in :func:`recbole_hyper.runs.run.run`; ``options`` are configuration
    keys, as in a YAML file or on the command line. ConfigError for an unknown model or key, or an invalid value.
    """

    def __init__(self, model: str | type, **options: Any) -> None:
        # a user's class is registered, so that loading the run in this process finds it by name
        self.model = register("models")(model) if isinstance(model, type) else model  # type: ignore[misc]
        self.options = options
        Config(model, config_dict={**options, "interactions": "given"})
        self._run: tuple[dict[str, Any], Path] | None = None
        self._temporary: tempfile.TemporaryDirectory | None = None
        self._recommender: Any = None

    def fit(self, interactions: Any, *, output_dir: str | Path | None = None) -> Estimator:
        """Train, select on validation and test once; return this estimator.

        Args:
            interactions: a pandas or polars DataFrame or an Arrow table with a user, an item and a time in each row.
            output_dir: folder of the run; None uses a temporary folder, which :meth:`save` copies.
        """
        target = output_dir or self.options.get("output_dir")
        temporary = None if target else tempfile.TemporaryDirectory(prefix="recbole-hyper-")
        folder = Path(temporary.name) / "run" if temporary else Path(str(target)).expanduser()
        keys = {**self.options, "output_dir": str(folder)}
        self._run = run(self.model, interactions=interactions, config_dict=keys), folder
        self._temporary, self._recommender = temporary, None
        return self

    @property
    def result(self) -> dict[str, Any]:
        """The content of the run's result.json."""
        return self._fitted()[0]

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self._fitted()[1]

    def _fitted(self) -> tuple[dict[str, Any], Path]:
        if self._run is None:
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"{self!r} is not fitted; call fit(frame) first")
        return self._run

    def save(self, folder: str | Path) -> Path:
        """Copy the folder of the run to ``folder`` for ``recbole_hyper.load``, and return its path.

        ConfigError if ``folder`` exists and is not empty; NoSpaceError for a full disk, with nothing left behind.
        """
        target, source = Path(folder).expanduser(), self.folder
        require_empty(target)
        if target.absolute().is_relative_to(source.absolute()):
            raise ConfigError(f"{target} is inside the run's folder; choose another one")
        with replaced_folder(target) as part:
            shutil.copytree(source, part, ignore=shutil.ignore_patterns(LOCK), dirs_exist_ok=True)
        return target

    def __getattr__(self, name: str) -> Any:
        # recommend, similar_items, score and the other methods of a loaded run
        if name.startswith("_"):
            raise AttributeError(name)
        if self._recommender is None:
            self._recommender = load(self._fitted()[1])
        return getattr(self._recommender, name)

    def __repr__(self) -> str:
        options = "".join(f", {key}={value!r}" for key, value in self.options.items())
        name = self.model if isinstance(self.model, str) else self.model.__name__
        return f"Estimator({name!r}{options})"
