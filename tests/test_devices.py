"""The same numbers on every device, and half precision around float32 losses. CUDA cases are skipped without one."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from recbole_hyper import functional, run
from recbole_hyper.encoders.base import dropout
from recbole_hyper.training.graphs import _CudaCapture
from tests.conftest import SMALL
from tests.devices.test_losses import LOSSES, evaluate

CUDA = pytest.param(
    "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
)
DEVICES = ["cpu", CUDA]


def inputs(device: str, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    states, weight, offset = (torch.randn(*size, generator=generator) for size in ((60, 16), (300, 16), (300,)))
    targets = torch.randint(1, 150, (60,), generator=generator)
    made = [tensor.to(device, dtype).requires_grad_() for tensor in (states, weight, 0.1 * offset)]
    return made[0], targets.to(device), made[1], made[2]


@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "poincare"])
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("device", [CUDA])
def test_losses_agree_with_the_cpu(name: str, device: str, geometry: str) -> None:
    """With negatives that are given: generators of two devices draw different numbers."""
    for own, expected in zip(*(evaluate(name, geometry, place)[0] for place in (device, "cpu")), strict=True):
        if own is not None and expected is not None:
            # relative to the largest value: small ones are differences of large ones
            assert float((own - expected).abs().max()) <= 1e-5 * float(expected.abs().max()) + 1e-6


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "poincare"])
@pytest.mark.parametrize("device", DEVICES)
def test_half_precision_states_meet_a_float32_link(device: str, geometry: str, half: torch.dtype) -> None:
    """Only the rounding of the inputs shows: lifts, links and sums run in float32, also under autocast."""
    states, targets, weight, offset = inputs(device)
    rounded = states.detach().to(half).requires_grad_()
    options = {"geometry": geometry, "curvature": 0.3, "padding_idx": 0}
    with torch.autocast(device, dtype=half):
        loss = functional.cross_entropy(rounded, targets, weight, offset, **options)
        (gradient,) = torch.autograd.grad(loss, rounded)
    exact = rounded.detach().float().requires_grad_()
    expected = functional.cross_entropy(exact, targets, weight, offset, **options)
    (wanted,) = torch.autograd.grad(expected, exact)
    assert loss.dtype == torch.float32
    assert gradient.dtype == half
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient.float(), wanted, rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("model", ["HSASRecCE", "DualRec"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_run_in_half_precision(model: str, device: str, cycle: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "data_path": str(cycle), "output_dir": str(tmp_path / "run"), "use_gpu": device == "cuda"}
    keys |= {"enable_amp": True, "epochs": 12, "stopping_step": 12, "learning_rate": 0.02, "exclude_seen": False}
    keys |= {"n_heads": 2, "eval_args": {"mode": "full"}, "valid_metric": "NDCG@10", "topk": [10]}
    result = run(model, "cycle", config_dict=keys)
    assert result["test"]["hit@10"] > 0.9
    assert result["peak_memory_bytes"] > 0


@pytest.mark.parametrize("device", [CUDA])
def test_a_run_on_the_device_resumes(device: str, random_data: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "data_path": str(random_data), "use_gpu": True, "stopping_step": 20}
    whole = run("HSASRecCE", "random", config_dict={**keys, "epochs": 6, "output_dir": str(tmp_path / "whole")})
    keys["output_dir"] = str(tmp_path / "parts")
    run("HSASRecCE", "random", config_dict={**keys, "epochs": 3})
    parts = run("HSASRecCE", "random", config_dict={**keys, "epochs": 6, "resume": True})
    assert parts["test"]["ndcg@10"] == pytest.approx(whole["test"]["ndcg@10"], abs=1e-6)


@pytest.mark.parametrize("device", [CUDA])
def test_a_replayed_step_draws_other_masks(device: str) -> None:
    ones = torch.ones(1000, device=device)
    replay, dropped = _CudaCapture()(lambda: dropout(ones, 0.5))
    masks = []
    for _ in range(4):
        replay()
        masks.append(dropped.clone())
    for one, next_one in itertools.pairwise(masks):
        assert 350 < int((one != next_one).sum()) < 650


@pytest.mark.slow  # collects in another process
def test_a_session_on_a_gpu_registers_no_other_device() -> None:
    """With tests/devices/foreign.py registered beside CUDA, torch 2.11 fails in the first backward pass on CUDA."""
    code = """
import pytest, torch
pytest.main(["-m", "gpu", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/devices"])
print(torch._C._get_privateuse1_backend_name())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "RECBOLE_HYPER_TEST_GPU": "1"},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "privateuseone"
