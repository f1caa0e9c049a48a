"""One leave-one-out split of a RecBole dataset as plain files, the same for all peers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from recbole_hyper.config import Config
from recbole_hyper.files import read_json, replaced_folder, write_json
from recbole_hyper.runs.build import read_data
from recbole_hyper.types import Cases

META = "meta.json"
Table = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PeerSplit:
    """A split on disk and in memory; users and items are numbered from 1.

    Peers read ``folder/train.tsv`` (user, item, position), ``valid.tsv`` (the validation targets, part of the history
    in the test) and ``test_users.tsv``. The test targets are in ``folder/held_out/targets.tsv``, which no peer reads.

    Attributes:
        folder: folder of the files.
        meta: dataset, data_fingerprint, n_items (including 0 for padding), counts.
        train: (n, 3) user, item and position of the training part.
        valid: (n, 3) the same for the validation targets.
        test: (n, 3) the same for the test targets.
    """

    folder: Path
    meta: dict
    train: Table
    valid: Table
    test: Table

    def targets(self, part: str) -> Table:
        """Return (n, 3) user, item and position of the targets of "valid" or "test"."""
        return self.valid if part == "valid" else self.test

    def seen(self, part: str) -> Table:
        """Return (n, 3) user, item and position of the items in the histories of "valid" or "test"."""
        return self.train if part == "valid" else np.concatenate([self.train, self.valid])


def make_split(folder: Path, dataset: str, data_path: str | None, config_files: list[str] | None = None) -> PeerSplit:
    """Split a dataset by our leave-one-out, with ties in file order, and write the files below ``folder``.

    Existing files of the same data are left alone.
    """
    settings = {} if data_path is None else {"data_path": data_path}
    config = Config("SASRecCE", dataset, config_file_list=config_files, config_dict=settings)
    data, split = read_data(config)
    store = data.store
    meta = {
        "dataset": dataset,
        "data_fingerprint": store.fingerprint(),
        "n_items": store.n_items,
        "users": store.n_rows,
        "train": int(split.train_lengths.sum()),
        "valid": len(split.valid),
        "test": len(split.test),
    }
    place = folder / f"{dataset}-{meta['data_fingerprint'][:12]}"
    owners = np.repeat(np.arange(store.n_rows), split.train_lengths) + 1
    index = store.prefix_index(split.train_lengths)
    train = np.stack([owners, store.items[index], store.positions[index]], axis=1).astype(np.int64)
    made = PeerSplit(place, meta, train, _targets(split.valid), _targets(split.test))
    if not (place / META).is_file() or read_json(place / META) != meta:
        _write(made)
    return made


def _targets(cases: Cases) -> Table:
    return np.stack([cases.rows + 1, cases.targets, cases.ends], axis=1).astype(np.int64)


def _write(split: PeerSplit) -> None:
    with replaced_folder(split.folder) as part:
        (part / "held_out").mkdir()
        tables = {"train.tsv": split.train, "valid.tsv": split.valid, "held_out/targets.tsv": split.test}
        for name, rows in tables.items():
            np.savetxt(part / name, rows, fmt="%d", delimiter="\t", header="user\titem\tposition", comments="")
        np.savetxt(part / "test_users.tsv", split.test[:, 0], fmt="%d", header="user", comments="")
        write_json(part / META, split.meta)
