"""A small problem, fixed negatives and comparisons for the tests of sampled losses."""

import torch
from torch import Tensor, nn

from recbole_hyper import registry
from recbole_hyper.geometry.cosine import Cosine
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.losses._chunks import Problem
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
    head = OutputHead(registry.resolve("geometry", geometry)(), weight, offset=offset, theta=curvature)
    return states, torch.randint(1, n_items, (n,), generator=generator), head


def sized(n: int, n_items: int, width: int, budget: int | None = None, *, link: bool = True) -> Problem:
    """Return a problem of these sizes in float32 that takes no memory."""
    states, weight = (torch.empty(1, 1).expand(count, width) for count in (n, n_items))
    geometry = registry.resolve("geometry", "poincare" if link else "euclidean")()
    return Problem(states, torch.empty(1).expand(n), weight, None, 1.0, geometry, 0, budget)


def assert_same(found: Tensor, expected: Tensor, states: Tensor, head: OutputHead, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    leaves = [states, head.weight, head.offset] + ([head.theta] if head.geometry.curved else [])
    for a, b in zip(torch.autograd.grad(found, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


class FixedNegatives:
    """Negatives from a table that the test wrote; records what the loss requested."""

    grid = None

    def __init__(self, table: Tensor, rows: Tensor | None = None) -> None:
        self.table, self.rows, self.requested = table, rows, {}

    def per_position(self, k: int, *, exclude_seen: bool = True, replacement: bool = True) -> Tensor:
        self.requested = {"k": k, "exclude_seen": exclude_seen, "replacement": replacement}
        return self.table

    def per_sequence(self, k: int) -> tuple[Tensor, Tensor]:
        self.requested = {"k": k}
        assert self.rows is not None
        return self.table, self.rows


def with_duplicates(targets: Tensor, n_items: int, k: int) -> Tensor:
    generator = torch.Generator().manual_seed(k)
    table = torch.randint(1, n_items, (len(targets), k), generator=generator)
    table = torch.where(table == targets[:, None], table % (n_items - 1) + 1, table)
    if k > 1:
        table[:, 1] = table[:, 0]
    return table


def search_vectors(states: Tensor, head: OutputHead) -> tuple[Tensor, Tensor]:
    curvature = head.curvature
    given, weight = states.detach(), head.weight.detach()
    if isinstance(head.geometry, Cosine):  # a dot product of what has length 1 / temperature and 1
        given = given / given.norm(dim=1, keepdim=True) / head.geometry.temperature
        weight = weight / weight.norm(dim=1, keepdim=True)
    rows, items = reference_search_vectors(given, weight, head.offset.detach(), curvature)
    return torch.tensor(rows, dtype=torch.float64), torch.tensor(items, dtype=torch.float64)
