"""Keys and weights of the small runs of these tests."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.conftest import SMALL


def settings(path: Path, out: Path, **keys: object) -> dict:
    return {**SMALL, "data_path": str(path), "epochs": 6, "output_dir": str(out), **keys}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(str(folder / "model.safetensors"))


def same(one: Path, two: Path) -> bool:
    """Return whether two runs have the same weights, bit for bit."""
    first, second = weights(one), weights(two)
    return set(first) == set(second) and all(torch.equal(first[name], second[name]) for name in first)
