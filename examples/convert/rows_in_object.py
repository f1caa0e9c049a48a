"""Rows in an object of JSON (playlists) or in several arrays to JSON lines: FILE.json KEY TARGET.jsonl"""

import json
import sys
from pathlib import Path

source, key, target = sys.argv[1:]
text, decoder = Path(source).read_text(encoding="utf-8").strip(), json.JSONDecoder()
with open(target, "w") as new:
    while text:
        value, end = decoder.raw_decode(text)
        for row in value[key] if isinstance(value, dict) else value:
            new.write(json.dumps(row) + "\n")
        text = text[end:].lstrip()
