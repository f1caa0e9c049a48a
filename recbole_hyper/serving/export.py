"""Files with which other programs run a model: ONNX graphs, torch programs and item vectors.

Beside NAME.onnx, NAME.onnx.json has inputs, outputs, and the original item ids in the order of the item numbers.
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

OPSET = 20
WRITTEN_BY = "recbole-hyper export"
Tokens = Sequence[str] | npt.NDArray[Any]
#: ending of the file, by format
SUFFIXES = {"onnx": ".onnx", "program": ".pt2", "vectors": ".parquet"}
# a protobuf file ends at 2 GiB
_LARGEST = (1 << 31) - (64 << 20)


class ScoreTable(nn.Module):
    """The head with items lifted once: states of any size to the scores of all items."""

    def __init__(self, head: OutputHead) -> None:
        super().__init__()
        self.geometry, self.curvature, self.offset = head.geometry, head.curvature_value, head.offset is not None
        with torch.no_grad():
            # exponents are always factored out: a graph cannot decide by values
            terms = head.geometry.lift_items(head.weight, head.offset, curvature=self.curvature, factored=True)
            vectors = terms.vectors(head.weight.detach())
        self.register_buffer("vectors", vectors)
        self.register_buffer("scale", terms.scale)
        self.register_buffer("exponent", terms.exponent)

    vectors: Tensor
    scale: Tensor | None
    exponent: Tensor | None

    def forward(self, states: Tensor) -> Tensor:
        """Return the scores (B, n_items) of states (B, d)."""
        lifted = self.geometry.lift_states(states, curvature=self.curvature, offset=self.offset, factored=True)
        terms = ItemTerms(scale=self.scale, exponent=self.exponent)
        return self.geometry.combine(lifted, terms, self.vectors)


class Graph(nn.Module):
    """Histories, and times where the encoder reads them, to the states (B, d) at their newest ``max_length`` items.

    With ``scores`` it gives the scores (B, n_items) of all items, column 0 padding. With ``top_k`` it gives the best
    items (B, k) and their scores, best first, item 0 and -inf where fewer are left, and with ``exclude_seen`` none of
    the items of a last input, seen_items (B, S). Inputs are item_id_list (B, L) of any length, right-padded with 0,
    item_length (B,), and timestamp_list (B, L) float64 for an encoder that reads times.
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
        # the encoder holds the table without owning it
        self.item_embedding, self.encoder = model.item_embedding, model.encoder
        self.table = ScoreTable(model.head) if scores or top_k else None
        self.max_length, self.top_k = max_length, top_k
        self.read = ("item_id_list", "item_length", *(("timestamp_list",) if model.encoder.reads_times else ()))
        self.inputs: tuple[str, ...] = (*self.read, *(("seen_items",) if top_k and exclude_seen else ()))
        self.outputs = ("items", "scores") if top_k else ("scores",) if scores else ("states",)

    def forward(self, *given: Tensor) -> Any:
        """Return the ``outputs`` for the ``inputs``."""
        items, lengths, *times = given[: len(self.read)]
        # always as wide as the model's longest history: torch can trace no encoder whose width is a minimum
        positions = torch.arange(self.max_length, device=items.device)
        kept = lengths.clamp(max=self.max_length)
        places = ((lengths - kept)[:, None] + positions).clamp(max=items.shape[1] - 1)
        padding = positions >= kept[:, None]
        newest, *moments = (column.gather(1, places).masked_fill(padding, 0) for column in (items, *times))
        states = self.encoder.last(newest, kept, *moments)
        if self.table is None:
            return states
        scores = self.table(states)
        if self.top_k is None:
            return scores
        excluded = torch.cat((torch.zeros_like(lengths).unsqueeze(1), *given[len(self.read) :]), dim=1)
        values, best = scores.scatter(1, excluded, -torch.inf).topk(self.top_k, dim=1)
        return torch.where(values == -torch.inf, 0, best), values


def trace(graph: Graph) -> ExportedProgram:
    """Return the program of ``graph`` for every number of histories and every length."""
    device = next(graph.parameters()).device
    # two rows at least: torch takes a size of 1 for a constant
    width = 3
    items = torch.ones(2, width, dtype=torch.int64, device=device)
    lengths = torch.tensor([width, 1], device=device)
    items[1, 1:] = 0
    batch, length = Dim("batch"), Dim("length")
    given = {
        "item_id_list": (items, {0: batch, 1: length}),
        "item_length": (lengths, {0: batch}),
        "timestamp_list": (torch.zeros(2, width, dtype=torch.float64, device=device), {0: batch, 1: length}),
        "seen_items": (torch.zeros(2, 4, dtype=torch.int64, device=device), {0: batch, 1: Dim("seen")}),
    }
    tensors, sizes = zip(*(given[name] for name in graph.inputs), strict=True)
    with torch.no_grad():
        return torch.export.export(graph, tensors, dynamic_shapes={"given": sizes}, strict=False)


def check_request(format: str, output: str | Path, *, top_k: int | None = None, exclude_seen: bool = False) -> Path:
    """Return the file that an export will write, before the model is loaded; ConfigError for what cannot be written."""
    if format not in SUFFIXES:
        raise ConfigError(f"--format={format} is unknown; known: {', '.join(SUFFIXES)}")
    path = Path(output)
    if path.suffix != SUFFIXES[format]:
        raise ConfigError(f"--output={output}: --format={format} needs a file that ends in {SUFFIXES[format]}")
    if format == "vectors" and (top_k is not None or exclude_seen):
        raise ConfigError("--format=vectors takes neither --top_k nor --exclude_seen: they belong to onnx and program")
    if exclude_seen and top_k is None:
        raise ConfigError("--exclude_seen needs --top_k=K: an encoder alone names no items")
    if top_k is not None:
        positive_int("--top_k", top_k)
    if format == "onnx":
        require("export", "--format=onnx", "onnx", "onnxscript")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(f"no permission to write to {path.parent}")
    except OSError as error:
        raise ConfigError(f"--output={output}: {path.parent} cannot be written to ({error})") from error
    described = description_of(path)
    ours = is_written_by(WRITTEN_BY, described)
    own = ours and path.is_file() and read_json(described).get("sha256") == file_digest(path)
    require_own(path, lambda _: own, "an export with its JSON beside it")
    require_own(described, lambda _: ours, "the description of an export")
    return path


def description_of(path: Path) -> Path:
    """Return where the JSON of an exported file is."""
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
    """Write a trained model for other programs; returns what the JSON beside the file says.

    The graph of a model that reads times has an input ``timestamp_list`` (B, L) float64 for them.

    Args:
        model: a model with an encoder and a head.
        item_tokens: (n_items,) original ids; entry 0 is padding.
        max_length: newest items of a history that the encoder reads.
        output: the file; its JSON has the same name with .json after it.
        format: ``onnx`` (onnxruntime), ``program`` (``torch.export.load``) or ``vectors`` (.parquet).
        top_k: number of items that the graph recommends; None exports only the encoder, which gives states.
        exclude_seen: the graph has a last input, ``seen_items`` (B, S), and recommends none of these items.

    ConfigError: see :func:`check_request`; a model without an encoder, item ids of another model, a ``top_k`` above the
    number of items, a graph that torch cannot export, or tables above 2 GiB.
    """
    path = check_request(format, output, top_k=top_k, exclude_seen=exclude_seen)
    if not isinstance(model, HyperRecommender):
        raise ConfigError(f"{type(model).__name__} has no encoder with a head; only such models can be exported")
    if not model.scores_by_head and (top_k is not None or format == "vectors"):
        raise ConfigError(
            f"{type(model).__name__} scores by more than states and item vectors: --top_k and --format=vectors would "
            "leave its memory out; use 'recbole-hyper recommend'"
        )
    if model.head.weight.device.type != "cpu":
        # torch writes graphs of a CPU's tensors alone
        model = copy.deepcopy(model).cpu()
    n_items = model.head.n_items
    if len(item_tokens) != n_items:
        raise ConfigError(f"{len(item_tokens)} item ids do not fit a model of {n_items} (padding included)")
    if top_k is not None and top_k >= n_items:
        raise ConfigError(f"--top_k={top_k} asks for more items than the {n_items - 1} there are")
    named = {
        "written_by": WRITTEN_BY,
        "format": format,
        "model": type(model).__name__,
        "versions": versions(),
        "n_items": n_items - 1,
        "max_length": int(max_length),
        "curvature": model.head.curvature_value if model.head.geometry.curved else None,
    }
    if format == "vectors":
        content = named | write_vectors(vectors_of(model.head), item_tokens, path)
    else:
        described = write_graph(model, path, format, int(max_length), top_k=top_k, exclude_seen=exclude_seen)
        content = named | described | {"top_k": top_k}
    content["sha256"] = file_digest(path)
    content["item_ids"] = [str(token) for token in item_tokens[1:]]
    write_json(description_of(path), content)
    return content


def write_graph(model: HyperRecommender, path: Path, format: str, max_length: int, **options: Any) -> dict[str, Any]:
    """Write the :class:`Graph` of ``model``, and return its description; ConfigError if torch cannot."""
    training = model.training
    model.eval()
    try:
        graph = Graph(model, max_length, **options)
        size = sum(tensor.nbytes for tensor in (*graph.parameters(), *graph.buffers()))
        if format == "onnx" and size > _LARGEST:
            raise ConfigError(
                f"tables of {size / 2**30:.1f} GiB do not fit into an ONNX file, which ends at 2 GiB; export the "
                f"encoder alone (no --top_k) and the items by --format=vectors, or --format=program"
            )
        program = trace(graph)
        described: dict[str, Any] = {"inputs": graph.inputs, "outputs": graph.outputs}
        if format == "onnx":
            described["opset"] = OPSET
            _write_onnx(program, path, described)
        else:
            with replaced(path) as part, part.open("wb") as file:
                torch.export.save(program, file)  # a name would have to end in .pt2
        return described
    except (ConfigError, OSError):
        raise
    except Exception as error:  # torch raises many kinds for a graph that it cannot export
        encoder = type(model.encoder).__name__
        raise ConfigError(
            f"{encoder} cannot be exported: its last() must be traceable for every batch and length while "
            f"torch.compiler.is_exporting() ({type(error).__name__}: {str(error).strip().splitlines()[0]})"
        ) from error
    finally:
        model.train(training)


def _write_onnx(program: ExportedProgram, path: Path, described: dict[str, Any]) -> None:
    import onnxscript.optimizer

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # of packages and shapes that do not matter here
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        # torch's optimizer would drop x + 1e-30, which it takes for x + 0: then 0 / 0 appears
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
    with replaced(path) as part:
        made.save(str(part), external_data=False)


def _translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return what torch translates badly: log1p as Log(1 + x) has no digits left for small x."""
    from onnxscript import opset20 as op

    def log1p(x: Any) -> Any:
        one: Any = op.Constant(value_float=1.0)
        above: Any = op.Add(x, one)
        rounded: Any = op.Sub(above, one)
        exact = op.Equal(rounded, op.Constant(value_float=0.0))
        # what the sum lost, the ratio gives back
        return op.Where(exact, x, op.Mul(op.Log(above), op.Div(x, op.Where(exact, one, rounded))))

    return {torch.ops.aten.log1p.default: log1p}


Floats = npt.NDArray[np.float32]


class ItemVectors(NamedTuple):
    """Vectors (n, width) for a search by inner product; row j is item number j + 1, without padding.

    ``factors`` (n,) by name if the product is not the score; ``description`` has metric, query and score in words.
    """

    vectors: Floats
    factors: dict[str, Floats]
    description: dict[str, Any]


def vectors_of(head: OutputHead) -> ItemVectors:
    """Return the item vectors of ``head``; ConfigError for a geometry whose link does not say how its score follows."""
    geometry, curvature = head.geometry, head.curvature_value
    if geometry.has_link and geometry.search_score == Geometry.search_score:
        raise ConfigError(f"{type(geometry).__name__} has a link and no search_score: how its vectors score is unknown")
    weight, offset = head.weight.detach().cpu().float(), head.offset
    offset = None if offset is None else offset.detach().cpu().float()
    vectors = geometry.search_items(weight, offset, curvature=curvature)[1:].numpy()
    factors = geometry.search_factors(weight, offset, curvature=curvature)
    description = {
        "metric": "inner_product",
        "query": f"q = {geometry.search_query(offset=offset is not None)}, F the state (d,) that the encoder gives",
        "score": geometry.search_score,
        "exact": not geometry.has_link,
    }
    if geometry.curved:
        description["curvature"] = curvature
    if geometry.has_link:
        description["note"] = (
            "the order of <q, vector> is near that of the score, not equal: take more candidates than needed and order "
            "them by the score"
        )
    return ItemVectors(vectors, {name: values[1:].float().numpy() for name, values in factors.items()}, description)


def write_vectors(vectors: ItemVectors, item_tokens: Sequence[str] | npt.NDArray[Any], path: Path) -> dict[str, Any]:
    """Write item_id, vector and factors as parquet; return what the JSON beside the file says."""
    flat = pa.array(np.ascontiguousarray(vectors.vectors).ravel())
    columns = {
        "item_id": pa.array([str(token) for token in item_tokens[1:]]),
        "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.vectors.shape[1]),
        **{name: pa.array(values) for name, values in vectors.factors.items()},
    }
    with replaced(path) as part:
        pq.write_table(pa.table(columns), part)
    return {**vectors.description, "dimension": vectors.vectors.shape[1], "first_item_number": 1}
