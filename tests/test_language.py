"""Pages, comments and docstrings use plain English: phrases that readers stumble over do not come back."""

import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# by phrase: what to write
PLAIN = {
    r"\btold\b(?! apart)": "say who prints, warns or raises",
    r"\bof (one's|its|their|his) own\b": "'own loss', 'separate'",
    r"\bof (your|anyone's) own\b": "'your loss'",
    r"\bwhat becomes of\b": "name the thing",
    r"\bsays of\b": "'explains', 'lists'",
    r"\bhold(s)? (only|for|while)\b": "'apply'",
    r"\b(is|are|unless|if|was|where) asked for\b": "'requested', 'needed'",
    r"\bstands?\b(?! for)": "'is'",
    r"\b(in|into) the place of\b|\bin place of\b": "'instead of', 'replaces'",
    r"\bgoes? on\b": "'continue', 'resume'",
    r"\w anew\b": "'again', 'rebuilt'",
    r"\bby the way of\b": "'by', 'with'",
    r"\bthat is none\b|\bis no (number|whole number|list|finite)\b": "'is not a ...'",
    r"\bcounts for nothing\b|\bnothing is said\b|\bit speaks of\b": "say what it covers",
    r"\bas they (were|are) meant\b|\bof like (length|size)\b": "'similar'",
}
FILES = [
    *(
        ROOT / name
        for name in (
            "README.md",
            "CONTRIBUTING.md",
            "results/readme_template.md",
            "examples/README.md",
            "paper/paper.md",
            "paper/preprint.tex",
            "paper/tables.py",
        )
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "properties").rglob("*.yaml")),
    *sorted((ROOT / "results" / "pages").glob("*.yaml")),
    *sorted((ROOT / "results").glob("*.py")),
    *(
        file
        for name in ("recbole_hyper", "tests", "benchmarks", "examples", "docs")
        for file in sorted((ROOT / name).rglob("*.py"))
        if file != Path(__file__)
    ),
]


@functools.cache
def texts() -> dict[Path, str]:
    return {file: file.read_text(encoding="utf-8") for file in FILES}


@pytest.mark.parametrize("phrase", PLAIN)
def test_a_phrase_is_not_used(phrase: str) -> None:
    found = []
    for file, text in texts().items():
        for match in re.finditer(phrase, text):
            line = text.count("\n", 0, match.start())
            found.append(f"{file.relative_to(ROOT)}:{line + 1}: {text.splitlines()[line].strip()}")
    assert not found, f"write {PLAIN[phrase]}:\n" + "\n".join(found)


def test_the_files_are_there() -> None:
    assert len(FILES) > 600
