"""Item vectors for a vector database: search by inner product, then the exact score from two numbers per item."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from recbole_hyper.errors import ConfigError
from recbole_hyper.files import replaced
from recbole_hyper.geometry.base import Geometry
from recbole_hyper.geometry.head import OutputHead

Floats = npt.NDArray[np.float32]


class ItemVectors(NamedTuple):
    """Vectors (n, width) for a search by inner product; row j is item number j + 1, without padding.

    ``factors`` are numbers per item, by name (n,), if the product is not the score. ``description`` has metric, query
    and score in words and formulas.
    """

    vectors: Floats
    factors: dict[str, Floats]
    description: dict[str, Any]


def vectors_of(head: OutputHead) -> ItemVectors:
    """Return the item vectors of ``head`` and how a state is scored by them.

    ConfigError for a geometry with a link that does not say how its score follows.
    """
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


def write_vectors(found: ItemVectors, item_tokens: Sequence[str] | npt.NDArray[Any], path: Path) -> dict[str, Any]:
    """Write item_id, vector and factors as parquet; returns what the JSON beside the file says."""
    flat = pa.array(np.ascontiguousarray(found.vectors).ravel())
    columns = {
        "item_id": pa.array([str(token) for token in item_tokens[1:]]),
        "vector": pa.FixedSizeListArray.from_arrays(flat, found.vectors.shape[1]),
        **{name: pa.array(values) for name, values in found.factors.items()},
    }
    with replaced(path) as part:
        pq.write_table(pa.table(columns), part)
    return {**found.description, "dimension": found.vectors.shape[1], "first_item_number": 1}
