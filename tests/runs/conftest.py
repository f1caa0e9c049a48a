"""Small runs for the tests of what a folder holds."""

from pathlib import Path

import pytest

from recbole_hyper import run
from tests.foreign_code import name_a_plugin
from tests.serving.conftest import bundle, folder  # noqa: F401  they are fixtures here too
from tests.sweep.conftest import data, keys  # noqa: F401


@pytest.fixture
def foreign(random_data: Path, tmp_path: Path) -> tuple[Path, Path, Path]:
    """Return the folder of a run that names a plugin, the plugin, and the file that is there when it has run."""
    settings = {"data_path": str(random_data), "output_dir": str(tmp_path / "run"), "topk": [5]}
    run("Pop", "random", config_dict={**settings, "valid_metric": "NDCG@5"})
    return name_a_plugin(tmp_path / "run")
