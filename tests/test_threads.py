"""What the environment of the process says before torch is loaded, and how many threads torch takes."""

import os
import subprocess
import sys
import types

import pytest

import recbole_hyper
from recbole_hyper.threads import CACHED_KERNELS, SPINS

SPIN, CACHE = "GOMP_SPINCOUNT", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
ASKED = f"""
import os, sys
from recbole_hyper.threads import limit_cached_kernels, limit_spinning
assert "torch" not in sys.modules
limit_spinning()
limit_cached_kernels()
print(*(os.environ.get(name) for name in ("{SPIN}", "OMP_WAIT_POLICY", "{CACHE}")))
"""


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, (SPINS, None, CACHED_KERNELS)),
        ({SPIN: "7", CACHE: "9"}, ("7", None, "9")),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, (None, "ACTIVE", CACHED_KERNELS)),
    ],
)
def test_spinning_and_kernels_are_limited_unless_the_environment_says_how(given, wanted) -> None:
    names = (SPIN, "OMP_WAIT_POLICY", CACHE, "DNNL_PRIMITIVE_CACHE_CAPACITY")
    clean = {key: value for key, value in os.environ.items() if key not in names}
    done = subprocess.run([sys.executable, "-c", ASKED], env=clean | given, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(value) for value in wanted]


def test_the_first_use_of_the_package_sets_both(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "GOMP_SPINCOUNT",
        "OMP_WAIT_POLICY",
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY",
        "DNNL_PRIMITIVE_CACHE_CAPACITY",
    ):
        monkeypatch.setenv(name, "")  # so that it is as before when the test ends
        monkeypatch.delenv(name)
    monkeypatch.setattr(recbole_hyper, "import_module", lambda name: types.SimpleNamespace(run=name))
    assert recbole_hyper.__getattr__("run") == "recbole_hyper.runs.run"
    assert os.environ["GOMP_SPINCOUNT"] == SPINS
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == CACHED_KERNELS


def test_importing_the_package_sets_no_variable_and_loads_nothing() -> None:
    code = (
        "import os, sys\nbefore = dict(os.environ)\nimport recbole_hyper, recbole_hyper.options, recbole_hyper.errors\n"
        "print(before == dict(os.environ), {'numpy', 'torch', 'recbole', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True set()"


def test_torch_is_not_loaded_before() -> None:
    code = "import recbole_hyper.threads, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_torch_gets_no_more_threads_than_the_process_may_use() -> None:
    code = """
import os, torch
from recbole_hyper.threads import default_threads, processors, use_threads
before = torch.get_num_threads()
os.environ["LOKY_MAX_CPU_COUNT"] = "1"  # as a container of one processor
use_threads(None)
print(before, torch.get_num_threads(), processors(), default_threads())
use_threads(3)
print(torch.get_num_threads())
"""
    clean = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    environment = clean | {"OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "1", "1", "2", "3"]
