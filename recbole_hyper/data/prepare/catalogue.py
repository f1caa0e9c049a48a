"""The catalogue of known data sets: where each comes from, how the papers filter it, which counts they print."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recbole_hyper.data.prepare.formats import read_entries
from recbole_hyper.data.prepare.recipe import Recipe
from recbole_hyper.data.prepare.statistics import Published


@dataclass(frozen=True)
class Candidate:
    """A raw file that a data set can be prepared from."""

    format: str  # name of the raw format
    files: tuple[str, ...]  # patterns of the file's name, best first
    # what has already been done to the file and is left out unless the user asks for it: ``nothing``, ``filter`` (a
    # published 5-core file) or ``all`` (of the recipe)
    done: str = "nothing"
    user_prefix: str = ""  # dropped from the front of every user token


@dataclass(frozen=True)
class Entry:
    """A data set of the catalogue.

    ``exact`` makes counts other than the published ones an error. A data set with a ``package`` (of Python, with the
    checksum of its source distribution) can be fetched, after its ``licence`` has been shown.
    """

    name: str
    about: str
    get: str = ""
    address: str = ""
    terms: str = ""
    tokens: str = ""
    exact: bool = False
    package: str = ""
    package_sha256: str = ""
    licence: str = ""
    sources: tuple[Candidate, ...] = ()
    recipe: Recipe = field(default_factory=Recipe)
    published: tuple[Published, ...] = ()


@functools.cache
def entries() -> Mapping[str, Entry]:
    """Read properties/catalogue.yaml."""
    return {name: _entry(name, value) for name, value in read_entries("catalogue").items()}


def find(name: str) -> Entry | None:
    """Return the data set called ``name``, or None where the catalogue has no such name."""
    return entries().get(name)


def _entry(name: str, value: Mapping[str, Any]) -> Entry:
    parts = {
        "sources": tuple(
            Candidate(**{**source, "files": tuple(source["files"])}) for source in value.get("sources", [])
        ),
        "recipe": Recipe(**value.get("recipe", {})),
        "published": tuple(Published(**counts) for counts in value.get("published", [])),
    }
    return Entry(**{"name": name, **value, **parts})
