"""RecBole's dataset: one reading of the files whatever the version of pandas, and what pandas 3 broke."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def _load_feat(self: Any, filepath: str, source: Any) -> pd.DataFrame | None:
    """``Dataset._load_feat``: values are taken as they stand in the file, by :mod:`recbole_hyper.data.atomic`.

    The original joins lines between quotation marks, drops ids such as NA and, under pandas 3, fails over an empty
    sequence. Lines of another width than the header are taken, with a warning.
    """
    from recbole.utils import FeatureSource, FeatureType

    from recbole_hyper.data import atomic

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
            if not kind.value.endswith("seq"):
                self.field2seqlen[field] = 1
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
        # RecBole takes such lines as far as they go; this package's own dataset names them
        lenient=not getattr(self, "refuses_faulty_lines", False),
    )
    for field, type_name in columns.items():
        if type_name.endswith("seq"):
            length = max(map(len, frame[field]), default=0)
            limit = (self.config["seq_len"] or {}).get(field, length)
            frame[field] = frame[field].map(lambda value, limit=limit: value[:limit])
            self.field2seqlen[field] = min(limit, length)
    return frame


def _fill_nan(self: Any) -> None:
    """``Dataset._fill_nan``: the fill reaches the frame, so a missing token becomes id 0 and not -2**63."""
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


def _remap(self: Any, remap_list: list) -> None:
    """``Dataset._remap``: sequence columns are split by their own lengths (``Series.agg(len)`` gives one number)."""
    import numpy as np
    import pandas as pd
    from recbole.utils import FeatureType

    if not remap_list:
        return
    parts = [
        np.concatenate([*frame[field], np.array([], dtype=object)])
        if kind == FeatureType.TOKEN_SEQ
        else frame[field].to_numpy(dtype=object)
        for frame, field, kind in remap_list
    ]
    ids, tokens = pd.factorize(np.concatenate(parts))
    tokens = np.array(["[PAD]", *tokens])
    token_id = {token: index for index, token in enumerate(tokens)}
    for (frame, field, kind), new_ids in zip(
        remap_list, np.split(ids + 1, np.cumsum([len(part) for part in parts])[:-1]), strict=True
    ):
        if field not in self.field2id_token:
            self.field2id_token[field] = tokens
            self.field2token_id[field] = token_id
        if kind == FeatureType.TOKEN_SEQ:
            pieces = np.split(new_ids, np.cumsum(frame[field].map(len))[:-1])
            frame[field] = pd.Series(pieces, index=frame.index, dtype=object)
        else:
            frame[field] = new_ids


def _normalize(self: Any) -> None:
    """``Dataset._normalize``: as the original, with sequence columns split by their own lengths."""
    import numpy as np
    import pandas as pd
    from recbole.utils import FeatureType

    if self.config["normalize_field"] is not None and self.config["normalize_all"] is True:
        raise ValueError("Normalize_field and normalize_all can't be set at the same time.")
    fields = self.config["normalize_field"] or (self.float_like_fields if self.config["normalize_all"] else [])
    for field in fields:
        if field not in self.field2type:
            raise ValueError(f"Field [{field}] does not exist.")
        kind = self.field2type[field]
        if kind not in (FeatureType.FLOAT, FeatureType.FLOAT_SEQ):
            self.logger.warning(f"{field} is not a FLOAT/FLOAT_SEQ feat, which will not be normalized.")
            continue
        for frame in self.field2feats(field):
            sequence = kind == FeatureType.FLOAT_SEQ
            values = np.concatenate(list(frame[field])) if sequence else frame[field].to_numpy(dtype=float)
            low, high = values.min(), values.max()
            scaled = (values - low) / (high - low) if high > low else np.ones_like(values)
            if sequence:
                pieces = np.split(scaled, np.cumsum(frame[field].map(len))[:-1])
                frame[field] = pd.Series(pieces, index=frame.index, dtype=object)
            else:
                frame[field] = scaled


def _benchmark_presets(self: Any) -> None:
    """``SequentialDataset._benchmark_presets``: a length per row instead of the length of the column."""
    from recbole.utils import FeatureSource, FeatureType

    suffix = self.config["LIST_SUFFIX"]
    for field in self.inter_feat:
        if field + suffix in self.inter_feat:
            setattr(self, f"{field}_list_field", field + suffix)
    self.set_field_property(self.item_list_length_field, FeatureType.TOKEN, FeatureSource.INTERACTION, 1)
    self.inter_feat[self.item_list_length_field] = self.inter_feat[self.item_id_list_field].map(len)


def patch_dataset(module: Any) -> None:
    """One reading of the files whatever the version of pandas, and what pandas 3 broke.

    recbole.data.dataset relies on ``fillna(inplace=True)`` through a column and on ``Series.agg(len)`` per cell.
    """
    for method in (_load_feat, _fill_nan, _remap, _normalize):
        setattr(module.Dataset, method.__name__, method)


def patch_sequential_dataset(module: Any) -> None:
    module.SequentialDataset._benchmark_presets = _benchmark_presets
