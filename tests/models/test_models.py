"""Every model: learns what is planted, runs under RecBole's own trainer, and gives the same numbers both ways."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from recbole.data.utils import create_samplers, get_dataloader
from recbole.trainer import Trainer

from recbole_hyper import load, registry, run
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.data.dataset import SequenceDataset
from recbole_hyper.encoders.base import length_groups
from recbole_hyper.protocols.base import make_split
from recbole_hyper.training.build import build
from recbole_hyper.training.validation import Evaluation, metrics, rank
from tests.conftest import LEARN, SMALL, write_inter
from tests.reference import planted

OURS = ["SASRecBCE", "SASRecCE", "HSASRec", "HSASRecCE"]
RECURRENT = ["GRU4RecCE", "HGRU4Rec"]  # what they learn is tested in tests/encoders
MEMORY = ["FMLPRecMemory"]
TIMED = ["HSTU", "FuXi"]


def learn(walk: Path, folder: Path, **keys: object) -> dict:
    """Keys of a run that learns the planted walk; without it, hit@1 would be 1 / 52."""
    return {**LEARN, "data_path": str(walk), "output_dir": str(folder), **keys}


@pytest.mark.parametrize("model", OURS)
def test_learns_what_follows(model: str, walk: Path, tmp_path: Path) -> None:
    result = run(model, "walk", config_dict=learn(walk, tmp_path / "run"))
    assert result["test"]["hit@1"] > (0.85 if result["config"]["loss_type"] == "ce" else 0.7)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted(
        ["config.yaml", "result.json", "model.safetensors", "checkpoint.pt", "train.csv", "run.log",
         "cases_valid.parquet", "cases_test.parquet", ".run.lock", "data", "README.md", "format.json"]
    )  # fmt: skip


@pytest.mark.parametrize("loss", ["ce", "bce"])
@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "poincare"])
def test_parts_combine_freely(geometry: str, loss: str, walk: Path, tmp_path: Path) -> None:
    keys = learn(walk, tmp_path / "run", geometry=geometry, loss_type=loss, curvature=0.1)
    result = run("SASRecCE", "walk", config_dict=keys)
    assert result["test"]["hit@1"] > (0.85 if loss == "ce" else 0.7)
    assert (result["config"]["geometry"], result["config"]["loss_type"]) == (geometry, loss)


def test_a_learned_curvature_moves_and_is_recorded(random_data: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "data_path": str(random_data), "curvature": "learn", "curvature_init": 0.3, "epochs": 3}
    result = run("HSASRecCE", "random", config_dict={**keys, "output_dir": str(tmp_path / "run")})
    assert result["curvature_origin"] == "learned"
    lines = (tmp_path / "run" / "train.csv").read_text().splitlines()
    column = lines[0].split(",").index("curvature")
    values = [float(line.split(",")[column]) for line in lines[1:]]
    assert len(set(values)) == 3
    assert values[0] != pytest.approx(0.3, rel=1e-6)


@pytest.fixture
def recbole_argv(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("sys.argv", ["test"])
    return


@pytest.mark.parametrize("model", OURS + MEMORY + RECURRENT + TIMED)
def test_recboles_own_trainer_and_evaluator_agree(
    model: str, random_data: Path, tmp_path: Path, recbole_argv: None
) -> None:
    """One epoch through RecBole's unmodified Trainer, loaders, collector and evaluator; then our ranker."""
    keys = {**SMALL, "data_path": str(random_data), "epochs": 1, "exclude_seen": False, "checkpoint_dir": str(tmp_path)}
    keys |= {"n_negatives": 8} if model in TIMED else {}
    keys |= {"learning_rate": 0.005, "weight_decay": 0.0} if model in MEMORY else {}  # auto is this package's
    config = Config(model, "random", config_dict=keys)
    dataset = SequenceDataset(config)
    parts = dataset.build()
    samplers = create_samplers(config, dataset, parts)
    train, valid, test = (
        get_dataloader(config, phase)(config, part, sampler, shuffle=phase == "train")
        for phase, part, sampler in zip(("train", "valid", "test"), parts, samplers, strict=True)
    )
    made = config.model_class(config, parts[0])
    before = made.item_embedding.weight.detach().clone()
    trainer = Trainer(config, made)
    trainer.fit(train, valid, saved=False, show_progress=False)
    assert not torch.equal(before, made.item_embedding.weight)
    theirs = trainer.evaluate(test, load_best_model=False)
    split = make_split(dataset.store, config)
    evaluation = Evaluation("test", split.test, split, None, None)
    ours = metrics(config, evaluation, rank(made, config, evaluation))
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        # RecBole counts padding as an item of the catalogue
        scale = dataset.item_num / (dataset.item_num - 1) if name.startswith("itemcoverage") else 1.0
        assert ours[name] == pytest.approx(value * scale, abs=2e-6), name


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


@pytest.mark.parametrize("model", OURS + MEMORY + RECURRENT + TIMED)
def test_predict_agrees_with_full_sort_predict(model: str, random_data: Path) -> None:
    config = Config(model, "random", config_dict={**SMALL, "data_path": str(random_data)})
    dataset = SequenceDataset(config)
    split = make_split(dataset.store, config)
    made, _, _ = build(config, dataset, split, split.train_lengths)
    made.eval()
    batch = dataset.build()[2].inter_feat
    full = made.full_sort_predict(batch)
    assert full.shape == (len(batch), dataset.item_num)
    single = made.predict(batch)
    torch.testing.assert_close(single, full[torch.arange(len(batch)), batch["item_id"]], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", ["HSASRecCE", "DualRec", "GRU4RecCE", *TIMED])
def test_groups_of_like_length_change_nothing(model: str, tmp_path: Path) -> None:
    """The rows of a batch are encoded in groups if they are sorted by length, at once if not: the same loss."""
    rows = [(f"u{user}", f"i{(3 * user + step) % 50}", step) for user in range(40) for step in range(3 + 2 * user)]
    keys: dict = {"hidden_size": 16, "MAX_ITEM_LIST_LENGTH": 80, "train_batch_size": 40}
    keys |= dict.fromkeys(["dropout_prob"] if "GRU" in model else ["hidden_dropout_prob", "attn_dropout_prob"], 0.0)
    keys |= {"data_path": str(write_inter(tmp_path, "long", rows)), "eval_args": {"mode": "full"}}
    keys |= {"loss_type": "ce"} if model in TIMED else {}
    config = Config(model, "long", config_dict=keys)
    dataset = SequenceDataset(config)
    split = make_split(dataset.store, config)
    made, loader, _ = build(config, dataset, split, split.train_lengths)
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


@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "poincare"])
def test_a_head_with_item_vectors_of_its_own(geometry: str, walk: Path, tmp_path: Path) -> None:
    keys = {"geometry": geometry, "curvature": 0.1}
    shared = run("SASRecCE", "walk", config_dict=learn(walk, tmp_path / "shared", **keys, epochs=1, eval_step=1))
    keys["reuse_item_embeddings"] = False
    result = run("SASRecCE", "walk", config_dict=learn(walk, tmp_path / "own", **keys))
    model = load(tmp_path / "own").model
    assert model.output_embedding is not None
    assert model.head.weight is model.output_embedding.weight
    assert result["parameters"] == shared["parameters"] + model.head.weight.numel()
    for matrix in (model.item_embedding.weight, model.output_embedding.weight):
        assert not matrix[0].any()
    # two matrices that no step had moved would not know what follows
    assert result["test"]["hit@1"] > 0.85


def recommend(folder: Path, users: Any = None, histories: Any = None, **keys: Any) -> pd.DataFrame:
    """What a run recommends, where no id may be unknown and no history empty."""
    cold = "popular" if histories is None else "error"
    return load(folder).recommend(users, histories, **{"unknown": "error", "cold": cold, **keys})


def test_load_and_recommend(walk: Path, tmp_path: Path) -> None:
    run("HSASRecCE", "walk", config_dict=learn(walk, tmp_path / "run"))
    data = load(tmp_path / "run")
    model = data.model
    assert not model.training
    follows = planted.successors()
    histories = {item: [item, follows[item], follows[follows[item]]] for item in follows}
    found = recommend(tmp_path / "run", histories=list(histories.values()), k=2)
    first = found[found["position"] == 1]["item_id"].tolist()
    right = [item == follows[history[-1]] for item, history in zip(first, histories.values(), strict=True)]
    assert np.mean(right) > 0.85
    for items, history in zip(found["item_id"].to_numpy().reshape(-1, 2), histories.values(), strict=True):
        assert not set(items) & set(history)
    store = data.store
    users = [str(store.user_tokens[user]) for user in store.users]
    known = recommend(tmp_path / "run", users, k=1)
    newest = [store.item_tokens[store.row(row)[-1]] for row in range(store.n_rows)]
    assert np.mean([a == follows[b] for a, b in zip(known["item_id"], newest, strict=True)]) > 0.8
    assert len(store.items) == len(planted.walk_rows())
    with pytest.raises(ValueError, match="1 users are not in the data"):
        recommend(tmp_path / "run", ["nobody"])
    with pytest.raises(ValueError, match="give users or histories"):
        recommend(tmp_path / "run")


@pytest.mark.parametrize("model", ["SASRecCE", "HGRU4Rec"])
def test_recommends_all_that_is_left_in_order_of_its_score(model: str, random_data: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "data_path": str(random_data), "epochs": 1, "output_dir": str(tmp_path / "run")}
    run(model, "random", config_dict={**keys, "ranking_memory_budget": 2000})  # several batches
    store = load(tmp_path / "run").store
    users = [str(store.user_tokens[user]) for user in store.users[:7]]
    found = recommend(tmp_path / "run", users, k=49)
    for row, user in enumerate(users):
        own = found[found["user_id"] == user]
        seen = set(store.item_tokens[store.row(row)])
        assert set(own["item_id"]) | seen == set(store.item_tokens[1:])
        assert not set(own["item_id"]) & seen
        assert (np.diff(own["score"]) <= 0).all()
        assert own["position"].tolist() == list(range(1, len(own) + 1))
    history = [str(token) for token in store.item_tokens[store.row(0)]]
    same = recommend(tmp_path / "run", histories=[history], k=49)
    assert same["item_id"].tolist() == found[found["user_id"] == users[0]]["item_id"].tolist()


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run whose ids are numbers: users 1 to 6, items 11 to 19, 1 and 0."""
    folder = tmp_path_factory.mktemp("small")
    items = [*range(11, 20), 1, 0]
    rows = [(user, items[(user + step) % 11], 1000 + step) for user in range(1, 7) for step in range(6)]
    write_inter(folder / "data", "small", rows)
    keys = {**SMALL, "data_path": str(folder / "data"), "epochs": 1, "output_dir": str(folder / "run")}
    run("SASRecCE", "small", config_dict=keys)
    return folder / "run"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"histories": ["11", "10"]}, r"histories\[0\]='11' is one text; give a list of ids"),
        ({"histories": "11"}, "histories='11' is one text; give a list of lists of item ids"),
        ({"histories": [b"11"]}, r"histories\[0\]=b'11' is one text"),
        ({"histories": [11, 10]}, r"histories\[0\]=11 is no list"),
        ({"histories": [[["11"]]]}, r"histories\[0\] holds \['11'\], which is no id"),
        ({"histories": [[None]]}, "holds None, which is no id"),
        ({"histories": [[float("nan")]]}, "holds nan, which is no id"),
        ({"histories": [["11"], []]}, "1 histories hold no item that the model knows"),
        ({"histories": [{"11", "10"}]}, r"histories\[0\] is a set, which has no order"),
        ({"users": "1"}, "users='1' is one text"),
        ({"users": 1}, "users=1 is no list"),
        ({"users": [True]}, "users holds True, which is no id"),
        ({"users": ["1"], "histories": [["11"]]}, "give users or histories"),
        ({"users": ["1"], "k": 2.5}, "k=2.5: a whole number of at least 1 is needed"),
        ({"users": ["1"], "k": True}, "k=True: a whole number"),
        ({"users": ["1"], "k": "3"}, "k='3': a whole number"),
        ({"users": ["1"], "k": None}, "k=None: a whole number"),
        ({"users": [], "k": 0}, "k=0: a whole number"),
        ({"users": ["1"], "exclude_seen": "False"}, "exclude_seen='False': True or False"),
    ],
)
def test_recommend_checks_what_it_is_asked(keys: dict, message: str, small_run: Path) -> None:
    with pytest.raises(ValueError, match=message):
        recommend(small_run, **keys)


def test_recommend_knows_no_padding_and_no_item_past_the_last(small_run: Path) -> None:
    with pytest.raises(ValueError, match=r"1 items are not in the data \(first: '\[PAD\]'"):
        recommend(small_run, histories=[["11", "[PAD]"]])
    with pytest.raises(ValueError, match=r"1 users are not in the data \(first: '\[PAD\]'"):
        recommend(small_run, ["[PAD]"])
    with pytest.raises(ValueError, match="k=12: between 1 and 11 items"):
        recommend(small_run, ["1"], k=12)


def test_recommend_takes_any_iterable_once(small_run: Path) -> None:
    rows = [["11", "1"], ["0", "14"]]
    wanted = recommend(small_run, histories=rows, k=3)
    assert len(wanted) == 6
    for same in (
        (iter(row) for row in rows),
        np.array(rows),
        np.array(rows).astype(int),
        [pd.Series([11, 1]), pd.Series(["0", "14"])],
        torch.tensor([[11, 1], [0, 14]]),
        tuple(map(tuple, rows)),
    ):
        pd.testing.assert_frame_equal(recommend(small_run, histories=same, k=np.int64(3)), wanted)
    known = recommend(small_run, ["3", "1"], k=3)
    assert known["user_id"].tolist() == ["3"] * 3 + ["1"] * 3
    for same in ((user for user in ["3", "1"]), np.array(["3", "1"]), pd.Series(["3", "1"]), {"3": 0, "1": 0}):
        pd.testing.assert_frame_equal(recommend(small_run, same, k=3), known)
    for numbers in ([3, 1], np.array([3, 1]), range(3, 0, -2)):
        found = recommend(small_run, numbers, k=3)
        assert found["user_id"].tolist() == [3] * 3 + [1] * 3
        assert found["item_id"].tolist() == known["item_id"].tolist()


def test_recommend_for_nobody_is_a_frame_without_rows(small_run: Path) -> None:
    for empty, full in (
        (recommend(small_run, []), recommend(small_run, ["1"])),
        (recommend(small_run, histories=iter([])), recommend(small_run, histories=[["11"]])),
    ):
        assert len(empty) == 0
        pd.testing.assert_series_equal(empty.dtypes, full.dtypes)


def test_all_names_are_importable() -> None:
    for name in registry.names("models"):
        assert registry.resolve("models", name).__doc__, f"{name} has no docstring"


@pytest.mark.parametrize(
    ("model", "keys", "message"),
    [
        ("GRU4RecCE", {"initializer": "uniform"}, "initializer='uniform': xavier or normal is expected"),
        ("DualRec", {"initializer": "uniform"}, "initializer='uniform': xavier or normal is expected"),
        ("SASRecCE", {"initializer": "uniform"}, "initializer='uniform': xavier or normal is expected"),
        ("GRU4RecCE", {"initializer_range": 0.0}, "initializer_range=0.0: a number above 0"),
        ("DualRec", {"layer_norm_eps": -1.0}, "layer_norm_eps=-1.0: a number above 0"),
        ("DualRec", {"n_heads": 2, "dual_windows": [2.9, 8]}, "2.9 is not a whole number"),
        ("HGRU4Rec", {"gru_size": 0}, "gru_size=0: a whole number of at least 1"),
        ("SASRecSCE", {"sce_n_buckets": 2.5}, "sce_n_buckets=2.5: a whole number of at least 1"),
        ("HSASRecCE", {"curvature": "learn", "curvature_init": 0.0}, "curvature_init=0.0: a number above 0"),
        ("HSASRecCE", {"curvature": "learn", "curvature_init": -1.0}, "curvature_init=-1.0: a number above 0"),
        ("HSASRecCE", {"curvature": 0}, "curvature=0: a number above 0"),
        ("HSASRecCE", {"item_bias": False, "item_bias_init": 1.0}, "key item_bias_init.*key item_bias"),
    ],
)
def test_values_out_of_range_fail_before_data_are_read(model: str, keys: dict, message: str, random_data: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(model, "random", config_dict={**SMALL, "data_path": str(random_data), **keys})


@pytest.mark.parametrize(("loss", "draws"), [("ce", False), ("sce", False), ("rece", False), ("bce", True)])
def test_only_a_loss_that_draws_has_a_sampler(loss: str, draws: bool, random_data: Path) -> None:
    keys = {**SMALL, "data_path": str(random_data), "loss_type": loss, "sce_bucket_size_y": 8}
    config = Config("SASRecCE", "random", config_dict=keys)
    dataset = SequenceDataset(config)
    split = make_split(dataset.store, config)
    made, loader, _ = build(config, dataset, split, split.train_lengths)
    assert (made._sampler is not None) == draws
    assert torch.isfinite(made.calculate_loss(next(iter(loader))))


class Draws(torch.nn.Module):
    """A loss that keeps the negatives (S, 20) of a batch."""

    statistics: dict = {}

    def forward(self, states: torch.Tensor, targets: torch.Tensor, head: object, negatives: object) -> torch.Tensor:
        self.drawn, _ = negatives.per_sequence(20)
        return states.sum()


def test_negatives_avoid_what_their_own_user_was_trained_on(random_data: Path) -> None:
    config = Config("SASRecBCE", "random", config_dict={**SMALL, "data_path": str(random_data)})
    dataset = SequenceDataset(config)
    split = make_split(dataset.store, config)
    made, loader, _ = build(config, dataset, split, split.train_lengths)
    made.loss = Draws()
    seen = split.store.matrix(split.train_lengths).toarray() > 0
    row_of = {int(user): row for row, user in enumerate(split.store.users)}
    for batch in loader:
        made.calculate_loss(batch)
        for user, items in zip(batch["user_id"].tolist(), made.loss.drawn, strict=True):
            assert not seen[row_of[user], items].any()
