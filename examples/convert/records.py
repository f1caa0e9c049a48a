"""SNAP's reviews, lines ``key: value`` with a blank line between, to JSON lines: Beeradvocate.txt.gz NAME.jsonl"""

import gzip
import json
import sys

source, target = sys.argv[1:]
with gzip.open(source, "rt", errors="replace") as old, open(target, "w") as new:
    record: dict[str, str] = {}
    for key, sign, value in (line.rstrip("\n").partition(": ") for line in [*old, "\n"]):
        if not sign and record:
            new.write(json.dumps(record) + "\n")
        record = record | {key: value} if sign else {}
