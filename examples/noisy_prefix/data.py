"""Generates PREFIX-Z%: pairs of random sentences, in which the second is a noisy prefix of the first, or is not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from recbole_hyper.files import replaced

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class PrefixPairs:
    """Labelled pairs of sentences, right-padded with 0; word ids are 1..n_words."""

    first: npt.NDArray[np.integer]  # (n, max_words) uint8 or uint16 word ids
    second: npt.NDArray[np.integer]
    first_lengths: npt.NDArray[np.int64]  # (n,) numbers of words; the second sentence is never longer than the first
    second_lengths: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]  # (n,) 1 if the second sentence is a noisy prefix of the first, 0 if it is random

    def __len__(self) -> int:
        return len(self.labels)

    def save(self, path: Path) -> None:
        """Write to ``path`` (.npz), completely or not at all."""
        with replaced(path) as part, part.open("wb") as file:
            np.savez_compressed(file, **self.__dict__)

    @classmethod
    def load(cls, path: Path) -> PrefixPairs:
        """Read pairs that :meth:`save` wrote."""
        with np.load(path) as stored:
            return cls(**{name: stored[name] for name in stored.files})


def generate_pairs(
    n_pairs: int, *, noise: int, generator: np.random.Generator, n_words: int = 100, max_words: int = 20
) -> PrefixPairs:
    r"""Draw ``n_pairs`` labelled pairs, half of each class, in random order.

    Every first sentence is drawn with :math:`l_2 \sim U\{1..L\}`, :math:`l_1 = l_2 + U\{0..L-l_2\}` and uniform words
    (Ganea et al. 2018, section 4, as in their code). It occurs once with a random second sentence of :math:`l_2` words
    (class 0), and once with its own first :math:`l_2` words, of which :math:`\lfloor Z l_2/100 \rfloor` at random
    positions are drawn again (class 1). A draw may give the same word, and prefixes shorter than 100/Z have no noise.
    Z is ``noise`` in percent, L is ``max_words``. ValueError for an argument out of range.
    """
    if n_pairs <= 0 or n_pairs % 2:
        raise ValueError(f"n_pairs={n_pairs} must be even and above 0 (half of each class)")
    if not 0 <= noise <= 100:
        raise ValueError(f"noise={noise} must be a percentage from 0 to 100")
    if not 1 <= n_words <= 65535 or max_words < 1:
        raise ValueError(f"n_words={n_words} must be 1 to 65535, max_words={max_words} at least 1")
    half = n_pairs // 2
    dtype = np.uint8 if n_words < 256 else np.uint16
    second_lengths = generator.integers(1, max_words + 1, half)
    first_lengths = second_lengths + generator.integers(0, max_words - second_lengths + 1)
    columns = np.arange(max_words)
    in_second = columns < second_lengths[:, None]

    def words() -> npt.NDArray[np.integer]:
        return generator.integers(1, n_words + 1, (half, max_words), dtype=dtype)

    first = words() * (columns < first_lengths[:, None])
    unrelated = words() * in_second
    # noise goes to the positions with the smallest random keys in the second sentence
    keys = np.where(in_second, generator.random((half, max_words), dtype=np.float32), 2.0)
    order = np.argsort(np.argsort(keys, axis=1), axis=1)
    noisy = order < (noise * second_lengths // 100)[:, None]
    prefix = np.where(noisy, words(), first) * in_second
    shuffled = generator.permutation(n_pairs)
    return PrefixPairs(
        first=np.concatenate([first, first])[shuffled].astype(dtype),
        second=np.concatenate([unrelated, prefix])[shuffled].astype(dtype),
        first_lengths=np.concatenate([first_lengths, first_lengths])[shuffled],
        second_lengths=np.concatenate([second_lengths, second_lengths])[shuffled],
        labels=np.repeat(np.arange(2), half)[shuffled],
    )


def load_or_generate(
    folder: Path,
    *,
    noise: int,
    seed: int,
    n_train: int = 500_000,
    n_valid: int = 10_000,
    n_test: int = 10_000,
    n_words: int = 100,
    max_words: int = 20,
) -> dict[str, PrefixPairs]:
    """Return train, valid and test pairs of PREFIX-``noise``%; the first call generates them and writes ``folder``.

    The file names contain seed and sizes, so that other settings never read the wrong file. The splits have independent
    generators: their first sentences are drawn separately.
    """
    counts = dict(zip(SPLITS, (n_train, n_valid, n_test), strict=True))
    seeds = np.random.SeedSequence([seed, noise]).spawn(len(SPLITS))
    pairs = {}
    for split, source in zip(SPLITS, seeds, strict=True):
        name = f"{split}-n{counts[split]}-w{n_words}-l{max_words}-seed{seed}.npz"
        path = folder / f"prefix-{noise}" / name
        if path.exists():
            pairs[split] = PrefixPairs.load(path)
            continue
        generator = np.random.default_rng(source)
        pairs[split] = generate_pairs(
            counts[split], noise=noise, generator=generator, n_words=n_words, max_words=max_words
        )
        pairs[split].save(path)
    return pairs
