"""The Dockerfile: its instructions fit the checkout; where Docker runs, the image serves a run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

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


def engine() -> str | None:
    """Return docker or podman, if it runs."""
    for name in ("docker", "podman"):
        if shutil.which(name) and subprocess.run([name, "info"], capture_output=True, timeout=60).returncode == 0:
            return name
    return None


@pytest.mark.slow
def test_the_image_serves_a_run(folder: Path) -> None:  # noqa: F811
    if (name := engine()) is None:
        pytest.skip("neither docker nor podman runs here")
    subprocess.run([name, "build", "--tag", "recbole-hyper-test", str(ROOT)], check=True)
    folder.chmod(0o777)
    port = free_port()
    words = [name, "run", "--rm", "--detach", "--publish", f"127.0.0.1:{port}:8000", "--volume", f"{folder}:/model"]
    container = subprocess.run(
        [*words, "recbole-hyper-test"], check=True, capture_output=True, text=True
    ).stdout.strip()
    try:
        assert until(lambda: ask(f"http://127.0.0.1:{port}/health"))["model"] == "SASRecCE"
        assert len(ask(f"http://127.0.0.1:{port}/recommend", {"history": ["i3"], "k": 3})["items"]) == 3
    finally:
        subprocess.run([name, "rm", "--force", container], check=True, capture_output=True)
