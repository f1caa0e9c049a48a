"""Small datasets that tests build for themselves; no test reads a dataset from anywhere else."""

import gc
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

# each worker of the suite has one thread, as small steps spend more on waking several than on work; torch reads it once
os.environ.setdefault("OMP_NUM_THREADS", "1")
# where a test asks for two, a thread that waits for the other sleeps: it does not spin on the core of the next worker
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# if Python keeps no compiled files, each of the many processes of the suite would compile the package again
os.environ["PYTHONDONTWRITEBYTECODE"] = ""

import numpy as np
import pytest

from tests.reference import planted

if "gpu" in sys.argv:  # pytest -m gpu; its workers inherit the variable
    os.environ["RECBOLE_HYPER_TEST_GPU"] = "1"
if os.environ.get("RECBOLE_HYPER_TEST_GPU") != "1":
    # a run in a test does not take the GPU because there is one: only tests with the mark gpu use it
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Prepare what tests import, and search for no garbage while modules are imported."""
    gc.disable()
    if not session.config.pluginmanager.hasplugin("dsession"):  # with it workers run the tests
        import tests.prepared  # noqa: F401
    found = yield
    gc.enable()
    return found


@pytest.fixture(scope="module", autouse=True)
def _garbage() -> None:
    """Keep what earlier modules left out of Python's search for garbage, which takes half a second otherwise."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # libraries look at the end for what they leaked


HEADER = "user_id:token\titem_id:token\ttimestamp:float\n"


@pytest.fixture(scope="module")
def kernels() -> Iterator[None]:
    """Kernels run however little work there is."""
    with pytest.MonkeyPatch.context() as patch:
        for part in ("losses._stream", "geometry.poincare", "hyperbolic.recurrence", "evaluation.ranking"):
            patch.setattr(f"recbole_hyper.{part}.KERNEL_FROM", 0)
        patch.setattr("recbole_hyper.serving.query.KERNEL_FROM", 0)
        yield


@pytest.fixture
def growing_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is tried on ever larger parts of a batch, as outside of tests."""
    from tests.prepared import HALVINGS

    monkeypatch.setattr("recbole_hyper.training.memory._HALVINGS", HALVINGS)


@pytest.fixture
def serial_sweeps() -> Iterator[None]:
    """Sweeps run their trials one after another in this process."""
    from recbole_hyper.sweep.workers import Options

    # apart from a test's own patches, which it may undo
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Options, "alone", True)
        yield


@pytest.fixture(autouse=True)
def _seeded() -> None:
    import torch

    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  RecBole draws from the global generator


def script(file: Path) -> ModuleType:
    """Return a Python file that is in no package as a module."""
    specification = importlib.util.spec_from_file_location(file.stem, file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def loading(config: Any) -> tuple[Any, Any]:
    """Return the settings of a training loader."""
    from recbole_hyper.batches.loader import BatchSettings, LoaderSettings

    return LoaderSettings.of(config), BatchSettings.of(config)


def write_inter(folder: Path, name: str, rows: Iterable[tuple], header: str = HEADER, part: str = "") -> Path:
    """Write ``folder/name/name.inter``, or of a part ``name.part.inter``, and return ``folder``."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(str(value) for value in row) + "\n" for row in rows]
    (folder / name / f"{name}{part and '.'}{part}.inter").write_text(header + "".join(lines))
    return folder


def small(data: Path, out: Path, **keys: object) -> dict[str, Any]:
    """Return the keys of a small run."""
    return {**SMALL, "data_path": str(data), "output_dir": str(out), **keys}


def cycle_rows(users: int = 30, items: int = 12, length: int = 10) -> list[tuple]:
    """Return interactions in which item ``i`` is always followed by ``i + 1``: a model must learn it."""
    return [(f"u{user}", f"i{(user + step) % items}", 1000 + step) for user in range(users) for step in range(length)]


@pytest.fixture
def cycle(tmp_path: Path) -> Path:
    """Return a data_path that holds the dataset "cycle"."""
    return write_inter(tmp_path / "data", "cycle", cycle_rows())


@pytest.fixture
def walk(tmp_path: Path) -> Path:
    """Return a data_path that holds "walk": the newest item decides the next, all but 5 in a hundred times."""
    return write_inter(tmp_path / "data", "walk", planted.walk_rows())


@pytest.fixture
def blocks(tmp_path: Path) -> Path:
    """Return a data_path that holds "blocks": items of one block of ten occur together."""
    return write_inter(tmp_path / "data", "blocks", planted.block_rows())


@pytest.fixture
def random_data(tmp_path: Path) -> Path:
    """Return a data_path that holds the dataset "random": 40 users of 2 to 24 distinct items, some equal times."""
    return write_random(tmp_path)


@pytest.fixture(scope="module")
def random_data_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what random_data returns, once for all tests of a file, which do not change it."""
    return write_random(tmp_path_factory.mktemp("random"))


def write_random(folder: Path) -> Path:
    """Write the dataset "random" below ``folder`` and return its data_path."""
    generator = np.random.default_rng(5)
    rows = []
    for user in range(40):
        count = int(generator.integers(2, 25))
        times = np.sort(generator.integers(0, 60, count))
        for item, time in zip(generator.permutation(50)[:count], times, strict=True):
            rows.append((f"u{user}", f"i{item}", 1_000_000_000 + int(time)))
    generator.shuffle(rows)
    return write_inter(folder / "data", "random", rows)


SMALL = {
    "hidden_size": 16,
    "n_layers": 1,
    "MAX_ITEM_LIST_LENGTH": 8,
    "train_batch_size": 16,
    "epochs": 2,
    "show_progress": False,
    "hidden_dropout_prob": 0.1,
    "attn_dropout_prob": 0.1,
}

# enough to learn "walk", half a second each; a share of 0.92 of its targets can be known, 1 / 52 is chance
LEARN = {
    **SMALL,
    "hidden_size": 32,
    "inner_size": 32,
    "train_batch_size": 30,
    "epochs": 10,
    "eval_step": 5,
    "checkpoint_step": 100,
    "learning_rate": 0.02,
    "topk": [1, 5, 10],
    "valid_metric": "NDCG@10",
    "eval_args": {"mode": "full"},
}


@pytest.fixture(scope="session", autouse=True)
def _leaves_nothing() -> Iterator[None]:
    """Fail if a test leaves a file in the folder where pytest was started."""
    folder = Path.cwd()
    before = {path.name for path in folder.iterdir()}
    yield
    left = {path.name for path in folder.iterdir() if not path.name.startswith(".")} - before
    assert not left, f"tests left {', '.join(sorted(left))} in {folder}"
