"""A run as an ONNX graph, a torch program and item vectors: the package's own scores, for batches never traced."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

from recbole_hyper import load, run
from recbole_hyper.cli import main
from recbole_hyper.errors import ConfigError
from recbole_hyper.files import file_digest
from recbole_hyper.geometry.base import Geometry
from recbole_hyper.geometry.euclidean import Euclidean
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.geometry.poincare import Poincare
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.serving.export import OPSET, Graph, ScoreTable, export, trace
from tests.conftest import SMALL
from tests.models.fitting import built
from tests.models.test_rank import filled
from tests.raising import refused

LENGTH = 8
SHORT = {"MAX_ITEM_LIST_LENGTH": 2}  # a recurrence is unrolled: each step is traced
Made = Callable[..., tuple[HyperRecommender, np.ndarray]]


@pytest.fixture
def made(random_data: Path) -> Made:
    """Return a function that builds an untrained model over "random" and gives it with its item ids."""

    def make(name: str, **keys: Any) -> tuple[HyperRecommender, np.ndarray]:
        settings = {**SMALL, "hidden_size": 8, "MAX_ITEM_LIST_LENGTH": LENGTH, "eval_args": {"mode": "full"}, **keys}
        model, _, split, _ = built(name, "random", {"data_path": str(random_data), **settings})
        # norms and biases that are not those of the start, and item vectors as long as trained ones
        for parameter in model.parameters():
            with torch.no_grad():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return model.eval(), split.store.item_tokens

    return make


def histories(batch: int, length: int, n_items: int) -> tuple[Tensor, Tensor]:
    lengths = torch.randint(1, length + 1, (batch,))
    lengths[-1] = length
    items = torch.randint(1, n_items, (batch, length))
    return items.masked_fill(torch.arange(length) >= lengths[:, None], 0), lengths


def asked_of(model: HyperRecommender, batch: int, length: int) -> tuple[Tensor, ...]:
    """Items and lengths of histories, and times where the encoder reads them."""
    items, lengths = histories(batch, length, model.head.n_items)
    if not model.encoder.reads_times:
        return items, lengths
    gaps = torch.exp(20 * torch.rand(batch, length, dtype=torch.float64)).round()
    return items, lengths, (1.5e9 + gaps.cumsum(1)).masked_fill(items == 0, 0.0)


def feeds(*given: Tensor) -> dict[str, np.ndarray]:
    """Name inputs by their kind: float64 are times, the third of integers is what is excluded."""
    floats, integers = ([one.numpy() for one in given if one.is_floating_point() == kind] for kind in (True, False))
    names = ("item_id_list", "item_length", "seen_items")
    return dict(zip(names, integers, strict=False)) | dict(zip(("timestamp_list",), floats, strict=False))


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        pytest.param("SASRecCE", {"item_bias": True}, marks=pytest.mark.slow),
        ("HSASRecCE", {"curvature": 1e-8}),  # asinh of numbers near 0, which Log(1 + x) would lose
        ("HSTU", {"n_heads": 2}),
        # the filter of FMLP is in the graphs of the memory, too
        pytest.param("FMLPRec", {}, marks=pytest.mark.slow),
        pytest.param("DualRec", {}, marks=pytest.mark.slow),
        pytest.param("GRU4RecCE", {"MAX_ITEM_LIST_LENGTH": 3}, marks=pytest.mark.slow),
        pytest.param("FuXi", {"n_layers": 2, "n_heads": 2}, marks=pytest.mark.slow),
        pytest.param("HGRU4Rec", {"curvature": 0.5}, marks=pytest.mark.slow),
    ],
)
def test_onnx_gives_the_packages_recommendations(name: str, keys: dict[str, Any], made: Made, tmp_path: Path) -> None:
    model, tokens = made(name, **keys)
    n_items, longest = model.head.n_items, keys.get("MAX_ITEM_LIST_LENGTH", LENGTH)
    export(model, tokens, longest, tmp_path / "model.onnx", top_k=7, exclude_seen=True)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for batch, length in ((1, 1), (5, longest), (4, longest - 1)):
        items, *more = given = asked_of(model, batch, length)
        with torch.no_grad():
            scores = model.head.logits(model(*given))
        # more than the history: what is excluded may come from anywhere
        seen = torch.cat([items, torch.randint(0, n_items, (batch, 3))], dim=1)
        found, values = session.run(None, feeds(items, *more, seen))
        scores.scatter_(1, seen, -torch.inf)[:, 0] = -torch.inf
        np.testing.assert_allclose(values, scores.topk(7).values, atol=1e-4)
        np.testing.assert_allclose(values, scores.gather(1, torch.from_numpy(found)), atol=1e-4)
    if name == "HSASRecCE":
        refuses_impossible_inputs(lambda *given: session.run(None, feeds(*given)), n_items)


def refuses_impossible_inputs(call: Callable[..., Any], n_items: int) -> None:
    """A length beyond the width repeated the last item, and a negative number counted items from the end."""
    items, lengths, seen = torch.tensor([[3, 5, 0], [7, 2, 9]]), torch.tensor([2, 3]), torch.tensor([[4, 0], [1, 2]])
    assert len(call(items, lengths, seen)[0]) == 2
    # a list ends where all items are excluded
    found, values = map(np.asarray, call(items, lengths, torch.arange(2, n_items).repeat(2, 1)))
    assert (found[:, 0].tolist(), found[:, 1:].any()) == ([1, 1], False)
    assert np.isinf(values[:, 1:]).all()
    assert len(call(items, torch.tensor([0, 3]), seen)[0]) == 2
    wrong = [(items, torch.tensor([2, 4]), seen), (items, torch.tensor([-1, 3]), seen), (-items, lengths, seen),
             (items + n_items, lengths, seen), (items, lengths, -seen)]  # fmt: skip
    for given in wrong:
        with pytest.raises(Exception, match=r"(?i)out of|bounds|range|INVALID_ARGUMENT"):
            call(*given)


@pytest.mark.parametrize(
    ("more", "format"),
    [
        ({"memory_ease": True}, "onnx"),
        # tables without weights could not be saved
        ({"memory_ease": False, "memory_rerank": False}, "program"),
        pytest.param({"memory_ease": False, "memory_rerank": False}, "onnx", marks=pytest.mark.slow),
        pytest.param({"memory_ease": True}, "program", marks=pytest.mark.slow),
        pytest.param({"memory_ease": False}, "program", marks=pytest.mark.slow),
    ],
)
def test_a_memory_is_part_of_the_graph(more, format, random_data, tmp_path, caplog) -> None:
    keys = {"data_path": str(random_data), "output_dir": str(tmp_path / "run"), "epochs": 1, **more}
    run("FMLPRecMemory", "random", config_dict={**SMALL, **keys, "memory_window": 3, "memory_neighbours": 6})
    loaded = load(tmp_path / "run")
    loaded.model.ranking.ranker.numbers.copy_(filled().numbers)
    loaded.scorer.score = loaded.model.case_scorer(loaded.config)
    tokens, length, n_items = loaded.store.item_tokens, int(loaded.config["MAX_ITEM_LIST_LENGTH"]), loaded.store.n_items
    numbers = [[3], [5, 5, 9, 5], list(range(1, length + 1)), list(range(20, 20 + length + 5)), [7, 8] * length]
    histories = [tokens[history].tolist() for history in numbers]
    items = torch.nn.utils.rnn.pad_sequence([torch.tensor(history) for history in numbers], batch_first=True)
    lengths = torch.tensor([len(history) for history in numbers])
    without_seen = more == {"memory_ease": True}
    top_k = 4 if without_seen else n_items - 1
    file = tmp_path / ("model.onnx" if format == "onnx" else "model.pt2")
    export(loaded.model, tokens, length, file, format=format, top_k=top_k, exclude_seen=without_seen)
    given = (items, lengths, items) if without_seen else (items, lengths)
    if format == "onnx":
        found, values = onnxruntime.InferenceSession(file).run(None, feeds(*given))
    else:
        found, values = (one.numpy() for one in torch.no_grad()(torch.export.load(file).module())(*given))
    wanted = loaded.recommend(histories=histories, k=top_k, exclude_seen=without_seen)
    np.testing.assert_allclose(values.ravel(), wanted["score"], atol=1e-4)
    scores = loaded.score(histories)
    np.testing.assert_allclose(values, np.take_along_axis(scores, found - 1, axis=1), atol=1e-4)
    assert not without_seen or tokens[found].ravel().tolist() == wanted["item_id"].tolist()
    assert "without its memory" not in caplog.text
    with refused(ConfigError, "FMLPRecMemory", "--format=onnx", "--top_k"):
        export(loaded.model, tokens, length, tmp_path / "items.parquet", format="vectors")
    if not without_seen:
        export(loaded.model, tokens, length, tmp_path / "encoder.pt2", format="program")
        assert "the graph is the network of FMLPRecMemory without its memory" in caplog.text


def test_large_tables_are_in_a_file_beside_the_graph(made: Made, tmp_path: Path, monkeypatch) -> None:
    """A graph of more than 2 GiB was refused."""
    model, tokens = made("SASRecCE")
    file, data = tmp_path / "model.onnx", tmp_path / "model.onnx.data"
    given = feeds(*histories(4, 6, model.head.n_items))
    with monkeypatch.context() as patch:
        patch.setattr("recbole_hyper.serving.export._LARGEST", 1000)
        about = export(model, tokens, LENGTH, file, top_k=5)
    assert (about["data"], about["data_sha256"]) == (data.name, file_digest(data))
    assert data.stat().st_size > model.item_embedding.weight.nbytes
    before = onnxruntime.InferenceSession(file).run(None, given)
    size = file.stat().st_size + data.stat().st_size
    assert "data" not in export(model, tokens, LENGTH, file, top_k=5)
    assert not data.exists()
    # the item vectors of encoder and head are there once
    assert file.read_bytes().count(model.item_embedding.weight.detach().numpy().tobytes()) == 1
    assert size < 1.2 * file.stat().st_size
    np.testing.assert_array_equal(before, onnxruntime.InferenceSession(file).run(None, given))
    data.write_bytes(b"of somebody else")
    with refused(ConfigError, data.name):
        export(model, tokens, LENGTH, file, top_k=5)


def test_an_exported_encoder_is_described(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, tokens = made("SASRecCE")
    model.train()
    content = export(model, tokens, LENGTH, tmp_path / "new" / "encoder.onnx")
    assert model.training
    model.eval()
    file = tmp_path / "new" / "encoder.onnx"
    session = onnxruntime.InferenceSession(file)
    items, lengths = histories(9, 5, model.head.n_items)
    with torch.no_grad():
        states = model(items, lengths)
    np.testing.assert_allclose(session.run(["states"], feeds(items, lengths))[0], states, atol=1e-4)
    written = onnx.load(file)
    assert [entry.version for entry in written.opset_import if not entry.domain] == [OPSET]
    texts = {entry.key: entry.value for entry in written.metadata_props}
    assert texts["recbole_hyper.opset"] == str(OPSET)
    assert texts["recbole_hyper.inputs"] == "item_id_list item_length"
    assert json.loads((tmp_path / "new" / "encoder.onnx.json").read_text()) == content | {
        "inputs": list(content["inputs"])
    } | {"outputs": ["states"]}
    assert content["item_ids"] == tokens[1:].tolist()
    assert content["sha256"] == file_digest(file)


@pytest.mark.parametrize("name", ["SASRecCE", "HSTU"])
def test_a_program_gives_the_packages_scores(name: str, made: Made, tmp_path: Path) -> None:
    """Every encoder is traced below."""
    model, tokens = made(name)
    export(model, tokens, LENGTH, tmp_path / "model.pt2", format="program", top_k=5, exclude_seen=True)
    program = torch.no_grad()(torch.export.load(tmp_path / "model.pt2").module())
    for batch, length in ((1, 1), (6, LENGTH - 1)):
        given = asked_of(model, batch, length)
        with torch.no_grad():
            scores = model.head.logits(model(*given))
        found, values = program(*given, given[0])
        scores.scatter_(1, given[0], -torch.inf)[:, 0] = -torch.inf
        torch.testing.assert_close(values, scores.topk(5).values, atol=1e-4, rtol=0)
        torch.testing.assert_close(values, scores.gather(1, found), atol=1e-4, rtol=0)
    if name == "SASRecCE":
        refuses_impossible_inputs(program, model.head.n_items)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("SASRecCE", {"norm_placement": "pre", "n_layers": 2}),
        ("SASRecCE", {"attend_pads": True}),
        ("eSASRec", {"n_heads": 2}),
        ("HSTU", {"n_heads": 2, "attention_dim": 3, "linear_dim": 5, "n_layers": 2}),
        pytest.param("FuXi", {"n_heads": 2, "attention_dim": 3, "linear_dim": 5}, marks=pytest.mark.slow),
        pytest.param("SASRecCE", {"norm_placement": "post", "hidden_act": "gelu"}, marks=pytest.mark.slow),
        ("DualRec", {"dual_directions": "future", "relative_positions": "learned"}),
        pytest.param(
            "DualRec", {"dual_windows": [2, 2, 3, 3], "n_heads": 4, "window_at_eval": False}, marks=pytest.mark.slow
        ),
        ("DualRec", {"dual_windows": [2, 2, 3, LENGTH], "n_heads": 4, "relative_positions": "none"}),
        ("DualGRU4Rec", {"dual_directions": "shared", **SHORT}),
        ("DualSASRec", {}),
        ("DualFMLPRec", {"filter": "circular"}),
        ("FMLPRecCE", {"MAX_ITEM_LIST_LENGTH": 7}),
        pytest.param("BSARec", {"n_heads": 2, "filter": "causal"}, marks=pytest.mark.slow),
        ("BSARec", {"n_heads": 2, "filter": "circular"}),
        ("GRU4RecCE", {"n_layers": 2, "gru_bias": True, "gru_size": 12, **SHORT}),
        ("HGRU4Rec", {"nonlinearity": "tanh", "reset": "after", "curvature": "learn", "curvature_init": 0.5, **SHORT}),
    ],
)
def test_every_option_of_an_encoder_is_traced(name: str, keys: dict[str, Any], made: Made) -> None:
    model, _ = made(name, **keys)
    length = keys.get("MAX_ITEM_LIST_LENGTH", LENGTH)
    program = trace(Graph(model, length)).module()
    for batch, width in ((1, 1), (5, length)):
        given = asked_of(model, batch, width)
        with torch.no_grad():
            torch.testing.assert_close(program(*given), model(*given), atol=1e-5, rtol=1e-5)
    # a longer history is that of its newest items
    items, lengths, *times = asked_of(model, 3, 3 * length)
    lengths[1:] = torch.tensor([length + 1, 2])
    items[1, length + 1 :], items[2, 2:] = 0, 0
    with torch.no_grad():
        found = program(items, lengths, *times)
        for row, count in enumerate(lengths.tolist()):
            part = slice(max(0, count - length), count)
            given = items[row : row + 1, part], lengths[row : row + 1].clamp(max=length)
            wanted = model(*given, *(time[row : row + 1, part] for time in times))
            torch.testing.assert_close(found[row : row + 1], wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("geometry", [Euclidean, Poincare])
@pytest.mark.parametrize("scale", [0.01, 1.0, 40.0])
def test_a_traced_head_serves_states_of_every_size(geometry: type[Geometry], scale: float) -> None:
    head = OutputHead(geometry(), nn.Parameter(torch.randn(30, 6)), offset=True, theta=0.7)
    nn.init.normal_(cast(Tensor, head.offset))
    states = scale * torch.randn(9, 6)
    with torch.no_grad():
        program = torch.export.export(ScoreTable(head), (states,)).module()
        torch.testing.assert_close(program(states), head.logits(states), atol=1e-4, rtol=1e-5)


def by_formula(about: dict[str, Any], vectors: np.ndarray, factors: dict[str, Any], states: np.ndarray) -> np.ndarray:
    """Score as the JSON says, in float64."""
    if "curvature" not in about or about["curvature"] is None:
        query = states if about["query"].startswith("q = F,") else np.pad(states, ((0, 0), (0, 1)), constant_values=1.0)
        return query @ vectors.T
    norm = np.linalg.norm(states, axis=1, keepdims=True)
    s = np.sqrt(about["curvature"]) * norm
    query = np.sinh(2 * s) * states / norm
    if "-cosh(2s)" in about["query"]:
        query = np.hstack([query, -np.cosh(2 * s)])
    return np.asarray(factors["scale"]) * np.arcsinh(np.asarray(factors["gain"]) * (query @ vectors.T))


@pytest.mark.parametrize("name", ["SASRecCE", "HSASRecCE"])
@pytest.mark.parametrize("item_bias", [True, False])
def test_vectors_score_as_their_description_says(name: str, item_bias: bool, made: Made, tmp_path: Path) -> None:
    model, tokens = made(name, item_bias=item_bias, curvature=0.4)
    items, lengths = histories(6, 4, model.head.n_items)
    with torch.no_grad():
        states = model(items, lengths)
        wanted = model.head.logits(states)[:, 1:].numpy()
    export(model, tokens, LENGTH, tmp_path / "items.parquet", format="vectors")
    about = json.loads((tmp_path / "items.parquet.json").read_text())
    table = pq.read_table(tmp_path / "items.parquet").to_pydict()
    vectors = np.array(table["vector"], dtype=np.float32)
    assert about["metric"] == "inner_product"
    assert about["exact"] == (name == "SASRecCE")
    assert table["item_id"] == about["item_ids"] == tokens[1:].tolist()
    np.testing.assert_allclose(by_formula(about, vectors, table, states.double().numpy()), wanted, atol=1e-4)


def test_impossible_exports_are_refused_before_the_model_is_loaded(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("recbole_hyper.runs.load.load", lambda run: pytest.fail("the run was loaded"))
    monkeypatch.setattr("recbole_hyper.runs.load.read_run", lambda run: {})
    (tmp_path / "file").write_text("")

    def said(output: str, *options: str) -> str:
        assert main(["export", str(tmp_path), f"--output={tmp_path / output}", *options]) == 1
        return capsys.readouterr().err

    for output, option, named in (
        ("model.onnx", "--format=tflite", "--format=tflite"),
        ("model.onnx", "--format=program", ".pt2"),
        ("items.csv", "--format=vectors", ".parquet"),
        ("model.onnx", "--exclude_seen", "--top_k=K"),
        ("model.onnx", "--top_k=0", "--top_k=0"),
        ("file/model.onnx", "--format=onnx", "cannot be written to"),
    ):
        assert named in said(output, option)
    assert "--top_k" in said("items.parquet", "--format=vectors", "--top_k=3")
    (tmp_path / "result.json").write_text('{"model": "FMLPRecMemory", "n_items": 5}')
    assert "--format=onnx with --top_k" in said("items.parquet", "--format=vectors")
    assert "5 items" in said("model.onnx", "--top_k=6")
    (tmp_path / "result.json").write_text('{"model": "EASER", "n_items": 5}')
    assert "EASER has no encoder" in said("model.onnx", "--top_k=3")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert f"{tmp_path} cannot be written to" in said("model.onnx")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert "pip install 'recbole-hyper[export]'" in said("model.onnx")


def test_models_that_cannot_be_exported_are_refused(made, tmp_path) -> None:
    model, tokens = made("SASRecCE")
    n_items = len(tokens) - 1
    with refused(ConfigError, f"--top_k={n_items + 1}", f"{n_items} items"):
        export(model, tokens, LENGTH, tmp_path / "model.onnx", top_k=n_items + 1)
    with refused(ConfigError, f"{n_items} item ids"):
        export(model, tokens[1:], LENGTH, tmp_path / "model.onnx")
    with refused(ConfigError, "Linear", "encoder"):
        export(nn.Linear(2, 2), tokens, LENGTH, tmp_path / "model.onnx")
    model.encoder.last = lambda items, lengths: model.encoder(items, lengths)[:, int(lengths.max()) - 1]  # type: ignore
    with refused(ConfigError, "TransformerEncoder"):
        export(model, tokens, LENGTH, tmp_path / "model.onnx")
    assert list(tmp_path.glob("model*")) == []


def test_an_export_overwrites_only_exports(made: Made, tmp_path: Path) -> None:
    """The JSON of RUN/result.onnx replaced RUN/result.json, and model.onnx and model.pt2 shared one."""
    model, tokens = made("SASRecCE")
    (tmp_path / "result.json").write_text("{}")
    for name, format in (("result.pt2", "program"), ("result.parquet", "vectors"), ("result.parquet", "vectors")):
        content = export(model, tokens, LENGTH, tmp_path / name, format=format)
        assert json.loads((tmp_path / f"{name}.json").read_text())["sha256"] == content["sha256"]
    assert (tmp_path / "result.json").read_text() == "{}"
    with (tmp_path / "result.parquet").open("ab") as file:
        file.write(b"x")
    (tmp_path / "other.parquet").write_bytes(b"of somebody else")
    (tmp_path / "vectors.parquet.json").write_text('{"mine": 1}')
    (tmp_path / "link.parquet").symlink_to(tmp_path / "away.parquet")
    for name in ("result", "other", "vectors", "link"):
        with pytest.raises(ConfigError, match=r"not overwritten|is a link"):
            export(model, tokens, LENGTH, tmp_path / f"{name}.parquet", format="vectors")
    assert (tmp_path / "other.parquet").read_bytes() == b"of somebody else"
