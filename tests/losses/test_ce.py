"""The exact cross-entropy against loops, against torch over full logits, and within its budget."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from recbole_hyper import registry
from recbole_hyper.functional import cross_entropy
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.losses import _chunks
from recbole_hyper.losses._chunks import Gradients, Problem
from recbole_hyper.losses._stream import ItemStream
from recbole_hyper.losses.ce import CrossEntropy
from tests.raising import refused
from tests.reference import losses as reference

pytestmark = pytest.mark.usefixtures("kernels")

GEOMETRIES = ["cosine", "euclidean", "poincare"]
AGAIN = {"retain_graph": True, "allow_unused": True}


def problem(
    n: int,
    m: int,
    d: int,
    padding: int | None,
    offset: bool = True,
    dtype: torch.dtype = torch.float64,
    size: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor]:
    generator = torch.Generator().manual_seed(n * m + d)
    states, weight = (torch.randn(k, d, generator=generator, dtype=torch.float64) for k in (n, m))
    offsets = torch.randn(m, generator=generator, dtype=torch.float64) * 0.3 if offset else None
    targets = torch.randint(0, m, (n,), generator=generator)
    if padding is not None:
        targets[targets == padding] = (padding + 1) % m
    leaves = [size * states, weight, offsets, torch.tensor(0.3, dtype=torch.float64)]
    states, weight, offsets, curvature = (None if leaf is None else leaf.to(dtype).requires_grad_() for leaf in leaves)
    return states, targets, weight, offsets, curvature


def full(states, targets, weight, offset, curvature, geometry, padding, **options) -> Tensor:
    """torch's own cross-entropy over all logits at once, but those of the padding."""
    logits = registry.resolve("geometry", geometry)().logits(states, weight, offset, theta=curvature)
    if padding is not None:
        logits = torch.cat([logits[:, :padding], logits[:, padding + 1 :]], 1)
        targets = targets - (targets > padding).long()
    return F.cross_entropy(logits, targets, **options)


def gradients(loss: Tensor, leaves: tuple[Tensor | None, ...], upstream: Tensor | None = None) -> list[Tensor | None]:
    asked = [leaf for leaf in leaves if leaf is not None]
    return list(torch.autograd.grad(loss, asked, upstream, allow_unused=True))


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("padding", [None, 0, 3])
def test_equals_the_loop(geometry: str, padding: int | None, smoothing: float) -> None:
    states, targets, weight, offset, curvature = problem(7, 11, 3, padding)
    scores = registry.resolve("geometry", geometry)().logits(states, weight, offset, theta=curvature)
    expected = (
        reference.smoothed_cross_entropy(scores, targets.tolist(), padding, smoothing)
        if smoothing
        else reference.cross_entropy(scores, targets.tolist(), padding)
    )
    leaves = (states, weight, offset) + ((curvature,) if geometry == "poincare" else ())
    options = {"geometry": geometry, "curvature": curvature, "padding_idx": padding, "label_smoothing": smoothing}
    weights = torch.randn_like(expected).detach()
    for given, wanted in ((None, expected.mean()), (weights, expected.dot(weights))):
        found = cross_entropy(states, targets, weight, offset, row_weights=given, **options)
        torch.testing.assert_close(found, wanted)
        upstream = torch.tensor(1.7, dtype=torch.float64)
        for mine, theirs in zip(
            gradients(found, leaves, upstream),
            torch.autograd.grad(wanted, leaves, upstream, retain_graph=True),
            strict=True,
        ):
            torch.testing.assert_close(mine, theirs)


# budgets: the least that is allowed makes the tiles be computed twice, the next keeps them, None is one chunk
@pytest.mark.parametrize("budget", ["least", "middle", None])
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize(
    ("n", "m", "d", "size"),
    [(252, 507, 13, 1.0), (1, 123, 4, 1.0), (33, 2, 5, 1.0), (40, 300, 8, 60.0), (40, 300, 8, 1e-6)],
)
def test_equals_torch_however_it_is_cut(geometry, offset, n, m, d, size, budget) -> None:
    padding = 0
    states, targets, weight, offsets, curvature = problem(n, m, d, padding, offset, size=size)
    width, arrays, part = d + offset, 2 if geometry == "poincare" else 1, registry.resolve("geometry", geometry)()
    terms = 2 * ({"euclidean": 0, "cosine": 1, "poincare": 2}[geometry] + offset)
    how = {"arrays": arrays, "spare": arrays, "terms": terms}
    least = least_budget(given := (states, targets, weight, offsets, curvature, part, padding), arrays)
    # room for 110 rows of tiles and a block of items is enough to keep the tiles
    enough = least + ((110 * arrays + terms) * m + 2 * m * (width + 110)) * 8
    # the least budget of the larger problems would cut them into a hundred thousand tiles of one number
    more = {252: 1 << 16, 40: 1 << 13}.get(n, 0)
    chosen = {"least": least + more, "middle": enough, None: None}[budget]
    if chosen is not None and n > 100:
        tiles = _chunks.cut(Problem(*given, chosen), **how)
        assert tiles.keep == (budget == "middle")
        assert tiles.rows < n
    leaves = (states, weight, offsets, curvature)
    losses = full(states, targets, weight, offsets, curvature, geometry, padding, reduction="none")
    row_weights = torch.linspace(-1, 2, n, dtype=torch.float64)
    options = {"geometry": geometry, "curvature": curvature, "padding_idx": padding, "memory_budget": chosen}
    for given, theirs in ((None, losses.mean()), (row_weights, losses.dot(row_weights))):
        mine = cross_entropy(states, targets, weight, offsets, row_weights=given, **options)
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)
        expected = torch.autograd.grad(theirs, [leaf for leaf in leaves if leaf is not None], **AGAIN)
        for a, b in zip(gradients(mine, leaves), expected, strict=True):
            assert b is not None or a is None or a.abs().max() == 0  # a flat head ignores the curvature
            if b is not None:
                torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


def least_budget(given: tuple, arrays: int) -> int:
    """Find the smallest budget that is not refused."""
    low, high = 1, 1 << 32
    while low < high:
        middle = (low + high) // 2
        try:
            Problem(*given, middle).bounded(arrays)
            high = middle
        except ValueError:
            low = middle + 1
    return low


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("size", [0.3, 3.0, 12.0])
def test_float32_error_is_that_of_torch(geometry: str, size: float) -> None:
    """Three ways: ours in float32 is as near to float64 as torch's full logits in float32 are."""
    exact = problem(200, 700, 16, 0, size=size)
    truth = full(*exact, geometry, 0)
    true_gradients = gradients(truth, (exact[0], *exact[2:]))
    errors = []
    for ours in (True, False):
        single = problem(200, 700, 16, 0, size=size, dtype=torch.float32)
        options = {"geometry": geometry, "curvature": single[4], "padding_idx": 0}
        loss = cross_entropy(*single[:4], **options) if ours else full(*single, geometry, 0)
        found = [loss, *gradients(loss, (single[0], *single[2:]))]
        errors.append(
            [
                0.0 if b is None else float((a.double() - b).detach().norm() / b.detach().norm())
                for a, b in zip(found, [truth, *true_gradients], strict=True)
            ]
        )
    for index, (mine, theirs) in enumerate(zip(*errors, strict=True)):
        # the curvature's gradient is one sum of large terms that cancel, over all rows and items
        assert mine <= 1.5 * theirs + (3e-4 if index == 4 else 3e-6), errors


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_only_the_gradients_that_are_asked_for(geometry: str, label_smoothing: float) -> None:
    for frozen in range(4):
        leaves = list(problem(6, 9, 3, 0))
        targets = leaves.pop(1)
        leaves[frozen].requires_grad_(False)
        states, weight, offset, curvature = leaves
        how = {"geometry": geometry, "curvature": curvature, "label_smoothing": label_smoothing}
        cross_entropy(states, targets, weight, offset, padding_idx=0, **how).backward()
        expected = full(states, targets, weight, offset, padding=0, **how)
        asked = [leaf for leaf in leaves if leaf.requires_grad]
        for leaf, wanted in zip(asked, torch.autograd.grad(expected, asked, allow_unused=True), strict=True):
            torch.testing.assert_close(leaf.grad, torch.zeros_like(leaf) if wanted is None else wanted)
        assert leaves[frozen].grad is None


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_no_gradient_is_made_where_none_is_recorded(geometry, context, monkeypatch) -> None:
    states, targets, weight, offset, curvature = problem(6, 9, 3, 0)
    options = {"geometry": geometry, "curvature": curvature, "padding_idx": 0}
    expected = cross_entropy(states, targets, weight, offset, **options).detach()

    def refuse(stream: ItemStream) -> None:
        raise AssertionError("a gradient was allocated")

    monkeypatch.setattr(ItemStream, "_allocate_gradients", refuse)
    with context():
        value = cross_entropy(states, targets, weight, offset, **options)
    assert not value.requires_grad
    torch.testing.assert_close(value, expected, rtol=0, atol=0)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_loss_scale_keeps_half_precision_gradients_from_underflow(geometry: str) -> None:
    """Gradients of a few 1e-8 are below the least float16, times the scale they are not."""
    states, targets, weight, _, _ = problem(200, 5, 2, 0, dtype=torch.float32)
    weight, half = weight.detach() * 1e-5, states.detach().half().requires_grad_()
    weight.requires_grad_()
    options = {"geometry": geometry, "curvature": 0.3, "padding_idx": 0}
    (scaled,) = torch.autograd.grad(cross_entropy(half, targets, weight, **options) * 2.0**16, half)
    assert scaled.dtype == torch.float16
    (expected,) = torch.autograd.grad(cross_entropy(half.float(), targets, weight, **options) * 2.0**16, half)
    torch.testing.assert_close(scaled, expected, rtol=2e-3, atol=1e-6)
    assert expected.float().abs().max() > 1e-4


def test_the_weights_gradient_is_handed_over_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    states, targets, weight, *_ = problem(6, 9, 3, None, dtype=torch.float32)
    made = []
    run = ItemStream.run

    def record(*given) -> tuple[Tensor, Gradients]:
        losses, gradients = run(*given)
        made.append(gradients.weight)
        return losses, gradients

    monkeypatch.setattr(ItemStream, "run", record)
    (gradient,) = torch.autograd.grad(cross_entropy(states, targets, weight), weight)
    assert gradient.data_ptr() == made[0].data_ptr()


@pytest.mark.parametrize(("geometry", "smoothing"), [("euclidean", 0.0), *((name, 0.5) for name in GEOMETRIES)])
def test_padding_is_no_item(geometry: str, smoothing: float) -> None:
    """It is never scored, and no share of smoothed labels is spread over it."""
    states, targets, weight, offset, _ = problem(6, 9, 3, 0)
    with torch.no_grad():
        weight[0] = 1e3 if smoothing == 0 else 7.0
    how = {"geometry": geometry, "label_smoothing": smoothing}
    loss = cross_entropy(states, targets, weight, offset, padding_idx=0, **how)
    loss.backward()
    assert weight.grad[0].abs().max() == offset.grad[0] == 0
    torch.testing.assert_close(loss, cross_entropy(states, targets - 1, weight[1:], offset[1:], **how))


def test_extreme_logits_stay_finite() -> None:
    states = torch.tensor([[1e4, 0.0], [-1e4, 0.0], [0.0, 0.0]], requires_grad=True)
    weight = torch.tensor([[0.0, 0.0], [1e4, 0.0], [-1e4, 0.0], [0.0, 0.0]], requires_grad=True)
    targets = torch.tensor([1, 1, 3])
    for geometry in GEOMETRIES:
        how = {"geometry": geometry, "curvature": 1e-6, "padding_idx": 0}
        assert cross_entropy(states[:1], targets[:1], weight, **how) == 0
        loss = cross_entropy(states, targets, weight, **how)
        assert torch.isfinite(loss)
        for gradient in torch.autograd.grad(loss, (states, weight)):
            assert torch.isfinite(gradient).all()


def test_nan_is_not_hidden() -> None:
    states, targets, weight, offset, _ = problem(6, 9, 3, 0, dtype=torch.float32)
    with torch.no_grad():
        weight[4, 1] = float("nan")
    for geometry in GEOMETRIES:
        assert torch.isnan(cross_entropy(states, targets, weight, offset, geometry=geometry, padding_idx=0))


class LargestTensor(TorchDispatchMode):
    """Notes the largest storage that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self.bytes = max(self.bytes, leaf.untyped_storage().nbytes())
        return out


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_nothing_outgrows_the_budget(geometry: str, smoothing: float) -> None:
    """500 x 10,000 logits are 20 MB; under a budget of 2 MB nothing over 2 MB is made but the item gradient."""
    states, targets, weight, offset, curvature = problem(500, 10_000, 4, 0, dtype=torch.float32)
    how = {"geometry": geometry, "curvature": curvature, "padding_idx": 0, "label_smoothing": smoothing}
    with LargestTensor() as largest:
        cross_entropy(states, targets, weight, offset, memory_budget=2 << 20, **how).backward()
    assert largest.bytes <= 2 << 20
    with LargestTensor() as largest:
        full(states, targets, weight, offset, curvature, geometry, 0)
    assert largest.bytes == 20_000_000


def test_second_backward_is_refused_not_wrong() -> None:
    states, targets, weight, *_ = problem(6, 9, 3, 0)
    loss = cross_entropy(states, targets, weight)
    loss.backward(retain_graph=True)
    with refused(RuntimeError, "one backward"):
        loss.backward()


def test_autocast_changes_nothing() -> None:
    states, targets, weight, offset, _ = problem(6, 9, 3, 0, dtype=torch.float32)
    for geometry in GEOMETRIES:
        expected = cross_entropy(states, targets, weight, offset, geometry=geometry, padding_idx=0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = cross_entropy(states, targets, weight, offset, geometry=geometry, padding_idx=0)
            half = cross_entropy(states.bfloat16(), targets, weight, offset, geometry=geometry, padding_idx=0)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        torch.testing.assert_close(half, expected, rtol=2e-2, atol=0)
        assert half.dtype == torch.float32


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_module_is_the_function(geometry: str, smoothing: float) -> None:
    states, targets, weight, _, _ = problem(6, 9, 3, 0, dtype=torch.float32)
    head = OutputHead(registry.resolve("geometry", geometry)(), torch.nn.Parameter(weight.detach()), offset=True)
    loss = CrossEntropy(memory_budget=10_000, label_smoothing=smoothing)(states, targets, head)
    expected = cross_entropy(states, targets, weight, geometry=geometry, padding_idx=0, label_smoothing=smoothing)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert head.weight.grad is not None
    assert head.offset.grad is not None


def test_budget_under_a_row_is_one_clear_error() -> None:
    states, targets, weight, *_ = problem(6, 900, 3, 0)
    with refused(ValueError, "memory_budget=5000", "900", "7200"):
        cross_entropy(states, targets, weight, memory_budget=5000)
    with refused(ValueError, "memory_budget"):
        cross_entropy(states, targets, weight, memory_budget=0)


def test_a_step_whose_lifts_exceed_the_default_equals_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_chunks, "default_budget", lambda device: 10_000)
    states, targets, weight, offset, _ = problem(40, 70, 13, 0)
    with refused(ValueError, "lifts", "states"):
        cross_entropy(states, targets, weight, offset, geometry="poincare", padding_idx=0, memory_budget=10_000)
    loss = cross_entropy(states, targets, weight, offset, geometry="poincare", padding_idx=0)
    torch.testing.assert_close(loss, full(states, targets, weight, offset, 1.0, "poincare", 0))
