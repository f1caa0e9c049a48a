"""Pages, comments and docstrings use plain English: phrases that readers stumble over do not come back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# by phrase: what to write
PLAIN = {
    r"\b(is|are|be|was|were) told\b(?! apart)": "say who prints, warns or raises",
    r"\bof (one's|its|their|his) own\b": "'own loss', 'separate'",
    r"\bof (your|anyone's) own\b": "'your loss'",
    r"\bwhat becomes of\b": "name the thing",
    r"\bsays of\b": "'explains', 'lists'",
    r"\bhold(s)? (only|for|while)\b": "'apply'",
    r"\b(is|are|unless|if|was|where) asked for\b": "'requested', 'needed'",
    r"\bstands?\b(?! for)": "'is'",
    r"\b(in|into) the place of\b|\bin place of\b": "'instead of', 'replaces'",
    r"\bgoes? on\b": "'continue', 'resume'",
    r"\bmade anew\b": "'rebuilt'",
    r"\bby the way of\b": "'by', 'with'",
    r"\bthat is none\b|\bis no (number|whole number|list|finite)\b": "'is not a ...'",
    r"\bcounts for nothing\b|\bnothing is said\b|\bit speaks of\b": "say what it covers",
    r"\bas they (were|are) meant\b|\bof like (length|size)\b": "'similar'",
}
FOLDERS = (
    *("commands", "config", "curvature", "data", "data/prepare", "encoders", "evaluation", "experiment", "geometry"),
    *(
        "kernels",
        "losses",
        "models",
        "protocols",
        "report",
        "runs",
        "serving",
        "serving/page",
        "sweep",
        "training",
        ".",
    ),
)
FILES = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "results" / "readme_template.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "properties").rglob("*.yaml")),
    *sorted((ROOT / "results" / "pages").glob("*.yaml")),
    *(file for name in FOLDERS for file in sorted((ROOT / "recbole_hyper" / name).glob("*.py"))),
]


@pytest.mark.parametrize("phrase", PLAIN)
def test_a_phrase_is_not_used(phrase: str) -> None:
    found = []
    for file in FILES:
        lines = file.read_text(encoding="utf-8").splitlines()
        found += [
            f"{file.relative_to(ROOT)}:{n}: {line.strip()}"
            for n, line in enumerate(lines, 1)
            if re.search(phrase, line)
        ]
    assert not found, f"write {PLAIN[phrase]}:\n" + "\n".join(found)


def test_the_files_are_there() -> None:
    assert len(FILES) > 100
