"""Map of the items: the Poincare disk for a curved head, two principal components for a flat one."""

from typing import Any

import numpy as np
import numpy.typing as npt

# the page draws at most this many items: the most popular half, and a sample of the others
_POINTS = 3000


def item_map(
    vectors: npt.NDArray[np.float32] | None,
    counts: npt.NDArray[np.int64],
    item_tokens: npt.NDArray[np.str_],
    curvature: float | None,
) -> dict[str, Any]:
    """Return ids, coordinates, norms and training counts of at most 3,000 items; {} for a model without item vectors.

    On the disk, the distance from the origin is exact: tanh(sqrt(c) |z|) of the radius. The direction is that of two
    principal components, so angles between items are approximate.
    """
    if vectors is None or len(vectors) < 3 or vectors.shape[1] < 2:
        return {}
    numbers = np.arange(1, len(vectors))
    if len(numbers) > _POINTS:
        order = np.argsort(-counts[1:], kind="stable") + 1
        rest = np.random.default_rng(0).choice(order[_POINTS // 2 :], _POINTS - _POINTS // 2, replace=False)
        numbers = np.sort(np.concatenate([order[: _POINTS // 2], rest]))
    chosen = vectors[numbers].astype(np.float64)
    norms = np.linalg.norm(chosen, axis=1)
    centred = chosen - chosen.mean(axis=0)
    _, values, axes = np.linalg.svd(centred, full_matrices=False)
    places = (chosen if curvature is not None else centred) @ axes[:2].T
    if curvature is not None:
        lengths = np.maximum(np.linalg.norm(places, axis=1), np.finfo(float).tiny)
        places = places / lengths[:, None] * np.tanh(np.sqrt(curvature) * norms)[:, None]
    else:
        places = places / max(np.abs(places).max(), np.finfo(float).tiny)
    share = float((values[:2] ** 2).sum() / max((values**2).sum(), np.finfo(float).tiny))
    return {
        "disk": curvature is not None,
        "curvature": curvature,
        "share": round(share, 4),
        "items": item_tokens[numbers].tolist(),
        "x": np.round(places[:, 0], 5).tolist(),
        "y": np.round(places[:, 1], 5).tolist(),
        "norm": np.round(norms, 5).tolist(),
        "count": counts[numbers].tolist(),
    }
