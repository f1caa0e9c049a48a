"""A run as an ONNX graph, a torch program and item vectors: the package's own scores, for batches never traced."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

from recbole_hyper import run
from recbole_hyper.cli import main
from recbole_hyper.config import Config
from recbole_hyper.data.dataset import SequenceDataset
from recbole_hyper.errors import ConfigError
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.protocols.base import make_split
from recbole_hyper.serving.export import OPSET, check_request, export
from recbole_hyper.training.build import build
from tests.conftest import SMALL

LENGTH = 12
MODELS = ["SASRecCE", "HSASRecCE", "DualRec", "FMLPRec", "GRU4RecCE", "HGRU4Rec"]
Made = Callable[..., tuple[HyperRecommender, np.ndarray]]


@pytest.fixture
def made(random_data: Path) -> Made:
    """Return a function that builds an untrained model over "random" and gives it with its item ids."""

    def make(name: str, **keys: Any) -> tuple[HyperRecommender, np.ndarray]:
        settings = {**SMALL, "hidden_size": 8, "MAX_ITEM_LIST_LENGTH": LENGTH, "eval_args": {"mode": "full"}, **keys}
        config = Config(name, "random", config_dict={"data_path": str(random_data), **settings})
        dataset = SequenceDataset(config)
        split = make_split(dataset.store, config)
        model, _, _ = build(config, dataset, split, split.train_lengths)
        # norms and biases that are not those of the start, and item vectors as long as trained ones
        for parameter in model.parameters():
            with torch.no_grad():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return model.eval(), dataset.store.item_tokens

    return make


def histories(batch: int, length: int, n_items: int) -> tuple[Tensor, Tensor]:
    lengths = torch.randint(1, length + 1, (batch,))
    lengths[-1] = length
    items = torch.randint(1, n_items, (batch, length))
    return items.masked_fill(torch.arange(length) >= lengths[:, None], 0), lengths


def feeds(*given: Tensor) -> dict[str, np.ndarray]:
    return {name: one.numpy() for name, one in zip(("item_id_list", "item_length", "seen_items"), given, strict=False)}


@pytest.mark.parametrize("name", MODELS)
def test_onnx_gives_the_packages_states_and_recommendations(name: str, made: Made, tmp_path: Path) -> None:
    model, tokens = made(name)
    n_items = model.head.n_items
    states_file, top_file = tmp_path / "encoder.onnx", tmp_path / "top.onnx"
    export(model, tokens, LENGTH, states_file)
    export(model, tokens, LENGTH, top_file, top_k=7, exclude_seen=True)
    encoder, best = onnxruntime.InferenceSession(states_file), onnxruntime.InferenceSession(top_file)
    for batch, length in ((1, 1), (5, LENGTH), (4, 6)):
        items, lengths = histories(batch, length, n_items)
        with torch.no_grad():
            states = model(items, lengths)
            scores = model.head.logits(states)
        np.testing.assert_allclose(encoder.run(None, feeds(items, lengths))[0], states, atol=1e-4)
        # more than the history: what is excluded may come from anywhere
        seen = torch.cat([items, torch.randint(0, n_items, (batch, 3))], dim=1)
        found, values = best.run(None, feeds(items, lengths, seen))
        scores.scatter_(1, seen, -torch.inf)[:, 0] = -torch.inf
        np.testing.assert_allclose(values, scores.topk(7).values, atol=1e-4)
        np.testing.assert_allclose(values, scores.gather(1, torch.from_numpy(found)), atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_a_program_gives_the_packages_scores(name: str, made: Made, tmp_path: Path) -> None:
    model, tokens = made(name)
    export(model, tokens, LENGTH, tmp_path / "model.pt2", format="program", top_k=5)
    program = torch.export.load(tmp_path / "model.pt2").module()
    for batch, length in ((1, 1), (6, 9)):
        items, lengths = histories(batch, length, model.head.n_items)
        with torch.no_grad():
            scores = model.head.logits(model(items, lengths))
            found, values = program(items, lengths)
        scores[:, 0] = -torch.inf
        torch.testing.assert_close(values, scores.topk(5).values, atol=1e-4, rtol=0)
        torch.testing.assert_close(values, scores.gather(1, found), atol=1e-4, rtol=0)
