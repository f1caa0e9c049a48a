r"""Markdown extension of the pages: the roles of docstrings, such as :func:`~package.name`, become `name`."""

import re
from typing import Any

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor

ROLE = re.compile(r":(?:func|class|meth|mod|attr|data|exc):`(~?)([\w.]+)`")


class _Roles(Preprocessor):
    """With ``~`` the last part of the name, otherwise the whole name."""

    def run(self, lines: list[str]) -> list[str]:
        def name(match: re.Match[str]) -> str:
            return f"`{match[2].rpartition('.')[2] if match[1] else match[2]}`"

        return [ROLE.sub(name, line) for line in lines]


class Roles(Extension):
    """The extension that mkdocs.yml names."""

    def extendMarkdown(self, md: Markdown) -> None:
        # after code blocks have been put aside (25)
        md.preprocessors.register(_Roles(md), "roles", 20)


def makeExtension(**options: Any) -> Roles:
    """Return the extension; Python-Markdown looks for this name."""
    return Roles(**options)
