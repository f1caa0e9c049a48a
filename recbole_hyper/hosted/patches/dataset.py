"""RecBole's dataset: files are read the same way, and missing values filled, under every version of pandas."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def _load_feat(self: Any, filepath: str, source: Any) -> pd.DataFrame | None:
    """``Dataset._load_feat``: :mod:`recbole_hyper.data.tables.atomic` reads the values exactly as they are in the file.

    The original joins lines between quotation marks, drops ids such as NA and, under pandas 3, fails on empty
    sequences. In RecBole's own runs, as there, an empty id is missing, and a line of another width is cut or filled.
    """
    from recbole.utils import FeatureSource, FeatureType

    from recbole_hyper.data.tables import atomic
    from recbole_hyper.host.dataset import StoreDataset

    load_col, unload_col = self._get_load_and_unload_col(source)
    if load_col == set():
        return None
    separator, encoding = self.config["field_separator"], self.config["encoding"]
    columns: dict[str, str] = {}
    for field, type_name in atomic.typed_header(Path(filepath), separator, encoding).items():
        if (load_col is not None and field not in load_col) or (unload_col is not None and field in unload_col):
            continue
        kind = FeatureType(type_name)
        if isinstance(source, FeatureSource) or source != "link":
            self.field2source[field] = source
            self.field2type[field] = kind
            self.field2seqlen[field] = 1  # of sequences the longest, below
            if "float" in kind.value:
                self.field2bucketnum[field] = 2
        columns[field] = type_name
    if not columns:
        self.logger.warning(f"No columns has been loaded from [{source}]")
        return None
    frame = atomic.read_atomic(
        Path(filepath),
        columns,
        ids=(self.uid_field, self.iid_field),
        separator=separator,
        seq_separator=self.config["seq_separator"],
        encoding=encoding,
        lenient=not isinstance(self, StoreDataset),
    )
    for field, type_name in columns.items():
        if type_name.endswith("seq"):
            length = max(map(len, frame[field]), default=0)
            limit = (self.config["seq_len"] or {}).get(field, length)
            frame[field] = frame[field].map(lambda value, limit=limit: value[:limit])
            self.field2seqlen[field] = min(limit, length)
    return frame


def _fill_nan(self: Any) -> None:
    """``Dataset._fill_nan`` changes the frame, so that a missing token becomes id 0 and not -2**63."""
    import numpy as np
    import pandas as pd
    from recbole.utils import FeatureType

    for name in self.feat_name_list:
        frame = getattr(self, name)
        for field in frame:
            kind = self.field2type[field]
            if kind == FeatureType.TOKEN:
                frame[field] = frame[field].fillna(0).astype(np.int64)
            elif kind == FeatureType.FLOAT:
                frame[field] = frame[field].fillna(frame[field].mean())
            else:
                empty = np.array([], dtype=np.int64 if kind == FeatureType.TOKEN_SEQ else np.float64)
                filled = [empty if isinstance(value, float) else value for value in frame[field]]
                frame[field] = pd.Series(filled, index=frame.index, dtype=object)


def _len(value: Any) -> Any:
    """``len`` in RecBole's modules, which expect the length of each cell from ``Series.agg(len)``, as in pandas 1."""
    import pandas as pd

    return value.map(len) if isinstance(value, pd.Series) else len(value)


def patch_len(module: Any) -> None:
    """Sequence columns are remapped, normalized and discretized by the length of each cell."""
    module.len = _len


def patch_dataset(module: Any) -> None:
    """Files are read the same way under every version of pandas, and ``fillna`` works on the frame."""
    for method in (_load_feat, _fill_nan):
        setattr(module.Dataset, method.__name__, method)
    patch_len(module)
