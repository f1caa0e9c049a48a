"""Export a model for other programs: ONNX graphs, torch programs and item vectors.

NAME.onnx.json, beside NAME.onnx, has inputs, outputs, and the original item ids in the order of the item numbers.
Tables of more than 1 GiB are in NAME.onnx.data, which belongs beside NAME.onnx.
"""

import copy
import logging
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from recbole_hyper.errors import ConfigError, positive_int, require
from recbole_hyper.evaluation.results import versions
from recbole_hyper.files import file_digest, is_written_by, read_json, replaced, require_own, write_json
from recbole_hyper.geometry.base import Geometry, ItemTerms
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.models.base import HyperRecommender

logger = logging.getLogger("recbole_hyper")

OPSET = 20
WRITTEN_BY = "recbole-hyper export"
Tokens = Sequence[str] | npt.NDArray[Any]
#: suffix of the file, by format
SUFFIXES = {"onnx": ".onnx", "program": ".pt2", "vectors": ".parquet"}
# an index beyond every table
_OUTSIDE = 1 << 40
# larger tables are in a file beside the graph: protobuf is limited to 2 GiB and reads a file as a whole
_LARGEST = 1 << 30


class ScoreTable(nn.Module):
    """The head with precomputed item terms: maps states to the scores of all items."""

    def __init__(self, head: OutputHead) -> None:
        super().__init__()
        self.geometry, self.theta, self.offset = head.geometry, head.theta_value, head.offset is not None
        with torch.no_grad():
            # always factor exponents out: a graph cannot branch on values
            terms = head.geometry.lift_items(head.weight, head.offset, theta=self.theta, factored=True)
            vectors = terms.vectors(head.weight.detach())
        self.register_buffer("vectors", vectors)
        self.register_buffer("scale", terms.scale)
        self.register_buffer("exponent", terms.exponent)

    vectors: Tensor
    scale: Tensor | None
    exponent: Tensor | None

    def forward(self, states: Tensor) -> Tensor:
        """Return the scores (B, n_items) of states (B, d)."""
        lifted = self.geometry.lift_states(states, theta=self.theta, offset=self.offset, factored=True)
        terms = ItemTerms(scale=self.scale, exponent=self.exponent)
        return self.geometry.combine(lifted, terms, self.vectors)


class Graph(nn.Module):
    """Maps the newest ``max_length`` items of histories to states (B, d).

    Inputs are item_id_list (B, L) of any length, right-padded with 0, item_length (B,), and timestamp_list (B, L)
    float64 if the encoder reads times. With ``scores`` the output is the scores (B, n_items) of all items, column 0
    padding. With ``top_k`` the outputs are the best items (B, k) and their scores, best first, filled up with item 0
    and -inf; ``exclude_seen`` adds the input seen_items (B, S), whose items are left out; 0 fills its rows up.

    The program that runs the graph raises an error for an item number or an item_length that is negative or too large.
    """

    def __init__(
        self,
        model: HyperRecommender,
        max_length: int,
        *,
        scores: bool = False,
        top_k: int | None = None,
        exclude_seen: bool = False,
    ) -> None:
        super().__init__()
        # the encoder refers to the embedding, but does not register it
        self.item_embedding, self.encoder = model.item_embedding, model.encoder
        self.table = ScoreTable(model.head) if scores or top_k else None
        self.mixture = model.score_table() if scores or top_k else None
        self.max_length, self.top_k = max_length, top_k
        read = ("item_id_list", "item_length", *(("timestamp_list",) if model.encoder.reads_times else ()))
        self.n_read = len(read)
        self.inputs: tuple[str, ...] = (*read, *(("seen_items",) if top_k and exclude_seen else ()))
        self.outputs = ("items", "scores") if top_k else ("scores",) if scores else ("states",)

    def forward(self, *inputs: Tensor) -> Any:
        """Return the ``outputs`` for the ``inputs``."""
        items, lengths, *times = inputs[: self.n_read]
        # always max_length wide: torch cannot trace an encoder whose width is a minimum
        positions = torch.arange(self.max_length)
        read_lengths = lengths.clamp(max=self.max_length)
        padding = (positions >= read_lengths[:, None]) & (lengths >= 0)[:, None]
        index = ((lengths - read_lengths)[:, None] + positions).masked_fill((lengths < 0)[:, None], _OUTSIDE)
        index = index.masked_fill(padding, 0)
        newest, *newest_times = (column.gather(1, index).masked_fill(padding, 0) for column in (items, *times))
        newest = _refused_if_negative(newest)
        states = self.encoder.last(newest, read_lengths, *newest_times)
        if self.table is None:
            return states
        scores = self.table(states)
        if self.mixture is not None:
            scores = self.mixture(scores, newest, read_lengths)
        if self.top_k is None:
            return scores
        seen = [_refused_if_negative(one) for one in inputs[self.n_read :]]
        excluded = torch.cat((torch.zeros_like(lengths).unsqueeze(1), *seen), dim=1)
        values, best = scores.scatter(1, excluded, -torch.inf).topk(self.top_k, dim=1)
        return torch.where(values == -torch.inf, 0, best), values


def _refused_if_negative(numbers: Tensor) -> Tensor:
    """Return item numbers; a negative one, which ONNX would count from the end, points outside of every table."""
    return numbers.masked_fill(numbers < 0, _OUTSIDE)


def trace(graph: Graph) -> ExportedProgram:
    """Return the program of ``graph``, on the CPU, for any number and length of histories."""
    # at least two rows: torch treats a size of 1 as a constant
    batch, length = Dim("batch"), Dim("length")
    examples = {
        "item_id_list": (torch.tensor([[1, 1, 1], [1, 0, 0]]), {0: batch, 1: length}),
        "item_length": (torch.tensor([3, 1]), {0: batch}),
        "timestamp_list": (torch.zeros(2, 3, dtype=torch.float64), {0: batch, 1: length}),
        "seen_items": (torch.zeros(2, 4, dtype=torch.int64), {0: batch, 1: Dim("seen")}),
    }
    tensors, sizes = zip(*(examples[name] for name in graph.inputs), strict=True)
    with torch.no_grad():
        return torch.export.export(graph, tensors, dynamic_shapes={"inputs": sizes}, strict=False)


def check_request(format: str, output: str | Path, *, top_k: int | None = None, exclude_seen: bool = False) -> Path:
    """Check an export before the model is loaded, and return its path; ConfigError if it cannot be written."""
    if format not in SUFFIXES:
        raise ConfigError(f"--format={format} is unknown; known: {', '.join(SUFFIXES)}")
    path = Path(output)
    if path.suffix != SUFFIXES[format]:
        raise ConfigError(f"--output={output}: --format={format} needs a file that ends in {SUFFIXES[format]}")
    if format == "vectors" and (top_k is not None or exclude_seen):
        raise ConfigError("--format=vectors takes neither --top_k nor --exclude_seen: they belong to onnx and program")
    if exclude_seen and top_k is None:
        raise ConfigError("--exclude_seen needs --top_k=K: without it the graph recommends no items")
    if top_k is not None:
        positive_int("--top_k", top_k)
    if format == "onnx":
        require("export", "--format=onnx", "onnx", "onnxscript")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK):
            raise PermissionError("no permission")
    except OSError as error:
        raise ConfigError(f"--output={output}: {path.parent} cannot be written to ({error})") from error
    described = description_of(path)
    ours = is_written_by(WRITTEN_BY, described)
    about = read_json(described) if ours else {}
    digests = {path: about.get("sha256"), data_of(path): about.get("data_sha256")}
    for file in digests:
        require_own(file, lambda one: file_digest(one) == digests[one], "an export with its JSON beside it")
    require_own(described, lambda _: ours, "the description of an export")
    return path


def check_model(model: type, n_items: int, format: str, top_k: int | None) -> None:
    """Check that a model of a class, with so many items, can be exported; ConfigError if not."""
    if not issubclass(model, HyperRecommender):
        raise ConfigError(f"{model.__name__} has no encoder with a head; only such models can be exported")
    if format == "vectors" and not model.scores_by_head:
        raise ConfigError(f"vectors cannot hold the memory of {model.__name__}; use --format=onnx with --top_k=K")
    if top_k is not None and top_k > n_items:
        raise ConfigError(f"--top_k={top_k}: the model has only {n_items} items")


def data_of(path: Path) -> Path:
    """Return the path of the tables of an ONNX graph that are too large for its file."""
    return path.with_name(f"{path.name}.data")


def description_of(path: Path) -> Path:
    """Return the path of the JSON of an exported file."""
    return path.with_name(f"{path.name}.json")


def export(
    model: Any,
    item_tokens: Tokens,
    max_length: int,
    output: str | Path,
    *,
    format: str = "onnx",
    top_k: int | None = None,
    exclude_seen: bool = False,
) -> dict[str, Any]:
    """Export a trained model, and return the content of the JSON beside the file.

    Args:
        model: a model with an encoder and a head.
        item_tokens: (n_items,) original ids; entry 0 is padding.
        max_length: number of newest items of a history that the encoder reads.
        output: path of the file; its JSON has the same name with .json appended.
        format: ``onnx`` (onnxruntime), ``program`` (``torch.export.load``) or ``vectors`` (.parquet).
        top_k: number of items to recommend; None exports only the encoder, which returns states.
        exclude_seen: add the input ``seen_items`` (B, S), whose items are left out.

    ConfigError: see :func:`check_request` and :func:`check_model`; item ids of another model, or a graph that torch
    cannot export.
    """
    path = check_request(format, output, top_k=top_k, exclude_seen=exclude_seen)
    check_model(type(model), len(item_tokens) - 1, format, top_k)
    if not model.scores_by_head and top_k is None:
        text = "the graph is the network of %s without its memory; --top_k=K exports both"
        logger.warning(text, type(model).__name__)
    n_items = model.head.n_items
    if len(item_tokens) != n_items:
        raise ConfigError(f"{len(item_tokens)} item ids do not fit a model of {n_items} (padding included)")
    about = {
        "written_by": WRITTEN_BY,
        "format": format,
        "model": type(model).__name__,
        "versions": versions(),
        "n_items": n_items - 1,
        "first_item_number": 1,
        "max_length": int(max_length),
        "curvature": model.head.curvature,
    }
    if format == "vectors":
        content = about | write_vectors(vectors_of(_on_cpu(model).head), item_tokens, path)
    else:
        content = about | write_graph(model, path, format, int(max_length), top_k=top_k, exclude_seen=exclude_seen)
        content["top_k"] = top_k
    content["sha256"] = file_digest(path)
    if data_of(path).is_file():
        content |= {"data": data_of(path).name, "data_sha256": file_digest(data_of(path))}
    content["item_ids"] = [str(token) for token in item_tokens[1:]]
    write_json(description_of(path), content)
    return content


def _on_cpu(model: HyperRecommender) -> HyperRecommender:
    """Return the model, or a copy of it on the CPU, where torch exports graphs."""
    if model.head.weight.device.type == "cpu":
        return model
    # with the tensors copied to the CPU already, no second copy is made on the device
    copied: dict[int, Any] = {id(one): nn.Parameter(one.detach().cpu()) for one in model.parameters()}
    copied |= {id(one): one.cpu() for one in model.buffers()}
    return copy.deepcopy(model, copied)


def write_graph(model: HyperRecommender, path: Path, format: str, max_length: int, **options: Any) -> dict[str, Any]:
    """Write the :class:`Graph` of ``model``, and return its description; ConfigError if torch cannot export it."""
    model = _on_cpu(model)
    training = model.training
    model.eval()
    try:
        graph = Graph(model, max_length, **options)
        program = trace(graph)
        described: dict[str, Any] = {"inputs": graph.inputs, "outputs": graph.outputs}
        if format == "onnx":
            described["opset"] = OPSET
            _write_onnx(program, path, described)
        else:
            with replaced(path) as part, part.open("wb") as file:
                torch.export.save(program, file)  # a path would have to end in .pt2
        return described
    except (ConfigError, OSError):
        raise
    except Exception as error:  # torch raises many types for a graph that it cannot export
        encoder = type(model.encoder).__name__
        raise ConfigError(
            f"{encoder} cannot be exported: its last() must be traceable for every batch and length while "
            f"torch.compiler.is_exporting() ({type(error).__name__}: {str(error).strip().splitlines()[0]})"
        ) from error
    finally:
        model.train(training)


def _write_onnx(program: ExportedProgram, path: Path, described: dict[str, Any]) -> None:
    import onnx_ir
    import onnxscript.optimizer

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns about packages and shapes that do not matter
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        # torch's optimizer would drop x + 1e-30 as if it were x + 0, and 0 / 0 would follow
        made = torch.onnx.export(
            program,
            dynamo=True,
            optimize=False,
            opset_version=OPSET,
            verbose=False,
            input_names=list(described["inputs"]),
            output_names=list(described["outputs"]),
            custom_translation_table=_translations(),
        )
        assert made is not None
        onnxscript.optimizer.fold_constants(made.model)
        onnxscript.optimizer.remove_unused_nodes(made.model)
    texts = {name: " ".join(value) if isinstance(value, tuple) else str(value) for name, value in described.items()}
    made.model.metadata_props.update({f"recbole_hyper.{name}": text for name, text in texts.items()})
    large = _tables_once(made.model.graph) > _LARGEST
    with replaced(path) as part:
        onnx_ir.save(made.model, part, external_data=data_of(path).name if large else None)
    if not large:
        data_of(path).unlink(missing_ok=True)


def _tables_once(graph: Any) -> int:
    """Let nodes share the tables that share memory, such as the item vectors of encoder and head; return all bytes."""
    kept: dict[Any, Any] = {}
    for name, value in tuple(graph.initializers.items()):
        table = getattr(value.const_value, "raw", None)
        if isinstance(table, Tensor):
            one = kept.setdefault((table.data_ptr(), table.dtype, table.shape, table.stride()), value)
            if one is not value:
                value.replace_all_uses_with(one)
                del graph.initializers[name]
    return sum(value.const_value.nbytes for value in kept.values())


def _translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Replace translations of torch: log1p as Log(1 + x) and expm1 as Exp(x) - 1 lose all digits of small x."""
    from onnxscript import opset20 as op

    def log1p(x: Any) -> Any:
        one: Any = op.Constant(value_float=1.0)
        above: Any = op.Add(x, one)
        rounded: Any = op.Sub(above, one)
        exact = op.Equal(rounded, op.Constant(value_float=0.0))
        # the ratio restores what the sum lost
        return op.Where(exact, x, op.Mul(op.Log(above), op.Div(x, op.Where(exact, one, rounded))))

    def expm1(x: Any) -> Any:
        one: Any = op.Constant(value_float=1.0)
        half: Any = op.Tanh(op.Mul(x, op.Constant(value_float=0.5)))
        # 2 t / (1 - t) with t = tanh(x / 2), which cancels only where exp(x) does not
        near = op.Div(op.Add(half, half), op.Sub(one, half))
        return op.Where(op.Less(x, one), near, op.Sub(op.Exp(x), one))

    return {torch.ops.aten.log1p.default: log1p, torch.ops.aten.expm1.default: expm1}


Floats = npt.NDArray[np.float32]


class ItemVectors(NamedTuple):
    """Vectors (n, width) for a search by inner product, without padding: row j is item number j + 1.

    ``factors`` (n,) by name turn the product into the score; ``description`` has metric, query and score in words.
    """

    vectors: Floats
    factors: dict[str, Floats]
    description: dict[str, Any]


def vectors_of(head: OutputHead) -> ItemVectors:
    """Return the item vectors of ``head``; ConfigError for a geometry with a link but no ``search_score``."""
    geometry, theta = head.geometry, head.theta_value
    if geometry.has_link and geometry.search_score == Geometry.search_score:
        raise ConfigError(f"{type(geometry).__name__} has a link but no search_score, so its vectors have no score")
    weight, offset = head.weight.detach().cpu().float(), head.offset
    offset = None if offset is None else offset.detach().cpu().float()
    vectors = geometry.search_items(weight, offset, theta=theta)[1:].numpy()
    factors = geometry.search_factors(weight, offset, theta=theta)
    description = {
        "metric": "inner_product",
        "query": f"q = {geometry.search_query(offset=offset is not None)}, F the state (d,) of the encoder",
        "score": geometry.search_score,
        "exact": not geometry.has_link,
    }
    if geometry.curved:
        description["curvature"] = theta
    if geometry.has_link:
        description["note"] = (
            "the order of <q, vector> is close to that of the score, but not equal: retrieve more candidates than "
            "needed and sort them by the score"
        )
    return ItemVectors(vectors, {name: values[1:].float().numpy() for name, values in factors.items()}, description)


def write_vectors(vectors: ItemVectors, item_tokens: Sequence[str] | npt.NDArray[Any], path: Path) -> dict[str, Any]:
    """Write item_id, vector and factors as parquet; return the entries of the JSON beside the file."""
    flat = pa.array(np.ascontiguousarray(vectors.vectors).ravel())
    columns = {
        "item_id": pa.array([str(token) for token in item_tokens[1:]]),
        "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.vectors.shape[1]),
        **{name: pa.array(values) for name, values in vectors.factors.items()},
    }
    with replaced(path) as part:
        pq.write_table(pa.table(columns), part)
    return {**vectors.description, "dimension": vectors.vectors.shape[1]}
