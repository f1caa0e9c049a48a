"""Runs, refits, sweeps and warm starts that are killed with SIGKILL, and whether they go on to the bit.

    python results/kills.py [NAME ...] [--most=N]

Each kill is two processes: one kills itself at the given point, the other resumes. ``kills.csv`` gets a row for each:
how both ended, whether all weights, states of training, metrics and epochs equal those of a run that was not killed,
and which unfinished files were left. Kills that have a row are not repeated. The points are those of
tests/training/test_kills.py.
"""

import argparse
import csv
import json
import tempfile
from pathlib import Path

from tests.conftest import cycle_rows, write_inter
from tests.training import test_kills as points

FILE = Path(__file__).with_suffix(".csv")
# what is killed: the points, what is asked besides, and the keys of the runs
KILLS = {
    "runs, between epochs": (points.MANY, None, {}),
    "runs and refits, inside epochs": (points.IN_EPOCHS, None, points.INSIDE),
    "sweeps, inside epochs": (points.IN_SWEEPS, {"space": points.SPACE}, points.OF_SWEEPS),
    "warm starts and refits, inside epochs": (points.IN_WARM_STARTS, {"warm": True}, points.INSIDE),
    "runs and refits on two workers, inside epochs": (points.IN_WORKERS, None, points.OF_WORKERS),
}


def main() -> None:
    """Run the kills that have no row yet, and print how many of all are equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(KILLS))
    parser.add_argument("--most", type=int, default=1000, help="kills to run in this call")
    options = parser.parse_args()
    rows = list(csv.DictReader(FILE.open(encoding="utf-8"))) if FILE.is_file() else []
    done = {(row["what"], row["point"]) for row in rows}
    for what in options.names:
        kills, about, keys = KILLS[what]
        left = [kill for kill in kills if (what, json.dumps(kill)) not in done][: options.most]
        options.most -= len(left)
        if left:
            with tempfile.TemporaryDirectory() as folder:
                data = write_inter(Path(folder) / "data", "cycle", cycle_rows())
                answers = points.answers_of(left, data, Path(folder), about=about, **keys)
            rows += [
                {"what": what, "point": json.dumps(kill), **answer} for kill, answer in zip(left, answers, strict=True)
            ]
            with FILE.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(rows[-1]))
                writer.writeheader()
                writer.writerows(rows)
        own = [row for row in rows if row["what"] == what]
        wanted = {name: str(value) for name, value in points.WANTED.items()}
        equal = sum(all(str(row[name]) == value for name, value in wanted.items()) for row in own)
        print(f"{what}: {equal} of {len(own)} equal, {len(kills)} points", flush=True)


if __name__ == "__main__":
    main()
