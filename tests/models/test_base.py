"""What every neural model has from its base class: any parts, groups of similar length, negatives, checks."""

from pathlib import Path

import numpy as np
import pytest
import torch

from recbole_hyper import run
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.encoders.base import length_groups
from recbole_hyper.runs.dataset import SequenceDataset
from tests.conftest import SMALL, write_inter
from tests.models.fitting import built
from tests.raising import refused

TIMED = ["HSTU", "FuXi"]


def test_a_learned_curvature_moves_and_is_recorded(random_data: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "data_path": str(random_data), "curvature": "learn", "curvature_init": 0.3, "epochs": 3}
    result = run("HSASRecCE", "random", config_dict={**keys, "output_dir": str(tmp_path / "run")})
    assert result["curvature_origin"] == "learned"
    lines = (tmp_path / "run" / "train.csv").read_text().splitlines()
    column = lines[0].split(",").index("curvature")
    values = [float(line.split(",")[column]) for line in lines[1:]]
    assert len(set(values)) == 3
    assert values[0] != pytest.approx(0.3, rel=1e-6)


def test_a_learned_curvature_starts_at_the_estimate(random_data: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "data_path": str(random_data), "epochs": 1}
    fixed = run("HSASRecCE", "random", config_dict={**keys, "curvature": "auto", "output_dir": str(tmp_path / "fixed")})
    keys |= {"curvature": "learn", "curvature_learning_rate": 1e-12, "output_dir": str(tmp_path / "learned")}
    result = run("HSASRecCE", "random", config_dict=keys)
    assert result["curvature"] == pytest.approx(fixed["curvature"], rel=1e-5)
    assert fixed["curvature_origin"] != result["curvature_origin"] == "learned"


def test_recboles_rows_and_ours_are_the_same_cases(random_data: Path) -> None:
    """build() gives RecBole's validation and test rows: history, length and target of every user."""
    config = Config("SASRecCE", "random", config_dict={**SMALL, "data_path": str(random_data)})
    dataset = SequenceDataset(config)
    _, valid, test = dataset.build()
    store = dataset.store
    for part, back in ((valid, 2), (test, 1)):
        for row in range(len(part.inter_feat)):
            user = int(part.inter_feat["user_id"][row])
            items = store.row(int(np.flatnonzero(store.users == user)[0])).tolist()
            length = int(part.inter_feat["item_length"][row])
            assert int(part.inter_feat["item_id"][row]) == items[-back]
            assert part.inter_feat["item_id_list"][row][:length].tolist() == items[:-back][-8:]


@pytest.mark.parametrize("model", ["HSASRecCE", "DualRec", "GRU4RecCE", *TIMED])
def test_groups_of_similar_length_change_nothing(model: str, tmp_path: Path) -> None:
    """The rows of a batch are encoded in groups if they are sorted by length, at once if not: the same loss."""
    rows = [(f"u{user}", f"i{(3 * user + step) % 50}", step) for user in range(40) for step in range(3 + 2 * user)]
    keys: dict = {"hidden_size": 16, "MAX_ITEM_LIST_LENGTH": 80, "train_batch_size": 40}
    keys |= dict.fromkeys(["dropout_prob"] if "GRU" in model else ["hidden_dropout_prob", "attn_dropout_prob"], 0.0)
    keys |= {"data_path": str(write_inter(tmp_path, "long", rows)), "eval_args": {"mode": "full"}}
    keys |= {"loss_type": "ce"} if model in TIMED else {}
    made, _, _, loader = built(model, "long", keys)
    batch = next(iter(loader))
    lengths = batch["item_length"]
    assert len(length_groups(lengths)) >= 2
    loss = made.calculate_loss(batch)
    loss.backward()
    gradient = made.item_embedding.weight.grad.clone()
    made.zero_grad()
    mixed = batch[torch.randperm(len(batch))]
    assert len(length_groups(mixed["item_length"])) == 1
    other = made.calculate_loss(mixed)
    other.backward()
    torch.testing.assert_close(other, loss, rtol=1e-5, atol=0)
    torch.testing.assert_close(made.item_embedding.weight.grad, gradient, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "keys", "named"),
    [
        ("GRU4RecCE", {"initializer": "uniform"}, "initializer='uniform'"),
        ("DualRec", {"layer_norm_eps": -1.0}, "layer_norm_eps=-1.0"),
        ("DualRec", {"n_heads": 2, "dual_windows": [2.9, 8]}, "2.9 is not a whole number"),
        ("DualRec", {"n_heads": 1}, "even number of heads"),
        ("SASRecSCE", {"sce_n_buckets": 2.5}, "sce_n_buckets=2.5"),
        ("HSASRecCE", {"curvature": "learn", "curvature_init": 0.0}, "curvature_init=0.0"),
        ("HSASRecCE", {"item_bias": False, "item_bias_init": 1.0}, "key item_bias"),
    ],
)
def test_values_out_of_range_fail_before_data_are_read(model: str, keys: dict, named: str, random_data: Path) -> None:
    with refused(ConfigError, named):
        Config(model, "random", config_dict={**SMALL, "data_path": str(random_data), **keys})


@pytest.mark.parametrize(("loss", "draws"), [("ce", False), ("sce", False), ("rece", False), ("bce", True)])
def test_only_a_loss_that_draws_has_a_sampler(loss: str, draws: bool, random_data: Path) -> None:
    keys = {**SMALL, "data_path": str(random_data), "loss_type": loss, "sce_bucket_size_y": 8}
    made, _, _, loader = built("SASRecCE", "random", keys)
    assert (made._sampler is not None) == draws
    assert torch.isfinite(made.calculate_loss(next(iter(loader))))


class Draws(torch.nn.Module):
    """A loss that keeps the negatives (S, 20) of a batch."""

    statistics: dict = {}

    def forward(self, states: torch.Tensor, targets: torch.Tensor, head: object, negatives: object) -> torch.Tensor:
        self.drawn, _ = negatives.per_sequence(20)
        return states.sum()


def test_negatives_avoid_what_their_own_user_was_trained_on(random_data: Path) -> None:
    made, _, split, loader = built("SASRecBCE", "random", {**SMALL, "data_path": str(random_data)})
    made.loss = Draws()
    seen = split.store.matrix(split.train_lengths).toarray() > 0
    row_of = {int(user): row for row, user in enumerate(split.store.users)}
    for batch in loader:
        made.calculate_loss(batch)
        for user, items in zip(batch["user_id"].tolist(), made.loss.drawn, strict=True):
            assert not seen[row_of[user], items].any()
