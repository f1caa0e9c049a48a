"""Item vectors with features: against loops, in every loss, for items that nobody chose, and in the folder of a run."""

import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from recbole_hyper import load, run
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.data.item_features import ItemColumn, ItemFeatures
from recbole_hyper.models.item_vectors import FeaturedEmbedding, FeaturedHead
from recbole_hyper.runs.build import read_data
from recbole_hyper.runs.evaluate import evaluate
from recbole_hyper.serving.export import export
from recbole_hyper.training.checkpoint import CheckpointError
from tests.conftest import LEARN, SMALL, small, write_inter
from tests.models.fitting import built
from tests.raising import refused

N, D = 9, 4
TRAINED = np.array([False, True, True, True, False, True, True, False, True])


def columns() -> ItemFeatures:
    generator = np.random.default_rng(3)
    bags = generator.integers(0, 5, (N, 3)).astype(np.int32)
    bags[3] = 0  # an item without a token
    years = generator.integers(1, 4, (N, 1)).astype(np.int32)
    text = generator.normal(size=(N, 2)).astype(np.float32)
    price = generator.normal(size=(N, 1)).astype(np.float32)
    for values in (bags, years, text, price):
        values[0] = 0
    return ItemFeatures(
        (
            ItemColumn("bags", "token_seq", bags, 5, np.zeros(0)),
            ItemColumn("year", "token", years, 4, np.zeros(0)),
            ItemColumn("text", "float_seq", text, 2, np.zeros(0)),
            ItemColumn("price", "float", price, 1, np.zeros(0)),
        )
    )


def table_of(**options: Any) -> FeaturedEmbedding:
    table = FeaturedEmbedding(D, columns(), TRAINED, **options)
    with torch.no_grad():
        for parameter in table.parameters():
            parameter.normal_()
    return table


def loops(table: FeaturedEmbedding, item: int, pooling: str, fusion: str) -> Tensor:
    """Return the vector of one item, feature by feature and token by token."""
    parts = [table.weight[item] if TRAINED[item] else torch.zeros(D)]
    for column, feature in zip(columns().columns, table.features, strict=True):
        if column.of_tokens:
            vectors = [feature.weight[code] for code in column.values[item] if code]
            if not vectors:
                parts.append(torch.zeros(D))
            elif pooling == "max":
                parts.append(torch.stack(vectors).amax(0))
            else:
                parts.append(sum(vectors) / (len(vectors) if pooling == "mean" else 1))
        else:
            numbers = zip(column.values[item], feature.weight, strict=True)
            parts.append(sum(float(number) * weight for number, weight in numbers))
    return sum(parts) if fusion == "add" else table.fusion.weight @ torch.cat(parts)


@pytest.mark.parametrize("fusion", ["add", "concat"])
@pytest.mark.parametrize("pooling", ["sum", "mean", "max"])
def test_vectors_equal_the_loops(pooling: str, fusion: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(pooling=pooling, fusion=fusion)
    expected = torch.stack([loops(table, item, pooling, fusion) for item in range(1, N)])
    matrix = table.matrix()
    torch.testing.assert_close(matrix[1:], expected)
    items = torch.tensor([[3, 1, 0], [7, 7, 8]])
    torch.testing.assert_close(table(items), F.embedding(items, matrix))
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    torch.testing.assert_close(table.matrix()[1:], expected)


def test_padding_is_zero_and_an_untrained_item_has_no_id_vector() -> None:
    config = {**SMALL, "initializer": None, "initializer_range": None, "hidden_size": D}
    config |= {"pooling_mode": "sum", "feature_fusion": "concat", "feature_id_dropout": 0.0}
    from recbole_hyper.models.base import new_embedding

    table: Any = new_embedding(config, N, features=columns(), trained=TRAINED)
    assert not table.matrix()[0].any()
    before = table.matrix().detach()
    with torch.no_grad():
        table.weight.add_(1)
    changed = (table.matrix() != before).any(1)
    assert changed.tolist() == TRAINED.tolist()
    ids, rest = float(table.weight.detach().std()), [float(feature.weight.detach().std()) for feature in table.features]
    assert all(0.3 * ids < std < 3 * ids for std in rest)


def test_dropout_of_ids_hides_its_share_in_training_alone() -> None:
    column = ItemColumn("a", "token", np.ones((4000, 1), np.int32), 2, np.zeros(0))
    table = FeaturedEmbedding(1, ItemFeatures((column,)), np.ones(4000, dtype=bool), id_dropout=0.3)
    with torch.no_grad():
        table.weight.fill_(1)
    assert float(table.matrix().detach().mean()) == pytest.approx(0.7, abs=0.03)
    assert float(table(torch.arange(4000)).detach().mean()) == pytest.approx(0.7, abs=0.03)
    assert float(table.eval().matrix().detach().min()) == 1


@pytest.mark.parametrize(
    ("geometry", "options"),
    [
        ("cosine", {}),
        ("cosine", {"temperature": "learn"}),
        ("euclidean", {}),
        ("euclidean", {"temperature": "learn"}),
        ("poincare", {}),
    ],
)
def test_a_step_scores_the_trained_items_alone_and_its_gradients_are_those_of_autograd(geometry, options) -> None:
    from recbole_hyper import registry
    from recbole_hyper.losses.ce import CrossEntropy

    table = table_of(fusion="concat").double()
    head = FeaturedHead(registry.resolve("geometry", geometry)(**options), table, offset=True, theta=0.2).double()
    trained = [*table.parameters(), *head.parameters()]
    assert (head.log_temperature is None) == (not options)
    states, targets = torch.randn(20, D, dtype=torch.float64), torch.from_numpy(np.resize(np.flatnonzero(TRAINED), 20))
    loss = CrossEntropy()(states, head.numbers[targets], head.step_head())
    loss.backward()
    found = [parameter.grad.clone() for parameter in trained]
    for parameter in trained:
        parameter.grad = None
    scores = head.logits(states).masked_fill(~torch.from_numpy(TRAINED), -torch.inf)
    expected = F.cross_entropy(scores, targets)
    expected.backward()
    torch.testing.assert_close(loss, expected)
    for one, other in zip(found, trained, strict=True):
        torch.testing.assert_close(one, other.grad)


# --- runs ------------------------------------------------------------------------------------------------------------
CLASSES, PER_CLASS = 6, 20


def taste_rows(users: int = 150, length: int = 12, seed: int = 4) -> list[tuple]:
    """Return interactions of users who take items of one class each, in any order."""
    generator = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        inside = generator.permutation(PER_CLASS)[:length] * CLASSES + user % CLASSES
        rows += [(f"u{user}", f"i{item}", 1000 + step) for step, item in enumerate(inside)]
    return rows


@pytest.fixture
def taste(tmp_path: Path) -> Path:
    """Return a data_path that holds "taste"."""
    return write_taste(tmp_path / "data")


def write_taste(data: Path) -> Path:
    """Write "taste", whose items have their class, a number and a vector of it."""
    folder = write_inter(data, "taste", taste_rows())
    lines = ["item_id:token\tclass:token_seq\tsize:float\ttext:float_seq"]
    for item in range(CLASSES * PER_CLASS):
        vector = " ".join("1" if item % CLASSES == place else "0" for place in range(CLASSES))
        lines.append(f"i{item}\tc{item % CLASSES} all\t{item}\t{vector}")
    (folder / "taste" / "taste.item").write_text("\n".join(lines) + "\n")
    return folder


keys = partial(small, epochs=1, selected_features=["class"], use_gpu=False)


COLD = {"split": {"CI": {"valid": 0.15, "test": 0.15, "among": "cold"}}}


@pytest.mark.parametrize(("model", "feature"), [("HSASRecCE", "text"), ("GRU4RecCE", "class")])
def test_items_that_nobody_chose_are_found_by_their_features(model, feature, taste, tmp_path) -> None:
    """18 items of 6 classes are ranked. Those of one class have one vector: a target ranks after all of them."""
    more = {
        **LEARN,
        "eval_args": COLD,
        "epochs": 20,
        "topk": [1, 5],
        "valid_metric": "Hit@5",
        "feature_id_dropout": 0.3,
    }
    given = {**keys(taste, tmp_path / "run"), **more, "selected_features": [feature]}
    run(model, "taste", config_dict=given)
    blind = {**given, "output_dir": str(tmp_path / "blind"), "selected_features": None}
    run(model, "taste", config_dict=blind)
    drawn = read_data(Config(model, "taste", config_dict=blind))[1].test
    tokens = drawn.store.item_tokens[np.unique([*drawn.targets, *np.ravel(drawn.candidates)])]
    sizes = Counter(int(token[1:]) % CLASSES for token in tokens)
    assert len(tokens) == sizes.total() == 18

    def inside(folder: Path) -> float:
        """Return the share of targets that no item of another class precedes."""
        cases = pd.read_parquet(folder / "cases_test.parquet")
        return float(np.mean(cases["rank"] <= [sizes[int(item[1:]) % CLASSES] for item in cases.item_id]))

    assert inside(tmp_path / "run") > 0.95
    assert inside(tmp_path / "blind") < 0.4


@pytest.mark.parametrize("loss", ["ce", "bce", "bce_plus", "gbce", "sampled_ce", "sce", "rece"])
def test_every_loss_and_geometry_takes_features(loss: str, taste: Path, tmp_path: Path) -> None:
    small = {"sce_bucket_size_y": 16, "n_negatives": 8}
    for geometry in ("euclidean", "poincare"):
        given = keys(
            taste, tmp_path / geometry, loss_type=loss, geometry=geometry, curvature="learn", curvature_init=0.02
        )
        given |= {"item_bias": True, "selected_features": ["class", "size", "text"], "eval_args": COLD, **small}
        model, _, _, loader = built("SASRecCE", "taste", given)
        batch = next(iter(loader))
        model.calculate_loss(batch).backward()
        cold = ~model.item_embedding.trained
        cold[0] = False
        assert int(cold.sum()) > 30
        assert model.item_embedding.weight.grad.abs().sum(1)[cold].max() == 0
        assert model.head.offset.grad[cold].abs().max() == 0
        for feature in model.item_embedding.features:
            assert torch.isfinite(feature.weight.grad).all()
            assert feature.weight.grad.any()


def test_without_output_features_the_head_has_the_ids_alone(taste: Path, tmp_path: Path) -> None:
    model, _, _, loader = built("SASRecCE", "taste", keys(taste, tmp_path, feature_output=False))
    assert model.head.weight is model.item_embedding.weight
    model.calculate_loss(next(iter(loader))).backward()
    assert model.item_embedding.features[0].weight.grad.any()


def test_a_separate_head_has_separate_features(taste: Path, tmp_path: Path) -> None:
    model, _, _, loader = built("SASRecCE", "taste", keys(taste, tmp_path, reuse_item_embeddings=False))
    model.calculate_loss(next(iter(loader))).backward()
    for table in (model.item_embedding, model.output_embedding):
        assert table.features[0].weight.grad.any()


def test_without_features_a_model_has_no_feature_weights(taste: Path, tmp_path: Path) -> None:
    plain = {name: value for name, value in keys(taste, tmp_path).items() if name != "selected_features"}
    model = built("SASRecCE", "taste", plain)[0]
    assert type(model.item_embedding) is torch.nn.Embedding
    assert not [name for name in model.state_dict() if "feature" in name]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with features of every kind, whose data set is gone."""
    place = tmp_path_factory.mktemp("featured")
    taste = write_taste(place / "data")
    given = keys(taste, place / "run", selected_features=["class", "size", "text"], feature_fusion="concat")
    run("HSASRecCE", "taste", config_dict={**given, "epochs": 2})
    shutil.rmtree(taste)
    return place / "run"


def test_the_folder_is_enough(folder: Path) -> None:
    before = evaluate(folder)
    model = load(folder)
    found = model.recommend(users=["u1", "u2"], k=5)
    assert len(found) == 10
    measured = before["test"]
    # the same ranks as in the run: cases_test.parquet is what the run wrote
    cases = pd.read_parquet(folder / "cases_test.parquet")
    assert measured["hit@10"] == pytest.approx(float((cases["rank"] <= 10).mean()), abs=1e-6)
    matrix = model.model.head.weight.detach()
    np.testing.assert_allclose(model.item_vectors().to_numpy(), matrix[1:].numpy())
    assert len(model.similar_items(["i3"], k=4)) == 4


def test_exports_hold_the_features(folder: Path, tmp_path: Path) -> None:
    loaded = load(folder)
    tokens = loaded.store.item_tokens
    given, lengths = torch.tensor([[5, 9, 2], [4, 0, 0]]), torch.tensor([3, 1])
    scores = loaded.score([tokens[[5, 9, 2]].tolist(), tokens[[4]].tolist()])
    export(loaded.model, tokens, 8, tmp_path / "model.pt2", format="program", top_k=5)
    program = torch.no_grad()(torch.export.load(tmp_path / "model.pt2").module())
    items, values = (one.numpy() for one in program(given, lengths))
    np.testing.assert_array_equal(items, np.argsort(-scores, axis=1, kind="stable")[:, :5] + 1)
    np.testing.assert_allclose(values, np.take_along_axis(scores, items - 1, axis=1), atol=1e-5)
    export(loaded.model, tokens, 8, tmp_path / "items.parquet", format="vectors")
    assert len(pd.read_parquet(tmp_path / "items.parquet")) == len(tokens) - 1


def test_resume_refuses_other_features(taste: Path, tmp_path: Path) -> None:
    given = keys(taste, tmp_path / "run")
    first = run("SASRecCE", "taste", config_dict=given)
    assert first["item_features"]["columns"] == {"class": {"type": "token_seq", "size": CLASSES + 2}}
    again = run("SASRecCE", "taste", config_dict={**given, "epochs": 2, "resume": True})
    assert again["epochs"] == 2
    file = taste / "taste" / "taste.item"
    assert load(tmp_path / "run").differences == []
    file.write_text(file.read_text().replace("c1 all", "c2 all"))
    with refused(CheckpointError, "item features"):
        run("SASRecCE", "taste", config_dict={**given, "epochs": 3, "resume": True})


def test_an_item_that_only_the_item_file_knows_is_scored(taste: Path, tmp_path: Path) -> None:
    with (taste / "taste" / "taste.item").open("a") as file:
        file.write("new\tc1 all\t1\t0 1 0 0 0 0\nodd\t\t\t\n")
    columns = {"inter": ["user_id", "item_id", "timestamp"], "item": ["item_id"]}
    run("HSASRecCE", "taste", config_dict=keys(taste, tmp_path / "run", load_col=columns))
    loaded = load(tmp_path / "run")
    assert loaded.store.n_items == CLASSES * PER_CLASS + 3
    assert np.isfinite(loaded.score([["i1", "new"]])).all()
    # nothing is known of "odd": its vector is zero, and zero is what the head scores it
    assert loaded.score([["i1"]], ["odd"]).item() == 0 != loaded.score([["i1"]], ["new"]).item()


def test_a_frame_has_no_features() -> None:
    frame = pd.DataFrame({"user_id": ["a"], "item_id": ["b"], "timestamp": [1]})
    with refused(ConfigError, "selected_features"):
        run("SASRecCE", interactions=frame, config_dict={"selected_features": ["class"]})
