"""The sampled losses against loops over rows and items, values and all gradients, both geometries."""

from __future__ import annotations

import math
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from recbole_hyper import registry
from recbole_hyper.data.negatives import NegativeSampler
from recbole_hyper.geometry import _gather
from recbole_hyper.geometry import head as head_module
from recbole_hyper.geometry.cosine import Cosine
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.losses import _pairs, rece, sce
from recbole_hyper.losses._pairs import groups_of_sets
from recbole_hyper.losses.gbce import calibration
from recbole_hyper.losses.sampled_ce import sampled_cross_entropy
from tests.reference import losses as reference
from tests.reference.poincare import search_vectors as reference_search_vectors

GEOMETRIES = ["cosine", "euclidean", "poincare"]
LOSSES = ["bce", "bce_plus", "gbce", "sampled_ce", "sce", "rece"]


def problem(
    geometry: str, n: int = 12, n_items: int = 30, d: int = 4, dtype: torch.dtype = torch.float64, size: float = 1.0
) -> tuple[Tensor, Tensor, OutputHead]:
    generator = torch.Generator().manual_seed(n + n_items + d)
    states = (size * torch.randn(n, d, generator=generator, dtype=torch.float64)).to(dtype).requires_grad_()
    weight = nn.Parameter(torch.randn(n_items, d, generator=generator, dtype=torch.float64).to(dtype))
    offset = nn.Parameter(0.3 * torch.randn(n_items, generator=generator, dtype=torch.float64).to(dtype))
    curvature = torch.tensor(0.4, dtype=dtype, requires_grad=geometry == "poincare")
    head = OutputHead(registry.resolve("geometry", geometry)(), weight, offset=offset, curvature=curvature)
    return states, torch.randint(1, n_items, (n,), generator=generator), head


def assert_same(found: Tensor, expected: Tensor, states: Tensor, head: OutputHead, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    leaves = [states, head.weight, head.offset] + ([head.curvature] if head.geometry.curved else [])
    for a, b in zip(torch.autograd.grad(found, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


class Given:
    """Negatives from a table: what a loss asks for is what a test wrote."""

    def __init__(self, table: Tensor, rows: Tensor | None = None) -> None:
        self.table, self.rows, self.asked = table, rows, {}

    def per_position(self, k: int, *, exclude_seen: bool = True, replacement: bool = True) -> Tensor:
        self.asked = {"k": k, "exclude_seen": exclude_seen, "replacement": replacement}
        return self.table

    def per_sequence(self, k: int, *, exclude_seen: bool = True, replacement: bool = True) -> tuple[Tensor, Tensor]:
        self.asked = {"k": k, "exclude_seen": exclude_seen, "replacement": replacement}
        assert self.rows is not None
        return self.table, self.rows


@pytest.fixture(params=[1 << 20, 40], ids=["one piece", "many pieces"])
def _pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the problem into one piece and into pieces of about one row: the result may not change."""
    monkeypatch.setattr(_gather, "PIECE", request.param)
    monkeypatch.setattr(_gather, "LOGITS", request.param)


@pytest.fixture(params=[0, 32], ids=["gathered", "all items"])
def _ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Score the candidates alone, or all items of which they are picked: the result may not change."""
    monkeypatch.setattr(head_module, "_ALL_PER_CANDIDATE", request.param)


def with_duplicates(targets: Tensor, n_items: int, k: int) -> Tensor:
    generator = torch.Generator().manual_seed(k)
    table = torch.randint(1, n_items, (len(targets), k), generator=generator)
    table = torch.where(table == targets[:, None], table % (n_items - 1) + 1, table)
    if k > 1:
        table[:, 1] = table[:, 0]
    return table


@pytest.mark.usefixtures("_pieces", "_ways")
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("size", [1.0, 80.0])
def test_binary_losses(geometry: str, k: int, size: float) -> None:
    states, targets, head = problem(geometry, size=size)
    table = with_duplicates(targets, head.n_items, k)
    scores = head.logits(states)
    negatives = Given(table)
    loss = registry.resolve("losses", "bce")(n_negatives=k)
    expected = reference.binary_cross_entropy(scores, targets.tolist(), table.tolist()).mean()
    assert_same(loss(states, targets, head, negatives), expected, states, head)
    assert negatives.asked == {"k": k, "exclude_seen": True, "replacement": True}
    scores = head.logits(states)
    loss = registry.resolve("losses", "bce_plus")(n_negatives=k)
    expected = reference.binary_cross_entropy_plus(scores, targets.tolist(), table.tolist(), 1.0).mean()
    assert_same(loss(states, targets, head, negatives), expected, states, head)
    assert negatives.asked == {"k": k, "exclude_seen": True, "replacement": False}
    for t in (0.0, 0.75, 1.0):
        alpha = k / (head.n_items - 2)
        beta = alpha * (t * (1 - 1 / alpha) + 1 / alpha)
        scores = head.logits(states)
        expected = reference.binary_cross_entropy_plus(scores, targets.tolist(), table.tolist(), beta).mean()
        loss = registry.resolve("losses", "gbce")(n_negatives=k, t=t)
        assert_same(loss(states, targets, head, negatives), expected, states, head)
        assert negatives.asked == {"k": k, "exclude_seen": False, "replacement": True}


def test_calibration() -> None:
    assert calibration(256, 3417, 0.0) == 1
    assert calibration(256, 3417, 1.0) == pytest.approx(256 / 3416)
    assert calibration(10_000, 100, 1.0) == 1  # more draws than items: nothing left to calibrate


def test_gbce_without_calibration_is_bce_plus() -> None:
    states, targets, head = problem("poincare")
    negatives = Given(with_duplicates(targets, head.n_items, 6))
    gbce = registry.resolve("losses", "gbce")(n_negatives=6, t=0.0)(states, targets, head, negatives)
    plus = registry.resolve("losses", "bce_plus")(n_negatives=6)(states, targets, head, negatives)
    assert_same(gbce, plus, states, head)


def test_gbce_is_the_power_of_the_sigmoid() -> None:
    """beta softplus(-s) equals the code's way, s' = -log(sigma(s)^-beta - 1) under plain BCE, where that is finite."""
    states, targets, head = problem("euclidean")
    negatives = Given(with_duplicates(targets, head.n_items, 3))
    loss = registry.resolve("losses", "gbce")(n_negatives=3, t=0.75)(states, targets, head, negatives)
    # the flat logits and beta written out: 29 items, 3 draws
    scores = states @ head.weight.T + head.offset
    positive, negative = scores.gather(1, targets[:, None])[:, 0], scores.gather(1, negatives.table)
    beta = 1 - 0.75 * (1 - 3 / 28)
    transformed = -torch.log(torch.sigmoid(positive) ** -beta - 1)
    logits = torch.cat((transformed[:, None], negative), dim=1)
    labels = torch.zeros_like(logits)
    labels[:, 0] = 1
    torch.testing.assert_close(loss, nn.functional.binary_cross_entropy_with_logits(logits, labels))


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("size", [1.0, 80.0])
def test_sampled_ce(geometry: str, size: float) -> None:
    """Sets shared by a sequence, with duplicates and with targets of its own rows among them."""
    states, targets, head = problem(geometry, size=size)
    rows = torch.tensor([2, 0, 0, 2, 2, 1, 0, 2, 2, 2, 0, 0])
    table = torch.randint(1, head.n_items, (4, 7), generator=torch.Generator().manual_seed(0))
    table[2, :2] = targets[0]
    scores = head.logits(states)
    expected = reference.sampled_cross_entropy(scores, targets.tolist(), table[rows].tolist()).mean()
    loss = registry.resolve("losses", "sampled_ce")(n_negatives=7)
    negatives = Given(table, rows)
    assert_same(loss(states, targets, head, negatives), expected, states, head)
    assert negatives.asked == {"k": 7, "exclude_seen": True, "replacement": False}


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 60), st.integers(1, 4), st.randoms())
def test_groups_hold_each_row_once_with_its_own_set(sets: list[int], room: int, width: int, random: Random) -> None:
    items = torch.arange(15).view(5, 3)
    rows = random.sample(range(100), len(sets))
    targets = torch.arange(100) * 7
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_gather, "LOGITS", room)
        order, groups = groups_of_sets(torch.tensor(rows), torch.tensor(sets), items, targets, width)
    found = []
    for group in groups:
        n, a = group.rows.shape
        assert n * 3 * max(a, width) <= max(room, 3 * width) or (n, a) == (1, 1)
        torch.testing.assert_close(group.targets, 7 * group.rows)
        real = torch.zeros(n * a, dtype=torch.bool).index_fill_(0, group.chosen, True).view(n, a)
        for own, counts, candidates in zip(group.rows, real, group.items, strict=True):
            found += [(int(row), candidates.tolist()) for row in own[counts]]
    assert [row for row, _ in found] == order.tolist()
    assert sorted(found) == sorted((row, items[number].tolist()) for row, number in zip(rows, sets, strict=True))


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_sampled_ce_over_the_full_catalogue_is_ce(geometry: str) -> None:
    states, targets, head = problem(geometry)
    table = torch.arange(1, head.n_items)[None]
    found = sampled_cross_entropy(states, targets, head, table, torch.zeros_like(targets))
    exact = registry.resolve("losses", "ce")()(states, targets, head)
    assert_same(found, exact, states, head)
    drawn = registry.resolve("losses", "sampled_ce")(n_negatives=head.n_items - 1)(states, targets, head)
    torch.testing.assert_close(drawn, exact)


def search_vectors(states: Tensor, head: OutputHead) -> tuple[Tensor, Tensor]:
    curvature = float(head.curvature.detach()) if head.geometry.curved else None
    given, weight = states.detach(), head.weight.detach()
    if isinstance(head.geometry, Cosine):  # a dot product of what has length 1 / temperature and 1
        given = given / given.norm(dim=1, keepdim=True) / head.geometry.temperature
        weight = weight / weight.norm(dim=1, keepdim=True)
    rows, items = reference_search_vectors(given, weight, head.offset.detach(), curvature)
    return torch.tensor(rows, dtype=torch.float64), torch.tensor(items, dtype=torch.float64)


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("mix", [True, False])
@pytest.mark.parametrize(
    ("n_buckets", "size_x", "size_y"),
    # few buckets: states in none; many: states in several; more rows than there are; all items
    [(1, 2, 3), (9, 6, 11), (4, 50, 8), (3, 5, 29)],
)
def test_sce(
    geometry: str, mix: bool, n_buckets: int, size_x: int, size_y: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pairs, "SEARCH_BLOCK", 7)
    states, targets, head = problem(geometry)
    rows, items = search_vectors(states, head)
    generator = torch.Generator().manual_seed(5)
    columns = len(states) if mix else rows.shape[1]
    directions = torch.randn(n_buckets, columns, generator=generator, dtype=torch.float64)
    directions = directions @ rows if mix else directions
    found, statistics = sce.scalable_cross_entropy(
        states,
        targets,
        head,
        n_buckets=n_buckets,
        bucket_size_x=size_x,
        bucket_size_y=size_y,
        mix=mix,
        generator=generator.manual_seed(5),
    )
    expected, shares = reference.scalable_cross_entropy(
        head.logits(states), targets.tolist(), rows.tolist(), items.tolist(), directions.tolist(), size_x, size_y, 0
    )
    assert statistics == pytest.approx(shares, abs=1e-6)
    if (n_buckets, size_x) == (1, 2):
        assert statistics["selected"] == pytest.approx(2 / 12)
    if n_buckets == 9:
        assert statistics["selected_once"] < statistics["selected"]
        assert 0 < statistics["positives_found"] < 1
    assert_same(found, expected, states, head)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_sce_in_one_bucket_of_everything_is_ce(geometry: str) -> None:
    states, targets, head = problem(geometry)
    loss = registry.resolve("losses", "sce")(n_buckets=1, bucket_size_x=12, bucket_size_y=head.n_items - 1)
    exact = registry.resolve("losses", "ce")()(states, targets, head)
    assert_same(loss(states, targets, head), exact, states, head)
    assert loss.statistics == {"selected": 1, "selected_once": 1, "positives_found": 1}


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("size_x", [1, 12])
@pytest.mark.parametrize("where", ["state", "item"])
def test_sce_does_not_hide_a_nan(geometry: str, size_x: int, where: str) -> None:
    """A NaN state, in a bucket or in none, and a NaN item among the candidates make the loss NaN."""
    states, targets, head = problem(geometry)
    with torch.no_grad():
        (states[7] if where == "state" else head.weight[int(targets[7])]).fill_(float("nan"))
    loss, _ = sce.scalable_cross_entropy(
        states, targets, head, n_buckets=2, bucket_size_x=size_x, bucket_size_y=head.n_items - 1
    )
    assert torch.isnan(loss)


def test_sce_sizes_follow_the_paper() -> None:
    loss = sce.ScalableCrossEntropy(alpha=2.0, beta=4.0)
    n_buckets, size = loss.sizes(10_000)
    assert (n_buckets, size) == (100, 400)
    assert size / n_buckets == 4
    assert sce.ScalableCrossEntropy(n_buckets=7, bucket_size_x=500).sizes(100) == (7, 100)


def test_sce_scaling_the_directions_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    states, targets, head = problem("poincare")
    losses = []
    for factor in (1.0, 1000.0):
        original = torch.randn
        monkeypatch.setattr(torch, "randn", lambda *a, f=factor, o=original, **k: f * o(*a, **k))
        generator = torch.Generator().manual_seed(1)
        options = {"n_buckets": 3, "bucket_size_x": 4, "bucket_size_y": 5, "mix": True, "generator": generator}
        losses.append(sce.scalable_cross_entropy(states, targets, head, **options)[0])
        monkeypatch.undo()
    torch.testing.assert_close(losses[0], losses[1])


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize(
    ("n_buckets", "per_chunk", "extra", "rounds"),
    [(4, 1, 1, 3), (6, 2, 0, 2), (20, 1, 2, 4), (1, 1, 0, 2), (3, 1, 9, 1)],
)
def test_rece(geometry: str, n_buckets: int, per_chunk: int, extra: int, rounds: int) -> None:
    states, targets, head = problem(geometry)
    rows, items = search_vectors(states, head)
    generator = torch.Generator().manual_seed(3)
    projections = []
    for _ in range(rounds):
        directions = torch.randn(n_buckets, rows.shape[1], generator=generator, dtype=torch.float64)
        projections.append(((rows @ directions.t()).tolist(), (items @ directions.t()).tolist()))
    expected = reference.reduced_cross_entropy(
        head.logits(states), targets.tolist(), projections, n_buckets, per_chunk, extra, 0
    )
    found = rece.reduced_cross_entropy(
        states,
        targets,
        head,
        n_buckets=n_buckets,
        buckets_per_chunk=per_chunk,
        n_extra_chunks=extra,
        rounds=rounds,
        generator=generator.manual_seed(3),
    )
    assert_same(found, expected, states, head, 1e-6)
    if n_buckets == 1:
        exact = registry.resolve("losses", "ce")()(states, targets, head)
        assert_same(rece.reduced_cross_entropy(states, targets, head, n_buckets=1, rounds=2), exact, states, head, 1e-6)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_every_loss_alone_with_a_user_sampler_and_under_autocast(name: str, geometry: str) -> None:
    """Draws by itself and from a sampler, seeded; half precision states; padding gets no gradient."""
    states, targets, head = problem(geometry, dtype=torch.float32)
    with torch.no_grad():
        head.weight[0] = 100.0
    options = {"bucket_size_y": 9} if name == "sce" else {"n_negatives": 4} if name != "rece" else {"rounds": 2}
    loss = registry.resolve("losses", name)(**options)
    offsets = torch.tensor([0, 6, 12])
    sampler = NegativeSampler(head.n_items, offsets, targets)
    bound = sampler.bind([0, 1], torch.arange(12) // 6, targets)
    for negatives in (None, bound):
        values = []
        for _ in range(2):
            torch.manual_seed(3)
            values.append(loss(states, targets, head, negatives))
        assert values[0] == values[1]
        assert values[0].shape == ()
        gradient = torch.autograd.grad(values[0], [states, head.weight])
        assert all(torch.isfinite(g).all() for g in gradient)
        assert gradient[1][0].abs().max() == 0
        assert gradient[1][targets].abs().sum(1).min() > 0
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.manual_seed(3)
            half = loss(states.bfloat16(), targets, head, negatives)
        assert half.dtype == torch.float32
        assert math.isfinite(half)
    assert loss.uses_negatives == (name in ("bce", "bce_plus", "gbce", "sampled_ce"))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bce", {"n_negatives": 0}, "n_negatives must be at least 1, got 0"),
        ("bce_plus", {"n_negatives": 0}, "n_negatives must be at least 1"),
        ("gbce", {"n_negatives": 0}, "n_negatives must be at least 1"),
        ("sampled_ce", {"n_negatives": -1}, "n_negatives must be at least 1"),
        ("gbce", {"t": 1.2}, r"gbce_t must lie in \[0, 1\].*got 1.2"),
        ("gbce", {"t": -0.1}, "gbce_t must lie"),
        ("sce", {"bucket_size_y": 0}, "sce_bucket_size_y must be at least 1"),
        ("sce", {"n_buckets": 0}, "sce_n_buckets must be at least 1"),
        ("sce", {"n_buckets": 2.5}, "sce_n_buckets must be a whole number, got 2.5"),
        ("sce", {"bucket_size_x": 3.0}, "sce_bucket_size_x must be a whole number, got 3.0"),
        ("sce", {"bucket_size_y": True}, "sce_bucket_size_y must be a whole number, got True"),
        ("rece", {"n_buckets": 2.5}, "rece_n_buckets must be a whole number, got 2.5"),
        ("sce", {"alpha": 0.0}, "sce_alpha must be above 0"),
        ("rece", {"rounds": 0}, "rece_rounds must be at least 1"),
        ("rece", {"n_extra_chunks": -1}, "rece_n_extra_chunks must be at least 0"),
        ("rece", {"n_buckets": 5, "buckets_per_chunk": 2}, "must divide"),
        ("cse", {}, r"losses: 'cse' is unknown; known: bce, .*sce"),
    ],
)
def test_bad_settings_fail_before_any_data(name: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        registry.resolve("losses", name)(**options)


def test_settings_that_the_catalogue_cannot_hold() -> None:
    states, targets, head = problem("euclidean")
    with pytest.raises(ValueError, match="sce_bucket_size_y=30 exceeds the 29 items"):
        registry.resolve("losses", "sce")(bucket_size_y=30)(states, targets, head)
    with pytest.raises(ValueError, match="30 distinct negatives are asked for, but there are 29 items"):
        registry.resolve("losses", "sampled_ce")(n_negatives=30)(states, targets, head)
