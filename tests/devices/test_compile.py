"""torch.compile of the encoder: the numbers of the run without it. On the CPU; a GPU was never tried."""

import shutil
from pathlib import Path

import pytest

from recbole_hyper import run
from tests.devices.steps import small_keys, write_random


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on the CPU")
@pytest.mark.parametrize("model", ["HSASRecCE", "FMLPRecCE"])
def test_a_compiled_encoder_learns_the_same(model: str, tmp_path: Path) -> None:
    data = write_random(tmp_path / "data")
    still = {"hidden_dropout_prob": 0.0, **({"attn_dropout_prob": 0.0} if model == "HSASRecCE" else {})}
    found = []
    for compiled in (False, True):
        keys = small_keys(model, data, output_dir=str(tmp_path / str(compiled)), use_gpu=False, compile=compiled)
        found.append(run(model, "random", config_dict={**keys, **still, "epochs": 2, "n_threads": 1}))
    assert found[1]["test"] == pytest.approx(found[0]["test"], abs=1e-4)
    assert found[1]["parameters"] == found[0]["parameters"]
