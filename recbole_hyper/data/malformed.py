"""Lines that cannot be read: how many, and which are the first."""

from __future__ import annotations

from recbole_hyper.errors import DataError

SHOWN = 5
# past this many unreadable lines, more than half of everything, the file is of another format
HOPELESS = 10_000


class Malformed:
    """Counter of the unreadable lines of the file ``name``, or of a piece of it, which keeps the first ones.

    ``max_share`` is the largest accepted share of them among all lines, 0 to 1; ``part`` is the file of a folder.
    """

    def __init__(self, name: str, max_share: float = 1.0, part: str = "") -> None:
        if not 0 <= max_share <= 1:
            raise DataError(f"max_malformed={max_share} is not a share; give a number from 0 to 1, such as 0.001")
        self.name = name
        self.max_share = max_share
        self.part = part
        self.count = 0
        self.good = 0
        self.examples: list[tuple[int, str, str]] = []

    def add(self, line: int, reason: str, text: str) -> None:
        """Count one unreadable line (numbered from 1) and keep it where it is among the first."""
        self.count += 1
        reason = f"{self.part}: {reason}" if self.part else reason
        if len(self.examples) < SHOWN:
            self.examples.append((line, reason, text if len(text) <= 120 else text[:117] + "..."))

    def merge(self, piece: Malformed) -> None:
        """Add the counts of the next piece; DataError where most of a long file cannot be read."""
        self.count += piece.count
        self.good += piece.good
        self.examples = (self.examples + sorted(piece.examples))[:SHOWN]
        if self.count > HOPELESS and self.count > self.good and self.max_share < 0.5:
            self.check()

    def listing(self) -> str:
        """Return the first unreadable lines, one below the other, in the order of the file."""
        return "\n".join(f"  line {line}: {reason}: {text!r}" for line, reason, text in self.examples)

    def check(self) -> None:
        """Raise DataError where the share of unreadable lines is above the accepted one, or nothing was read."""
        total = self.count + self.good
        if self.count > self.max_share * total:
            raise DataError(
                f"{self.name}: {self.count:,} of {total:,} lines cannot be read ({self.count / total:.2%}, "
                f"accepted {self.max_share:.2%}). The first ones:\n{self.listing()}\n"
                "Check that the file is of the format named by --format, or accept more by --max_malformed=SHARE"
            )
        if self.good == 0:
            raise DataError(f"{self.name} holds no interactions; check that the download is complete")


class Refused(Malformed):
    """Accepts no unreadable line: the first one is an error with its ``place``."""

    def __init__(self, name: str, place: str = "line {}") -> None:
        super().__init__(name)
        self.place = place

    def add(self, line: int, reason: str, text: str) -> None:
        """Raise DataError."""
        raise DataError(f"{self.name}, {self.place.format(line)}: {reason}" + (f": {text[:120]!r}" if text else ""))

    def skip(self, line: int) -> None:
        """Count a row that is left out, and keep the first of its line numbers."""
        self.count += 1
        self.examples = sorted([*self.examples, (line, "", "")])[:1]
