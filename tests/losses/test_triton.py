"""Triton's kernels of the exact cross-entropy, by Triton's interpreter on the CPU (see conftest), against float64."""

import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from torch import Tensor

from recbole_hyper import matmul, registry
from recbole_hyper.geometry.base import Geometry
from recbole_hyper.losses import _chunks, ce
from recbole_hyper.losses._chunks import Problem
from recbole_hyper.losses.ce import exact_cross_entropy
from tests.losses.test_ce import full, gradients, problem

pytest.importorskip("triton", reason="triton is not installed")

from recbole_hyper.losses._triton import PRECISIONS
from tests.losses.interpreter import DEVICE, MARKS
from tests.raising import refused

pytestmark = MARKS


def geometry_of(name: str) -> Geometry:
    return registry.resolve("geometry", name)()


def on_device(*given: float, **options: object) -> list[Tensor | None]:
    found = problem(*given, dtype=torch.float32, **options)  # type: ignore[arg-type]
    return [None if t is None else t.detach().to(DEVICE).requires_grad_(t.is_floating_point()) for t in found]


@pytest.mark.parametrize(("padding", "offset"), [(None, False), (0, True), (70, True), (70, False)])
@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "poincare"])
def test_equals_full_logits_in_float64(geometry: str, offset: bool, padding: int | None) -> None:
    """Two blocks of rows and three of items, both with a rest."""
    states, targets, weight, offsets, curvature = on_device(70, 150, 11, padding, offset=offset)
    leaves = (states, weight, offsets, *((curvature,) if geometry == "poincare" else ()))
    loss = exact_cross_entropy(
        states,
        targets,
        weight,
        offsets,
        geometry_of(geometry),
        theta=curvature,
        padding_idx=padding,
        triton_kernel=True,
    )
    double = [None if t is None else t.detach().double().requires_grad_() for t in leaves]
    own = double[3] if geometry == "poincare" else 1.0
    expected = full(double[0], targets, double[1], double[2], own, geometry, padding)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=1e-6)
    for one, other in zip(gradients(loss, leaves), gradients(expected, double), strict=True):
        assert one is not None
        torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=2e-6)


def test_the_faster_products_of_a_cpu_leave_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """On AVX-512 a loss lets torch use oneDNN by its precision, which is not one that the kernels were asked for."""
    states, targets, weight, offset, _ = on_device(9, 100, 8, None)
    found = []
    for keeps in (False, True):
        monkeypatch.setattr(matmul, "keeps_float32", lambda keeps=keeps: keeps)
        loss = exact_cross_entropy(states, targets, weight, offset, geometry_of("euclidean"), triton_kernel=True)
        found.append(float(loss.detach()))
    assert found[0] == found[1]


def test_factored_lifts() -> None:
    """States far out, whose exponents are taken out of the lifts: as exact as the tiles, against float64."""
    states, targets, weight, offset, _ = on_device(9, 100, 8, None, size=40.0)
    geometry = geometry_of("poincare")
    assert geometry.factored(states, offset, 1.0)
    found = []
    for kernel, dtype in ((True, torch.float32), (False, torch.float32), (False, torch.float64)):
        leaves = [one.detach().to(dtype).requires_grad_() for one in (states, weight, offset)]
        loss = exact_cross_entropy(leaves[0], targets, *leaves[1:], geometry, triton_kernel=kernel)
        found.append([one.double() for one in (loss, *gradients(loss, tuple(leaves)))])
    for own, plain, exact in zip(*found, strict=True):
        error, of_tiles = (float((one - exact).abs().max() / exact.abs().max()) for one in (own, plain))
        assert error <= (3 * of_tiles + 4e-6 if DEVICE == "cpu" else 1e-3), (error, of_tiles)


@pytest.mark.parametrize(
    ("precision", "width"),
    [*(("highest", width) for width in (32, 64, 128, 200, 256)), *(("high", width) for width in (64, 200)),
     *(("medium", width) for width in (32, 200, 256))],
)  # fmt: skip
def test_every_width_and_precision(precision: str, width: int) -> None:
    """The interpreter computes TF32 in float32, and bfloat16 as it is."""
    states, targets, weight, offset, _ = on_device(40, 90, width, 0)
    leaves = (states, weight, offset)
    # far states need more digits than bfloat16 has
    geometry = "cosine" if precision == "medium" else "poincare"
    torch.set_float32_matmul_precision(precision)
    try:
        options = {"theta": 0.05, "padding_idx": 0, "triton_kernel": True}
        loss = exact_cross_entropy(states, targets, weight, offset, geometry_of(geometry), **options)
    finally:
        torch.set_float32_matmul_precision("highest")
    double = [one.detach().double().requires_grad_() for one in leaves]
    expected = full(double[0], targets, double[1], double[2], 0.05, geometry, 0)
    allowed = 2e-2 if precision == "medium" else 1e-5 if DEVICE == "cpu" or precision == "highest" else 2e-2
    for one, other in zip([loss, *gradients(loss, leaves)], [expected, *gradients(expected, double)], strict=True):
        assert float((one.double() - other).abs().max() / other.abs().max()) < allowed


@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "poincare"])
def test_row_weights_and_smoothing(geometry: str) -> None:
    """Rows of weight 0 change nothing, wherever their targets are."""
    states, targets, weight, offset, _ = on_device(40, 90, 8, 0)
    row_weights = torch.rand(40, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    row_weights[25:] = 0
    found = []
    for kernel, rows in ((True, slice(None)), (False, slice(25))):
        options = {"padding_idx": 0, "label_smoothing": 0.1, "row_weights": row_weights[rows]}
        given = (states[rows], targets[rows], weight, offset, geometry_of(geometry))
        loss = exact_cross_entropy(*given, **options, triton_kernel=kernel)
        found.append([loss, *gradients(loss, (states, weight, offset))])
    for one, other in zip(*found, strict=True):
        assert float((one - other).abs().max() / other.abs().max()) < 1e-5


@pytest.mark.parametrize(
    ("geometry", "n", "m", "width", "triton_kernel", "expected"),
    [
        ("poincare", 8192, 12_000, 128, None, "TritonStream"),
        ("poincare", 8192, 12_000, 64, False, "RowStream"),
        ("poincare", 100, 1000, 64, None, "RowStream"),
        ("poincare", 8192, 40_000, 64, None, "TritonStream"),
        ("euclidean", 8192, 12_000, 64, None, "TritonStream"),
        ("euclidean", 100, 1000, 64, None, "RowStream"),
        ("euclidean", 8192, 12_000, 128, None, "RowStream"),
        ("euclidean", 8192, 40_000, 128, None, "TritonStream"),  # they do not fit
    ],
)
def test_what_runs_without_a_choice(geometry, n, m, width, triton_kernel, expected, monkeypatch) -> None:
    """On a GPU Triton for many logits with a link or narrow vectors, and for those that do not fit; else whole rows."""
    monkeypatch.setattr(_chunks, "default_budget", lambda _: 1 << 30)
    monkeypatch.setattr(ce, "_has_kernels", lambda _: True)
    states, weight = (torch.empty(count, width, device="meta") for count in (n, m))
    problem = Problem(states, torch.empty(n, device="meta"), weight, None, 1.0, geometry_of(geometry), 0)
    assert ce._engine_of(problem, triton_kernel).__name__ == expected
    # only whole rows smooth behind a link
    smoothed = ce._engine_of(replace(problem, smoothing=0.1), triton_kernel)
    assert smoothed.__name__ == ("RowStream" if geometry == "poincare" else expected)


@pytest.mark.slow
@pytest.mark.parametrize("width", [32, 64, 128, 256])
@pytest.mark.xfail(
    tuple(map(int, version("triton").split(".")[:2])) < (3, 8),
    reason="the assembler of older versions spills up to 60 bytes in some kernels",
)
def test_no_register_spills(width: int) -> None:
    """By NVIDIA's assembler, which needs no GPU; every kernel, link and precision."""
    command = [sys.executable, "-m", "tests.losses.spills", "90", str(width)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    lines = done.stdout.splitlines()
    assert len(lines) == 3 + 6 * len(PRECISIONS), done.stderr[-2000:]
    assert not [line for line in lines if not line.endswith(" 0 spilled")]


def test_no_tile_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("tiles were cut")

    monkeypatch.setattr(_chunks, "cut", refused)
    states, targets, weight, _, _ = on_device(9, 100, 8, None)
    exact_cross_entropy(states, targets, weight, None, geometry_of("euclidean"), triton_kernel=True)


@pytest.mark.parametrize(
    ("dtype", "d", "reason"), [(torch.float64, 8, "compute in float32"), (torch.float32, 300, "at most 256 numbers")]
)
def test_what_the_kernels_do_not_serve_is_refused(dtype: torch.dtype, d: int, reason: str) -> None:
    states, targets, weight, _, _ = (t.to(dtype) if t.is_floating_point() else t for t in on_device(4, 30, d, None))
    with refused(ValueError, "triton_kernel=True", reason, "leave it out"):
        exact_cross_entropy(states, targets, weight, None, geometry_of("euclidean"), triton_kernel=True)


def test_without_a_gpu_or_triton_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    states, targets, weight, _, _ = problem(4, 30, 8, None, dtype=torch.float32)
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with refused(ValueError, "CUDA", "ROCm"):
        exact_cross_entropy(states, targets, weight, None, geometry_of("euclidean"), triton_kernel=True)
    monkeypatch.setitem(sys.modules, "triton", None)
    with refused(ValueError, "package", "installed"):
        exact_cross_entropy(states, targets, weight, None, geometry_of("euclidean"), triton_kernel=True)
