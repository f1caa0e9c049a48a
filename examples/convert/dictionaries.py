"""A Python dictionary a line (Steam, BeerAdvocate of the McAuley lab) to JSON lines: FILE.json.gz FILE.jsonl"""

import ast
import gzip
import json
import sys

source, target = sys.argv[1:]
with (gzip.open if source.endswith(".gz") else open)(source, "rt", encoding="utf-8") as old, open(target, "w") as new:
    for line in old:
        new.write(json.dumps(ast.literal_eval(line)) + "\n")
