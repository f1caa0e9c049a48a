r"""Markdown extension of the pages: $...$ and $$...$$ become MathML, which browsers draw without any script.

``make docs`` puts this folder on Python's path, and mkdocs.yml lists ``formulas`` among its extensions.
"""

import re
from typing import Any

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor


def _mathml(latex: str, display: str = "inline") -> str:
    """Return a formula as MathML, without blanks inside the bars of |x|."""
    bar = "&#x0007C;</mo>"
    return convert(latex, display=display).replace(f'<mo stretchy="false">{bar}', f'<mo lspace="0" rspace="0">{bar}')


class _Inline(InlineProcessor):
    """``$x$`` inside a line; as in Pandoc, "$5 and $6" is no formula."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:  # type: ignore[override]
        return self.md.htmlStash.store(_mathml(m[1])), m.start(0), m.end(0)


class _Block(Preprocessor):
    """``$$`` on separate lines around a formula."""

    def run(self, lines: list[str]) -> list[str]:
        def stash(match: re.Match[str]) -> str:
            formula = _mathml(match[1].strip(), "block")
            # on a telephone a long formula scrolls by itself
            return "\n" + self.md.htmlStash.store(f'<div style="overflow-x: auto">{formula}</div>') + "\n"

        return re.sub(r"^\$\$\n(.+?)\n\$\$$", stash, "\n".join(lines), flags=re.DOTALL | re.MULTILINE).split("\n")


class Formulas(Extension):
    """The extension that mkdocs.yml names."""

    def extendMarkdown(self, md: Markdown) -> None:
        # after code blocks have been put aside (25), and before emphasis and escapes
        md.preprocessors.register(_Block(md), "formula_blocks", 20)
        md.inlinePatterns.register(_Inline(r"\$(?!\s)([^$\n]+?)(?<!\s)\$(?!\d)", md), "formulas", 185)


def makeExtension(**options: Any) -> Formulas:
    """Return the extension; Python-Markdown looks for this name."""
    return Formulas(**options)
