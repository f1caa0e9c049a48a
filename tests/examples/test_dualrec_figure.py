"""Mean attention over cases against a loop over users, and its figure."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from examples.dualrec_figure import attention_figure, histories, mean_attention
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.encoders.dual import DualRecEncoder
from recbole_hyper.types import Cases
from tests.raising import refused
from tests.reference import dualrec as reference


def make(cls=DualRecEncoder, **options):
    embedding = nn.Embedding(20, 8, padding_idx=0, dtype=torch.float64)
    encoder = cls(embedding, max_length=6, **options).double()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.mul_(10)
    return encoder


def batches():
    generator = torch.Generator().manual_seed(0)
    for lengths in ([6, 2], [4, 1, 3]):
        items = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
        for row, length in enumerate(lengths):
            items[row, :length] = torch.randint(1, 20, (length,), generator=generator)
        yield items, torch.tensor(lengths)


@pytest.mark.parametrize("directions", ["both", "past", "future"])
def test_equals_a_loop_over_users(directions):
    encoder = make(n_heads=2, dual_directions=directions).train()
    found = mean_attention(encoder, batches())
    assert encoder.training  # left as it was
    assert list(found) == (["past", "future"] if directions == "both" else [directions])
    encoder.eval()
    for name, maps in found.items():
        assert maps.shape == (2, 6, 6)
        network = encoder.past if name == "past" else encoder.future
        total, count = np.zeros((2, 6, 6)), np.zeros(6)
        for items, lengths in batches():
            for row, n in enumerate(lengths.tolist()):
                _, _, user = reference.encoder(network, items[row, :n])
                count[:n] += 1
                for layer in range(2):
                    for i in range(n):
                        for j in range(n):
                            total[layer, n - 1 - i, n - 1 - j] += float(user[layer][:, i, j].mean())
        np.testing.assert_allclose(maps.numpy(), total / count[:, None], rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(maps.sum(-1).numpy(), 1.0)


def test_histories_are_the_last_items_of_each_case():
    store = SequenceStore.from_interactions(
        [1, 1, 1, 1, 2, 2], [1, 2, 3, 4, 5, 6], range(6), ["[PAD]", "x", "y"], ["[PAD]", *"abcdef"]
    )
    cases = Cases.build(store, [0, 1, 0], [3, 1, 1])
    found = [(items.tolist(), lengths.tolist()) for items, lengths in histories(cases, 2, batch_size=2)]
    assert found == [([[2, 3], [5, 0]], [2, 1]), ([[1]], [1])]


def test_figure(tmp_path: Path):
    dual = mean_attention(make(n_heads=2), batches())
    alone = mean_attention(make(n_heads=2, dual_directions="past"), batches())
    path = attention_figure(dual, tmp_path / "new" / "attention.png", past_only=alone["past"], shown=4)
    assert path.read_bytes()[:4] == b"\x89PNG"
    assert [file.name for file in path.parent.iterdir()] == ["attention.png"]
    svg = attention_figure(dual, tmp_path / "attention.svg").read_text()
    # 2 layers x 2 directions, a picture and a colour bar each
    assert svg.count("<image") == 8
    with refused(ValueError, "as many layers"):
        attention_figure(dual, tmp_path / "x.png", past_only=alone["past"][:1])
