"""torch.compile of the encoder: the numbers of the run without it. On the CPU; a GPU was never tried."""

import functools
import shutil

import pytest
import torch

from recbole_hyper import run
from tests.devices.steps import small_keys, write_random

INDUCTOR = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler on the CPU"),
]


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=INDUCTOR)])
@pytest.mark.parametrize("model", ["HSASRecCE", pytest.param("FMLPRecCE", marks=pytest.mark.slow)])
def test_a_compiled_encoder_learns_the_same(model, backend, tmp_path, monkeypatch) -> None:
    """The quick backend traces the encoder and runs what it traced; inductor compiles that."""
    compile_ = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", functools.partialmethod(compile_, backend=backend))
    traced = torch._dynamo.utils.counters["stats"]
    traced.clear()
    data = write_random(tmp_path / "data")
    still = {"hidden_dropout_prob": 0.0, **({"attn_dropout_prob": 0.0} if model == "HSASRecCE" else {})}
    found = []
    for compiled in (False, True):
        assert not traced
        keys = small_keys(model, data, output_dir=str(tmp_path / str(compiled)), use_gpu=False, compile=compiled)
        found.append(run(model, "random", config_dict={**keys, **still, "epochs": 2, "n_threads": 1}))
    assert traced["unique_graphs"] > 0
    assert found[1]["test"] == pytest.approx(found[0]["test"], abs=1e-4)
    assert found[1]["parameters"] == found[0]["parameters"]
