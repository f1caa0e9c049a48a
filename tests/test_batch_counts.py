"""The files that a batch enters, and the parts that an opened run imports, counted."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import recbole_hyper
from recbole_hyper import run
from recbole_hyper.batches.loader import BatchLoader
from recbole_hyper.training.loop import Loop
from tests.conftest import SMALL, cycle_rows, write_inter

pytestmark = pytest.mark.usefixtures("kernels")

PACKAGE = f"{Path(recbole_hyper.__file__).parent}/"
WAY = {
    *(
        "batches/loader.py",
        "types.py",
        "training/loop.py",
        "models/base.py",
        "encoders/base.py",
        "encoders/transformer.py",
    ),
    *("geometry/base.py", "geometry/head.py", "losses/_chunks.py", "losses/_stream.py", "losses/ce.py", "matmul.py"),
    *("kernels/compiled.py", "kernels/softmax.py"),
}
HEADS = {"SASRecCE": {"geometry/euclidean.py"}, "HSASRecCE": {"geometry/poincare.py"}}


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Any]:
    data = write_inter(tmp_path / "data", "cycle", cycle_rows(users=60))
    keys = {**SMALL, "data_path": str(data), "output_dir": str(tmp_path / "run"), "use_gpu": False, "epochs": 2}
    return {**keys, "hidden_dropout_prob": 0.1, "curvature": 1.0, "train_batch_size": 32}


@pytest.mark.parametrize("model", sorted(HEADS))
def test_files_that_a_batch_enters(model: str, keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """From the loader to the optimizer's step; on a CPU, with a kernel that is compiled."""
    entered = set[str]()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            entered.add(frame.f_code.co_filename.removeprefix(PACKAGE))

    train_epoch, make = Loop.train_epoch, BatchLoader.__iter__

    def batches(self: BatchLoader) -> Any:
        entered.clear()  # the first epoch imports what it needs
        sys.setprofile(note)
        yield from make(self)
        sys.setprofile(None)

    def epoch(self: Loop, *arguments: Any) -> None:
        monkeypatch.setattr(BatchLoader, "__iter__", batches)
        try:
            train_epoch(self, *arguments)
        finally:
            sys.setprofile(None)
            monkeypatch.setattr(BatchLoader, "__iter__", make)

    monkeypatch.setattr(Loop, "train_epoch", epoch)
    run(model, "cycle", config_dict=keys)
    assert entered - WAY == HEADS[model]
    assert len(entered) <= 15


def test_the_page_on_the_package_names_the_way() -> None:
    page = (Path(recbole_hyper.__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    way = page.partition("## The way of a batch")[2].partition("\n## ")[0]
    assert {file for file in re.findall(r"`([\w/]+\.py)`", way) if not file.startswith("tests/")} == WAY | HEADS[
        "SASRecCE"
    ]


def test_opening_a_run_imports_its_own_parts_only(keys: dict[str, Any]) -> None:
    run("SASRecCE", "cycle", config_dict=keys)
    code = (
        "import sys\nfrom pathlib import Path\nfrom recbole_hyper import load\n"
        f"load({keys['output_dir']!r}).recommend(users=['u1'], k=3)\n"
        "files = [module.__file__ for name, module in sys.modules.items() if name.split('.')[0] == 'recbole_hyper']\n"
        "print(sum(Path(file).read_text(encoding='utf-8').count('\\n') for file in files))\n"
        "from recbole_hyper.options import Part, part_in_file\n"
        "for kind in ('encoders', 'losses', 'geometry'):\n"
        "    start = f'recbole_hyper.{kind}.'\n"
        "    names = [name.removeprefix(start) for name in sys.modules if name.startswith(start)]\n"
        "    print(kind, *(name for name in names if part_in_file(kind, name) is not None))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines, *parts = done.stdout.splitlines()
    assert parts == ["encoders transformer", "losses ce", "geometry euclidean"]
    assert 5000 < int(lines) <= 9000, "lines of the package that opening a run and recommending import"
