"""Maps work over the pieces of a table in threads, and counts the lines that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from recbole_hyper.data.tables import engine
from recbole_hyper.errors import DataError
from recbole_hyper.threads import Pool, default_threads

_SHOWN = 5

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def mapped(work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
    """Yield ``work(piece)`` in order, run in threads, with few pieces in memory."""
    with Pool(min(4, default_threads())) as pool:  # more would wait for the disk
        try:
            yield from pool.stream(work, pieces)
        except KeyboardInterrupt:  # the pool would wait for conditions that its threads evaluate
            engine.interrupt()
            raise


class Malformed:
    """Counts the unreadable lines of a file, or of the ``part`` of a folder; accepts ``max_share`` of all lines."""

    place = "line {}"  # how messages name a row

    def __init__(self, name: str, max_share: float = 1.0, part: str = "") -> None:
        if not 0 <= max_share <= 1:
            raise DataError(f"max_malformed={max_share} is not a share; use a number from 0 to 1, such as 0.001")
        self.name, self.max_share, self.part = name, max_share, part
        self.count = self.good = 0
        self.invalid = 0  # of the unreadable lines, those that meet a condition
        self.unmet = 0  # rows that do not meet a condition
        self.unknown = 0  # of these, those that lack a value which it compares
        self.examples: list[tuple[int, str, str]] = []

    def add(self, line: int, reason: str, text: str) -> None:
        """Count one unreadable line (numbered from 1) and keep the first few."""
        self.count += 1
        reason = f"{self.part}: {reason}" if self.part else reason
        if len(self.examples) < _SHOWN:
            self.examples.append((line, reason, text if len(text) <= 120 else text[:117] + "..."))

    def merge(self, piece: Malformed) -> None:
        """Add the counts of the next piece."""
        for key in ("count", "good", "invalid", "unmet", "unknown"):
            setattr(self, key, getattr(self, key) + getattr(piece, key))
        self.examples = (self.examples + sorted(piece.examples))[:_SHOWN]

    def listing(self) -> str:
        """Return the first unreadable lines, in the order of the file."""
        return "\n".join(f"  line {line}: {reason}: {text!r}" for line, reason, text in self.examples)

    def check(self) -> None:
        """Raise DataError if too many lines are unreadable, or none was read."""
        total, kept = self.count + self.good + self.unmet, self.invalid + self.good
        # rows that a condition leaves out say nothing about the others
        for count, of, what in ((self.count, total, "lines"), (self.invalid, kept, "rows that meet the condition")):
            if count <= self.max_share * of:
                continue
            raise DataError(
                f"{self.name}: {count:,} of {of:,} {what} cannot be read ({count / of:.2%}, "
                f"accepted {self.max_share:.2%}). The first ones:\n{self.listing()}\n"
                "Check that --format is the format of the file, or accept more lines by --max_malformed=SHARE"
            )
        if self.good == 0 and self.unmet:
            raise DataError(f"{self.name}: none of the {self.unmet:,} rows meets the condition; check --where")
        if self.good == 0:
            raise DataError(f"{self.name} has no interactions; check that the download is complete")


class Refused(Malformed):
    """Raises an error, with its ``place``, for the first unreadable line."""

    def __init__(self, name: str, place: str = "line {}") -> None:
        super().__init__(name)
        self.place = place

    def add(self, line: int, reason: str, text: str) -> None:
        """Raise DataError."""
        raise DataError(f"{self.name}, {self.place.format(line)}: {reason}" + (f": {text[:120]!r}" if text else ""))
