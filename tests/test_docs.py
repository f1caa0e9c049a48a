"""Every command and every piece of Python in docs/ works, page by page, in an empty folder."""

import os
import re
import shlex
from pathlib import Path

import pytest

from recbole_hyper import cli
from recbole_hyper.commands import all_commands
from tests.stranger import CHECKOUT, inline_commands, python, unpacked_wheel, write_orders

DOCS = CHECKOUT / "docs"
PAGES = sorted(page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
# a block that mkdocs fills with a file
INCLUDED = "--8<-- "
COMMANDS = set(all_commands())
FILE = re.compile(r"# (\S+\.(?:py|yaml))\n")
# so that a page takes seconds: what a reader types trains to early stopping
SHORT = {
    "run": ["--epochs=1", "--n_threads=1"],
    "compare": ["--epochs=1", "--n_threads=1"],
    "sweep": ["--budget=small"],
}


def blocks(page: str) -> list[tuple[str, str]]:
    """Return language and text of the blocks that are executed, sh and python, or that show a file by its name."""
    found = [(language, body) for language, body in BLOCK.findall(page_text(page)) if not body.startswith(INCLUDED)]
    return [(language, body) for language, body in found if language in ("sh", "python") or FILE.match(body)]


def bodies(page: str) -> list[str]:
    return [body for _, body in BLOCK.findall(page_text(page))]


def page_text(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def commands(text: str) -> list[list[str]]:
    """Return the recbole-hyper commands of a block; a backslash at the end joins two lines."""
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip() and not line.startswith("#")]


def test_pages_are_linked() -> None:
    text = (CHECKOUT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page for page in PAGES if f"{page}.md" not in text] == []


def test_links_stay_in_the_site() -> None:
    """`make docs` stops at a link that leaves docs/: the site has these pages only."""
    outside = {
        page: target
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", BLOCK.sub("", page_text(page)))
        if not (file := Path(os.path.normpath((DOCS / page).parent / target))).is_file()
        or not file.is_relative_to(DOCS)
    }
    assert outside == {}


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_text_are_understood(page: str) -> None:
    for words in inline_commands((DOCS / f"{page}.md").read_text(encoding="utf-8")):
        if "--help" not in words:
            # a bare name is the command in a sentence
            assert len(words) == 1 or cli._parse(words).command == words[0]
        assert words[0] in COMMANDS


def test_the_files_that_guide_a_newcomer_are_there() -> None:
    """CONTRIBUTING and the page on the package name files, which move."""
    for page, base in (("CONTRIBUTING.md", CHECKOUT), ("docs/architecture.md", CHECKOUT / "recbole_hyper")):
        named = re.findall(r"`([\w./]+/(?:\w+\.(?:py|md))?)`", (CHECKOUT / page).read_text(encoding="utf-8"))
        assert len(named) > 4, page
        assert [name for name in named if not (base / name).exists() and not (CHECKOUT / name).exists()] == [], page


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("models/") and page != "models/index"])
def test_a_model_page_has_what_a_reader_looks_for(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    idea, _, rest = text.partition("\n## Formula\n")
    assert re.search(r"!\[.{20,}\]\(../images/\w+\.svg\)", idea, flags=re.DOTALL), "a picture with its description"
    figures = "## Figures\n\n| data | model | published | ours |"
    order = ["$$", "## When to use it", "```sh", "| key | meaning |", figures]
    assert sorted(order, key=rest.index) == order


def test_pictures_are_those_of_the_script() -> None:
    """If it fails, run python docs/images/draw.py."""
    drawn = re.findall(r"^def (\w+)\(\) -> Figure:", (DOCS / "images/draw.py").read_text(), flags=re.MULTILINE)
    assert {picture.stem for picture in (DOCS / "images").glob("*.svg")} == set(drawn)


def test_every_block_has_a_language() -> None:
    """Only a block of sh, python or text can be told apart from what is executed."""
    for page in PAGES:
        known = {language for language, _ in BLOCK.findall((DOCS / f"{page}.md").read_text(encoding="utf-8"))}
        assert known <= {"sh", "python", "text"}, page


def test_the_training_loop_is_shown_as_it_is() -> None:
    included = [body for page in PAGES for body in bodies(page) if body.startswith(INCLUDED)]
    files = [body.removeprefix(INCLUDED).strip().strip('"') for body in included]
    assert files == ["recbole_hyper/training/loop.py"]
    assert all((CHECKOUT / file).is_file() for file in files)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_every_block_works(page: str, tmp_path: Path) -> None:
    package = unpacked_wheel()
    write_orders(tmp_path)
    for number, (language, text) in enumerate(blocks(page)):
        if language == "text":
            (tmp_path / FILE.match(text)[1]).write_text(text, encoding="utf-8")
            continue
        if language == "python":
            file = tmp_path / (match[1] if (match := FILE.match(text)) else f"block_{number}.py")
            file.write_text(text, encoding="utf-8")
            python(tmp_path, file.name, package=package)
            continue
        for program, *arguments in commands(text):
            if program == "pip":  # what it installs is here
                continue
            if program == "python":
                python(tmp_path, *arguments, package=package)
                continue
            assert program == "recbole-hyper", program
            short = SHORT.get(arguments[0], [])
            replaced = {option.partition("=")[0] for option in short}
            arguments = [word for word in arguments if word.partition("=")[0] not in replaced]
            python(tmp_path, "-m", "recbole_hyper", *arguments, *short, package=package)
