"""The patches: RecBole's stock code runs after importing this package."""

import subprocess
import sys

import pytest


def python(code: str) -> str:
    """Run ``code`` in a fresh interpreter and return what it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_a_start_imports_nothing_heavy() -> None:
    heavy = ("torch", "ray", "matplotlib", "numba", "recbole", "pandas", "pyarrow", "scipy", "numpy")
    code = "import sys, recbole_hyper\nhasattr(recbole_hyper, 'nothing'), dir(recbole_hyper)\n"
    assert python(f"{code}print([name for name in {heavy} if name in sys.modules])") == "[]"


NAMES = """
from recbole.utils import get_model
from recbole.config import Config
from recbole.quick_start import run_recbole
from recbole.trainer import Trainer
"""


# the aliases let RecBole be imported without this package
ALIASES = "import numpy\nnumpy.float, numpy.str = float, str\n"


@pytest.mark.parametrize("order", [f"import recbole_hyper{NAMES}", f"{ALIASES}{NAMES}import recbole_hyper"])
def test_recboles_names_are_patched_whichever_is_imported_first(order: str) -> None:
    """Names that numpy and scipy dropped are restored, and no import is watched."""
    code = f"""
{order}
import numpy, scipy.sparse, sys
assert "float" in vars(numpy)
assert scipy.sparse.dok_matrix((2, 2))._update({{(0, 1): 1.0}}) is None
assert not [one for one in sys.meta_path if type(one).__module__.startswith("recbole_hyper")]
import recbole.config.configurator, recbole.quick_start.quick_start as quick, torch, pickle
from recbole.data.dataset import Dataset, SequentialDataset, sequential_dataset
configurator = recbole.config.configurator
print(Dataset._fill_nan.__module__, Dataset._load_feat.__module__, sequential_dataset.len.__module__,
      get_model.__wrapped__ is not None, configurator.get_model is get_model is quick.get_model,
      quick.create_dataset.__wrapped__ is not None,
      Trainer._save_checkpoint.__module__, Config.__new__.__module__,
      any(item.__module__ == "recbole_hyper.hosted.pickles"
          for item in torch.serialization.get_safe_globals() if not isinstance(item, tuple)))
"""
    patches = [f"recbole_hyper.hosted.patches.{name}" for name in (*3 * ["dataset"], "checkpoints", "names")]
    assert python(code).split() == [*patches[:3], "True", "True", "True", *patches[3:], "True"]
