r"""Markdown extension of the pages: $...$ and $$...$$ become MathML, which browsers draw without any script.

``make docs`` puts this folder on Python's path, and mkdocs.yml lists ``formulas`` among its extensions.
"""

import re
from typing import Any

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor


class _Inline(InlineProcessor):
    """``$x$`` inside a line; as in Pandoc, "$5 and $6" is no formula."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:  # type: ignore[override]
        return self.md.htmlStash.store(convert(m[1])), m.start(0), m.end(0)


class _Block(Preprocessor):
    """``$$`` on lines of their own around a formula."""

    def run(self, lines: list[str]) -> list[str]:
        def stash(match: re.Match[str]) -> str:
            return "\n" + self.md.htmlStash.store(convert(match[1].strip(), display="block")) + "\n"

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
