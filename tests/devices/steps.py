"""A step of training and a ranked batch of every model on the foreign device, with what they transfer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conftest import SMALL

NEGATIVES = {"n_negatives": 8}
BUCKETS = {"sce_bucket_size_y": 16, "sce_n_buckets": 6, "sce_bucket_size_x": 60}
# what a model needs on data of fifty items
OF_SMALL_DATA: dict[str, dict[str, Any]] = {
    **{model: NEGATIVES for model in ("HSTU", "FuXi", "SASRecBCEPlus", "SASRecSampledCE", "eSASRec", "gSASRec")},
    "SASRecSCE": BUCKETS,
    "HSASRecSCE": BUCKETS,
    "PureSVDN": {"rank": 8},
    **{model: {"n_heads": 2} for model in ("DualRec", "DualSASRec")},
}


def small_keys(model: str, data: Path, **keys: Any) -> dict[str, Any]:
    """Return the keys of a run on the small data set "random" of the fixture of that name."""
    return {
        **SMALL,
        **OF_SMALL_DATA.get(model, {}),
        "data_path": str(data),
        "eval_args": {"mode": "full"},
        "topk": [1, 5, 10],
        "valid_metric": "NDCG@10",
        "use_gpu": True,
        "stopping_step": 20,
        **keys,
    }
