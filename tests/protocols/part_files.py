"""What the tests of files and of parts share."""

from pathlib import Path

import numpy as np

from tests.conftest import HEADER, write_inter
from tests.protocols.splits import Triple
from tests.reference import protocols as reference

NAMES = ["train", "valid", "test"]


def write_parts(folder: Path, parts: list[list[tuple]], header: str = HEADER, names: list[str] = NAMES) -> Path:
    """Write ``folder/d/d.NAME.inter`` for each part and return ``folder``."""
    for name, rows in zip(names, parts, strict=True):
        write_inter(folder, "d", rows, header, name)
    return folder


def random_parts(seed: int = 3, users: int = 30) -> list[list[Triple]]:
    """Return interactions of one time order divided among three files, some users in the first or the last alone."""
    generator = np.random.default_rng(seed)
    parts: list[list[Triple]] = [[], [], []]
    for user in range(users):
        for time in generator.choice(500, size=int(generator.integers(2, 20)), replace=False).tolist():
            number = 0 if user < 2 else 2 if user == 2 else int(generator.choice(3, p=[0.7, 0.15, 0.15]))
            parts[number].append((f"u{user:02d}", f"i{generator.integers(0, 25):02d}", float(time)))
    return parts


def in_order(parts: reference.Parts) -> reference.Parts:
    return {user: items for user, items in parts[0].items() if items}, sorted(parts[1]), sorted(parts[2])
