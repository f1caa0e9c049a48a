"""Keys and weights of the small runs of these tests."""

from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.conftest import small

settings = partial(small, epochs=6)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(str(folder / "model.safetensors"))


def same(one: Path, two: Path) -> bool:
    """Return whether two runs have the same weights, bit for bit."""
    first, second = weights(one), weights(two)
    return set(first) == set(second) and all(torch.equal(first[name], second[name]) for name in first)
