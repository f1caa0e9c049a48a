"""Label smoothing of the exact cross-entropy: torch over full logits however it is cut, a run; test_ce has its loop."""

from pathlib import Path

import pytest
import torch

from recbole_hyper import run
from recbole_hyper.config import ConfigError
from recbole_hyper.functional import cross_entropy
from recbole_hyper.losses import _chunks, ce
from recbole_hyper.losses._chunks import Tiles
from recbole_hyper.losses.ce import CrossEntropy
from tests.conftest import LEARN
from tests.losses.test_ce import AGAIN, GEOMETRIES, full, gradients, problem
from tests.raising import refused


# one pass over one tile, over many, and two passes
@pytest.mark.parametrize("tiles", [Tiles(252, 507, True, 0), Tiles(50, 120, True, 0), Tiles(40, 90, False, 0)])
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_torch_however_it_is_cut(dtype, offset, geometry, tiles, monkeypatch) -> None:
    monkeypatch.setattr(_chunks, "cut", lambda *given, **options: tiles)
    found, wanted = problem(252, 507, 13, 0, offset, dtype), problem(252, 507, 13, 0, offset)
    how = {"geometry": geometry, "label_smoothing": 0.2}
    tolerance = {"rtol": 1e-9, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 3e-4, "atol": 3e-5}
    how |= {"curvature": found[4], "padding_idx": 0}
    losses = full(*wanted, geometry, 0, label_smoothing=0.2, reduction="none")
    row_weights = torch.linspace(-1, 2, 252, dtype=torch.float64)
    for given, theirs in ((None, losses.mean()), (row_weights, losses.dot(row_weights))):
        mine = cross_entropy(*found[:4], row_weights=None if given is None else given.to(dtype), **how)
        torch.testing.assert_close(mine.double(), theirs, **tolerance)
        asked = [leaf for leaf in (wanted[0], *wanted[2:]) if leaf is not None]
        pair = gradients(mine, (found[0], *found[2:])), torch.autograd.grad(theirs, asked, **AGAIN)
        for a, b in zip(*pair, strict=True):
            if b is not None:
                assert float((a.double() - b).norm() / b.norm()) < (1e-9 if dtype == torch.float64 else 5e-4)


def test_states_beyond_the_range_of_float32() -> None:
    """cosh(2 sqrt(c) |F|) is infinite in float32 there; the exponents are taken out."""
    found, wanted = problem(20, 30, 4, 0, True, torch.float32, 60.0), problem(20, 30, 4, 0, True, size=60.0)
    how = {"geometry": "poincare", "padding_idx": 0, "label_smoothing": 0.2}
    mine = cross_entropy(*found[:4], curvature=found[4], row_weights=torch.ones(20), **how)
    theirs = full(*wanted, "poincare", 0, label_smoothing=0.2, reduction="sum")
    torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=1e-4)
    for a, b in zip(gradients(mine, found[2:4]), gradients(theirs, wanted[2:4]), strict=True):
        assert float((a.double() - b).norm() / b.norm()) < 1e-3


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_without_smoothing_nothing_is_done_for_it(geometry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    states, targets, weight, offset, _ = problem(6, 9, 3, 0, dtype=torch.float32)
    smoothed = cross_entropy(states, targets, weight, offset, geometry=geometry, padding_idx=0, label_smoothing=0.1)
    monkeypatch.setattr(ce, "lead_of_targets", lambda *given: pytest.fail("a mean of logits was computed"))
    plain = cross_entropy(states, targets, weight, offset, geometry=geometry, padding_idx=0, label_smoothing=0.0)
    plain.backward()
    assert float(plain) != pytest.approx(float(smoothed))


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_model_learns_with_it_and_is_less_sure(geometry: str, walk: Path, tmp_path: Path) -> None:
    keys = {**LEARN, "data_path": str(walk), "geometry": geometry, "curvature": 0.02, "label_smoothing": 0.3}
    result = run("SASRecCE", "walk", config_dict={**keys, "output_dir": str(tmp_path / "run")})
    assert result["test"]["hit@1"] > 0.7
    assert result["config"]["label_smoothing"] == 0.3


def test_a_share_out_of_range_is_refused(walk: Path, tmp_path: Path) -> None:
    states, targets, weight, *_ = problem(6, 9, 3, 0)
    for share in (1.0, -0.1, float("nan")):
        with refused(ValueError, "label_smoothing=", "[0"):
            cross_entropy(states, targets, weight, label_smoothing=share)
        with refused(ValueError, "label_smoothing"):
            CrossEntropy(label_smoothing=share)
    keys = {**LEARN, "data_path": str(walk), "output_dir": str(tmp_path / "run"), "label_smoothing": 1.0}
    with refused(ConfigError, "label_smoothing=1.0"):
        run("SASRecCE", "walk", config_dict=keys)
