"""The Dockerfile: its instructions fit the checkout; where Docker runs, the image serves a run."""

import json
import re
from pathlib import Path

from recbole_hyper.cli import _parse
from tests.serving.conftest import ask, folder, free_port, until  # noqa: F401  folder is a fixture here too

ROOT = Path(__file__).parents[1]
TEXT = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
STEPS = [line.split(" ", 1) for line in TEXT.splitlines() if line.strip() and not line.startswith("#")]


def values(name: str) -> list[str]:
    return [rest for step, rest in STEPS if step == name]


def test_the_instructions_are_known_and_in_order() -> None:
    names = [name for name, _ in STEPS]
    known = {"FROM", "ARG", "RUN", "WORKDIR", "COPY", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert set(names) <= known
    assert names[0] == "FROM"
    # a version, and not root
    assert re.fullmatch(r"python:3\.\d+-slim", values("FROM")[0])
    assert values("USER") == ["serve"]
    assert max(at for at, name in enumerate(names) if name == "RUN") < names.index("USER")


def test_all_that_is_copied_exists_and_the_package_needs_no_more() -> None:
    copied = [source for value in values("COPY") for source in value.split()[:-1]]
    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", "properties", "recbole_hyper"} == set(copied)


def test_the_command_is_understood() -> None:
    words = [*json.loads(values("ENTRYPOINT")[0]), *json.loads(values("CMD")[0])]
    arguments = _parse(words[1:])
    assert (words[0], arguments.command, arguments.host) == ("recbole-hyper", "serve", "0.0.0.0")
    assert values("EXPOSE") == [str(arguments.port)]
    assert f":{arguments.port}/health" in values("HEALTHCHECK")[0]
