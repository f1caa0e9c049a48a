"""Check that every place that states the version states this one, and print the commands that publish it.

python .github/release.py 0.2.0
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# by file: the line that states the version
PLACES = {
    "pyproject.toml": r'^version = "(.+)"$',
    "recbole_hyper/__init__.py": r'^__version__ = "(.+)"$',
    "CITATION.cff": r"^version: (.+)$",
    "CHANGELOG.md": r"^## (\d+\.\d+\.\d+) \(\d{4}-\d{2}-\d{2}\)$",
}


def problems(version: str) -> list[str]:
    """Return what still has to be changed before ``version`` is released, one line each."""
    found = []
    for name, pattern in PLACES.items():
        match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
        stated = match[1] if match else "no version"
        if stated != version:
            found.append(f"{name} states {stated}, not {version}")
    return found


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python .github/release.py X.Y.Z")
    if lines := problems(sys.argv[1]):
        sys.exit("\n".join(lines))
    print(f"ready: git tag v{sys.argv[1]} && git push origin v{sys.argv[1]}")
