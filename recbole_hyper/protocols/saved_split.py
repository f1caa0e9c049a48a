"""A split in a folder, which any number of processes map into memory: that of a run, and that of a sweep's trials.

sequences      all sequences, with the ids of users and items
training, valid, test    other sequences of these parts, if a protocol filtered them
FIELD.npy, PART.FIELD.npy    the arrays of the split, and of the cases of a part
split.json     which sequences each part has, and the other values; written last
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from recbole_hyper.data.sequences import SequenceStore, write_array
from recbole_hyper.files import read_json, write_json
from recbole_hyper.types import Cases, Split

ALL, ABOUT = "sequences", "split.json"


def save_split(folder: Path, store: SequenceStore, split: Split) -> None:
    """Write ``split`` and all sequences, ``store``, to ``folder``."""
    store.save(folder / ALL)
    saved, places = {store.fingerprint(): ALL}, {}
    for name, own in (("training", split.store), ("valid", split.valid.store), ("test", split.test.store)):
        if own.fingerprint() not in saved:
            own.save(folder / name)
            saved[own.fingerprint()] = name
        places[name] = saved[own.fingerprint()]
    cases = [(f"{name}.", vars(part)) for name, part in (("valid", split.valid), ("test", split.test)) if len(part)]
    for prefix, values in (("", vars(split)), *cases):
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                write_array(folder / f"{prefix}{name}.npy", np.ascontiguousarray(value))
    others = {name: value for name, value in vars(split).items() if isinstance(value, dict)}
    write_json(folder / ABOUT, {"stores": places, "values": others})


def load_split(folder: Path) -> tuple[SequenceStore, Split]:
    """Map what :func:`save_split` wrote into memory, also without split.json, as earlier versions wrote it."""
    about = read_json(folder / ABOUT) if (folder / ABOUT).is_file() else {"stores": {}, "values": {}}
    places = {"training": "training" if (folder / "training").is_dir() else ALL, **about["stores"]}
    stores = {place: SequenceStore.load(folder / place) for place in {ALL, *places.values()}}

    def arrays(kind: Any, prefix: str = "") -> dict[str, Any]:
        files = {one.name: folder / f"{prefix}{one.name}.npy" for one in fields(kind)}
        return {name: np.load(file, mmap_mode="r") for name, file in files.items() if file.is_file()}

    def cases(part: str) -> Cases:
        found = arrays(Cases, f"{part}.")
        owner = stores[places.get(part, places["training"])]
        return Cases(owner, **found) if found else Cases.build(owner, [], [])

    values = {**arrays(Split), **about["values"]}
    return stores[ALL], Split(stores[places["training"]], valid=cases("valid"), test=cases("test"), **values)
