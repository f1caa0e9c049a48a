"""Row-wise Adam: torch's SparseAdam on a table, torch's Adam elsewhere and where every row is touched."""

from pathlib import Path

import torch
from torch import nn

from recbole_hyper import run
from recbole_hyper.training.optim import RowwiseAdam
from tests.conftest import LEARN


def gradients(steps: int, touched: float) -> list[torch.Tensor]:
    torch.manual_seed(3)
    return [torch.randn(40, 3) * (torch.rand(40, 1) < touched) for _ in range(steps)]


def train(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, given: list[torch.Tensor]) -> torch.Tensor:
    for gradient in given:
        parameter.grad = gradient
        optimizer.step()
    return parameter.detach()


def start() -> nn.Parameter:
    torch.manual_seed(1)
    return nn.Parameter(torch.randn(40, 3))


def test_a_table_moves_as_under_sparse_adam() -> None:
    given = gradients(12, 0.3)
    own, other = start(), start()
    moved = train(RowwiseAdam([own], [own], lr=0.05, betas=(0.8, 0.95)), own, given)
    expected = train(
        torch.optim.SparseAdam([other], lr=0.05, betas=(0.8, 0.95)), other, [g.to_sparse(1) for g in given]
    )
    torch.testing.assert_close(moved, expected)


def test_it_equals_adam_for_full_gradients_and_other_parameters() -> None:
    for given, tables in ((gradients(12, 1.1), True), (gradients(12, 0.3), False)):
        own, other = start(), start()
        moved = train(RowwiseAdam([own], [own] if tables else [], lr=0.05), own, given)
        torch.testing.assert_close(moved, train(torch.optim.Adam([other], lr=0.05), other, given))


def test_rows_without_gradient_stay_and_the_gradient_is_kept() -> None:
    own = start()
    before = own.detach().clone()
    given = gradients(1, 0.3)
    moved = train(RowwiseAdam([own], [own]), own, given)
    touched = given[0].any(1)
    assert torch.equal(moved[~touched], before[~touched])
    assert not (moved[touched] == before[touched]).any()
    assert own.grad is given[0]


def test_a_run_learns_and_resumes(walk: Path, tmp_path: Path) -> None:
    keys = {**LEARN, "data_path": str(walk), "rowwise_update": True, "n_negatives": 8, "checkpoint_step": 1}
    whole = run("SASRecBCEPlus", "walk", config_dict={**keys, "output_dir": str(tmp_path / "whole")})
    run("SASRecBCEPlus", "walk", config_dict={**keys, "epochs": 5, "output_dir": str(tmp_path / "parts")})
    parts = run("SASRecBCEPlus", "walk", config_dict={**keys, "resume": True, "output_dir": str(tmp_path / "parts")})
    assert parts["test"] == whole["test"]
    assert whole["test"]["hit@1"] > 0.7
