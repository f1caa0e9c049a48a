"""One copy of the data for all processes: read and split once, saved as arrays that every process maps into memory.

Trials of a sweep get no test cases, so that no trial can use them.
"""

import dataclasses
from pathlib import Path
from typing import Any

from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.files import digest, locked, plain, read_json, write_json
from recbole_hyper.host.recbole_files import data_arguments
from recbole_hyper.options import DATA, SPLIT
from recbole_hyper.protocols.saved_split import load_split, save_split
from recbole_hyper.runs.build import read_data
from recbole_hyper.runs.dataset import SequenceDataset
from recbole_hyper.settings import SETTINGS, deciding
from recbole_hyper.types import Split

# keys that determine the data and its split
DATA_KEYS = sorted(
    {*data_arguments(), *deciding(DATA, SPLIT, among=SETTINGS), "dataset", "encoding"} - {"MAX_ITEM_LIST_LENGTH"}
)

# format of the saved files; increase it when they change, so that a resumed sweep does not map old ones
FORMAT = 5
COMPLETE = "shared.json"

_mapped: dict[Path, tuple[SequenceStore, Split]] = {}


def data_key(config: Any) -> str:
    """Return a digest of everything that determines the data and the split of a configuration."""
    keys = {key: plain(config[key], nan_to_null=False) for key in DATA_KEYS if key in config}
    return digest({**keys, "format": FORMAT})


def shared_data(config: Any, folder: Path) -> tuple[SequenceDataset, Split]:
    """Return data and split of ``config``, without test cases and refit part.

    The first process saves them in ``folder``, the others map its arrays. Data with features is read by each process.
    """
    target = folder / data_key(config)
    target.mkdir(parents=True, exist_ok=True)
    with locked(target / ".lock"):
        if not (target / COMPLETE).is_file():
            dataset, split = _read(config, test=False)
            if share(dataset, split, target):
                return dataset, split
    return mapped(config, target, test=False)


def share(dataset: SequenceDataset, split: Split, target: Path) -> bool:
    """Save data, training part and cases in ``target``; return whether there are features, which are not saved."""
    has_features = dataset.user_feat is not None or dataset.item_feat is not None
    save_split(target, dataset.store, split, link=True)
    # written last: if it exists, so do the others
    write_json(target / COMPLETE, {"has_features": has_features})
    return has_features


def mapped(config: Any, target: Path, *, test: bool) -> tuple[SequenceDataset, Split]:
    """Map what :func:`share` saved into memory; data with features is read again, with test cases if ``test``."""
    if read_json(target / COMPLETE)["has_features"]:
        return _read(config, test=test)
    if target not in _mapped:
        _mapped.clear()  # a process runs one trial at a time
        _mapped[target] = load_split(target)
    store, split = _mapped[target]
    # a run adds to the counts of its split
    return SequenceDataset(config, store), dataclasses.replace(split, counts=dict(split.counts))


def _read(config: Any, *, test: bool) -> tuple[SequenceDataset, Split]:
    dataset, split = read_data(config)
    return dataset, split if test else split.without_test()
