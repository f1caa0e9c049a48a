"""The item-to-item memory: its mixture and its training against loops, gradients, and a model that has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recbole_hyper import load, run
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.data.dataset import SequenceDataset
from recbole_hyper.data.pair_counts import pair_counts
from recbole_hyper.models import item_memory
from recbole_hyper.models.item_memory import ItemMemory, own_counts
from recbole_hyper.models.memory import newest_first
from recbole_hyper.protocols.base import make_split
from recbole_hyper.serving.export import export
from recbole_hyper.training.build import build
from tests.conftest import LEARN, SMALL
from tests.data.test_pair_counts import store_of
from tests.reference import memory as reference

N_ITEMS, WINDOW, WIDTH = 8, 3, 4
ROWS = [[1, 2, 3, 4], [2, 1, 5], [3, 2, 1, 2, 6], [4, 5, 6, 1], [5, 2], [7, 1, 2]]


def memory_of(rows: list[list[int]], dtype: torch.dtype = torch.float64) -> ItemMemory:
    """Return a memory of these rows whose parameters are drawn."""
    store = store_of(rows, N_ITEMS)
    counts, totals = pair_counts(store, store.lengths, window=WINDOW, neighbours=N_ITEMS)
    memory = ItemMemory(counts, torch.from_numpy(totals), window=WINDOW, width=WIDTH)
    for parameter in memory.parameters():
        torch.nn.init.normal_(parameter)
    return memory.to(dtype)


def expected_mixture(memory: ItemMemory, rows: list[list[int]], state: Tensor, recent: list[int], logits: Tensor):
    """Return p of every item after ``recent`` items, newest first, by loops."""
    network = torch.cat((torch.zeros(1).double(), logits[1:].double().softmax(0))).tolist()
    matrix = reference.counts(rows, N_ITEMS, WINDOW)
    with torch.no_grad():
        gate, age, evidence = memory.gate(state).item(), memory.age.tolist(), memory.evidence.item()
    return reference.mixture(network, recent, matrix, gate, age, evidence)


def test_the_mixture_equals_the_loop() -> None:
    memory = memory_of(ROWS)
    states, logits = torch.randn(4, WIDTH).double(), torch.randn(4, N_ITEMS).double()
    histories = [[2, 1], [6, 2, 1], [7], [3, 4, 5]]
    items = torch.tensor([row + [0] * (WINDOW - len(row)) for row in histories])
    found = memory.log_mixture(states, items, logits.clone()).exp()
    for row, recent in enumerate(histories):
        expected = expected_mixture(memory, ROWS, states[row], recent, logits[row])
        np.testing.assert_allclose(found[row].numpy(), expected, rtol=1e-5, atol=1e-9)
    torch.testing.assert_close(found.sum(1), torch.ones(4).double(), rtol=1e-5, atol=0)


def windows_of(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Return right-padded items and targets, in which each row is a window as a whole."""
    width = max(map(len, rows)) - 1
    items, targets = torch.zeros(2, len(rows), width, dtype=torch.int64)
    for number, row in enumerate(rows):
        items[number, : len(row) - 1] = torch.tensor(row[:-1])
        targets[number, : len(row) - 1] = torch.tensor(row[1:])
    return items, targets


@pytest.mark.parametrize("compared", [1, 1 << 20])
def test_training_asks_the_memory_of_all_other_sequences(compared: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of each target is that of a memory which was counted without the target's own sequence."""
    monkeypatch.setattr(item_memory, "_COMPARED", compared)
    memory = memory_of(ROWS)
    items, targets = windows_of(ROWS)
    rows, columns = targets.nonzero(as_tuple=True)
    states, logits = torch.randn(len(rows), WIDTH).double(), torch.randn(len(rows), N_ITEMS).double()
    answers = targets[rows, columns]
    network = torch.nn.functional.cross_entropy(logits[:, 1:], answers - 1, reduction="none")
    found = memory.losses(states, network, items, targets)
    for place, (row, column) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        others = ROWS[:row] + ROWS[row + 1 :]
        recent = ROWS[row][: column + 1][::-1][:WINDOW]
        expected = expected_mixture(memory, others, states[place], recent, logits[place])
        assert found[place].item() == pytest.approx(-np.log(expected[int(answers[place])]), rel=1e-5)


@given(rows=st.lists(st.lists(st.integers(1, 5), min_size=2, max_size=7), min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_own_counts_equal_the_loop(rows: list[list[int]]) -> None:
    width = max(map(len, rows))
    sequences = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    cells = [(row, a, b) for row, items in enumerate(rows) for a in range(len(items)) for b in range(len(items))]
    at, here, there = torch.tensor(cells).T
    pairs, sums = own_counts(sequences, WINDOW, at, here, there.unsqueeze(1))
    for place, (row, a, b) in enumerate(cells):
        matrix = reference.counts([rows[row]], 6, WINDOW)
        assert float(pairs[place, 0]) == pytest.approx(matrix[rows[row][b]][rows[row][a]], rel=1e-6)
        assert float(sums[place, 0]) == pytest.approx(sum(matrix[rows[row][b]]), rel=1e-6)


def test_gradients() -> None:
    memory = memory_of(ROWS)
    items, targets = windows_of(ROWS)
    n = int((targets > 0).sum())
    states, network = torch.randn(n, WIDTH).double().requires_grad_(), torch.rand(n).double().requires_grad_()
    names = [name for name, _ in memory.named_parameters()]
    leaves = [parameter.detach().clone().requires_grad_() for parameter in memory.parameters()]

    def losses(states: Tensor, network: Tensor, *parameters: Tensor) -> Tensor:
        named = {f"memory.{name}": value for name, value in zip(names, parameters, strict=True)}
        return torch.func.functional_call(_Losses(memory), named, (states, network, items, targets))

    assert torch.autograd.gradcheck(losses, (states, network, *leaves))


class _Losses(torch.nn.Module):
    def __init__(self, memory: ItemMemory) -> None:
        super().__init__()
        self.memory = memory

    def forward(self, *given: Tensor) -> Tensor:
        return self.memory.losses(*given)


def test_items_that_nobody_else_chose_leave_all_to_the_network() -> None:
    memory = memory_of([[1, 2], [3, 4]])
    items, targets = windows_of([[1, 2], [3, 4]])
    network = torch.tensor([1.5, 2.5]).double()
    torch.testing.assert_close(memory.losses(torch.randn(2, WIDTH).double(), network, items, targets), network)


def test_newest_first() -> None:
    found = newest_first(torch.tensor([[1, 2, 3], [4, 0, 0]]), torch.tensor([3, 1]))
    assert found.tolist() == [[3, 2, 1], [4, 0, 0]]


@pytest.mark.parametrize("keys", [{}, {"encoder": "transformer", "geometry": "poincare", "curvature": 0.1}])
def test_learns_the_planted_walk(keys: dict[str, Any], walk: Path, tmp_path: Path) -> None:
    settings_ = {**LEARN, "data_path": str(walk), "output_dir": str(tmp_path / "run"), **keys}
    result = run("FMLPRecMemory", "walk", config_dict=settings_)
    assert result["test"]["hit@1"] > 0.85


def test_the_memory_alone_finds_the_blocks(blocks: Path, tmp_path: Path) -> None:
    """With a rate of nearly nothing the network knows nothing: what is found, the memory found."""
    keys = {**LEARN, "data_path": str(blocks), "output_dir": str(tmp_path / "run"), "learning_rate": 1e-9, "epochs": 1}
    alone = run("FMLPRecMemory", "blocks", config_dict=keys)
    network = run("FMLPRecCE", "blocks", config_dict={**keys, "output_dir": str(tmp_path / "network")})
    assert alone["test"]["hit@5"] > 0.6
    assert network["test"]["hit@5"] < 0.3


def test_a_loaded_run_scores_as_the_run_did(walk: Path, tmp_path: Path) -> None:
    keys = {**LEARN, "epochs": 5, "data_path": str(walk), "output_dir": str(tmp_path / "run")}
    result = run("FMLPRecMemory", "walk", config_dict=keys)
    model = load(tmp_path / "run")
    store = model.store
    asked = [store.row(row) for row in range(store.n_rows)]
    histories = [store.item_tokens[items[:-1]].tolist() for items in asked]
    found = model.recommend(histories=histories, k=1, exclude_seen=True)
    hits = found["item_id"].to_numpy() == store.item_tokens[[items[-1] for items in asked]]
    # the data of a folder are its training part: the last item of each history here is the newest that was trained on
    assert hits.mean() > 0.8
    assert result["test"]["hit@1"] > 0.8
    with pytest.raises(ConfigError, match="FMLPRecMemory scores by more than states"):
        export(model.model, store.item_tokens, 8, tmp_path / "graph.pt2", format="program", top_k=3)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"loss_type": "sce"}, "which only loss_type=ce without label_smoothing"),
        ({"label_smoothing": 0.1}, "without label_smoothing"),
        ({"encoder": "dual"}, "an encoder of the past alone, not encoder=dual"),
        ({"memory_window": 0}, "memory_window"),
    ],
)
def test_settings_that_do_not_fit_are_refused(keys: dict[str, Any], message: str, walk: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        run("FMLPRecMemory", "walk", config_dict={**SMALL, "data_path": str(walk), "output_dir": str(tmp_path), **keys})


def test_a_case_is_scored_by_the_newest_items_of_its_history(random_data: Path) -> None:
    """The scorer of the ranking, which reads whole histories, agrees with RecBole's interface, which reads batches."""
    config = Config("FMLPRecMemory", "random", config_dict={**SMALL, "data_path": str(random_data)})
    dataset = SequenceDataset(config)
    split = make_split(dataset.store, config)
    model, _, _ = build(config, dataset, split, split.train_lengths)
    model.eval()
    batch = dataset.build()[1].inter_feat
    found = model.case_scorer(config)(split.valid)
    torch.testing.assert_close(found[:, 1:], model.full_sort_predict(batch)[:, 1:], rtol=1e-4, atol=1e-5)
