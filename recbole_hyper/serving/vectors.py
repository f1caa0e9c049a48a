"""Item vectors for a vector database: search by inner product, then the exact score from two numbers per item."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from recbole_hyper.errors import ConfigError
from recbole_hyper.files import replaced
from recbole_hyper.geometry.cosine import Cosine
from recbole_hyper.geometry.euclidean import Euclidean
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.geometry.poincare import Poincare

Floats = npt.NDArray[np.float32]


class ItemVectors(NamedTuple):
    """What an export of vectors holds; row j is item number j + 1, since padding is left out.

    The ``vectors`` (n, width) are for a search by inner product. ``factors`` are per item, by name (n,), none where
    that product is the score. ``description`` says metric, query and score in words and formulas.
    """

    vectors: Floats
    factors: dict[str, Floats]
    description: dict[str, Any]


def vectors_of(head: OutputHead) -> ItemVectors:
    """Return the item vectors of ``head`` and how a state is scored by them; ConfigError for an unknown geometry."""
    with torch.no_grad():
        weight, offset, curvature = head.weight.detach().cpu().float(), head.offset, head.curvature_value
        offset = None if offset is None else offset.detach().cpu().float()
        vectors = head.geometry.search_items(weight, offset, curvature=curvature)[1:].numpy()
        if isinstance(head.geometry, Euclidean | Cosine):
            temperature = head.geometry.temperature
            plain = "F" if temperature == 1 else f"F/{temperature:g}"
            state = f"F/({temperature:g} |F|)" if isinstance(head.geometry, Cosine) else plain
            query = f"[{state}, 1]" if offset is not None else state
            return ItemVectors(vectors, {}, {
                "metric": "inner_product",
                "query": f"q = {query}, F the state (d,) that the encoder gives",
                "score": "<q, vector>",
                "exact": True,
            })  # fmt: skip
        if not isinstance(head.geometry, Poincare):
            raise ConfigError(f"{type(head.geometry).__name__}: how its vectors are scored is not known to this export")
        # in float64: cosh and sinh of large offsets
        weight, offset = weight.double(), None if offset is None else offset.double()
        terms = head.geometry.lift_items(weight, offset, curvature=curvature)
        scale = terms.scale
        assert scale is not None
        gain = terms.vectors(weight).norm(dim=-1) / scale
    query = "[sinh(2s) F/|F|, -cosh(2s)]" if offset is not None else "sinh(2s) F/|F|"
    factors = {"scale": scale[1:].float().numpy(), "gain": gain[1:].float().numpy()}
    return ItemVectors(vectors, factors, {
        "metric": "inner_product",
        "curvature": curvature,
        "query": f"q = {query} with s = sqrt(curvature) |F|, F the state (d,) that the encoder gives; any positive "
        "multiple of q gives the same order",
        "score": "scale * asinh(gain * <q, vector>)",
        "exact": False,
        "note": "the order of <q, vector> is near that of the score, not equal: take more candidates than needed and "
        "order them by the score",
    })  # fmt: skip


def write_vectors(found: ItemVectors, item_tokens: Sequence[str] | npt.NDArray[Any], path: Path) -> dict[str, Any]:
    """Write vectors (.npy) or item_id, vector and factors (.parquet); returns what the JSON beside it says.

    The factors stand in the JSON where the file has no place for them.
    """
    described = {**found.description, "dimension": found.vectors.shape[1], "first_item_number": 1}
    with replaced(path) as part, part.open("wb") as file:
        if path.suffix == ".npy":
            np.save(file, found.vectors)
            described |= {name: values.tolist() for name, values in found.factors.items()}
        else:
            import pyarrow as pa
            import pyarrow.parquet as pq

            flat = pa.array(np.ascontiguousarray(found.vectors).ravel())
            columns = {
                "item_id": pa.array([str(token) for token in item_tokens[1:]]),
                "vector": pa.FixedSizeListArray.from_arrays(flat, found.vectors.shape[1]),
                **{name: pa.array(values) for name, values in found.factors.items()},
            }
            pq.write_table(pa.table(columns), file)
    return described
