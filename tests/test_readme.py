"""What README tells a stranger to type works in an empty folder."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from recbole_hyper.cli import main
from tests.stranger import CHECKOUT, inline_commands, python, unpacked_wheel, write_orders

README = (CHECKOUT / "README.md").read_text(encoding="utf-8")
COMMANDS = (CHECKOUT / "docs" / "commands.md").read_text(encoding="utf-8")
FAST = ["--epochs=1", "--n_threads=1"]
# what the commands of docs/commands.md need to finish in seconds
MORE = {
    "run": ["--model=Pop", "--dataset=shop"],
    "compare": ["--dataset=shop"],
    "sweep": ["--model=EASER", "--dataset=ml-100k", "--space=easer", "--budget=small"],
    "recommend": ["--k=3", "--output=three.csv"],
    "export": ["--format=program", "--output=encoder.pt2"],
    "report": ["saved"],
    "reproduce": ["sce-table4-beauty", "--data_path=nowhere"],
    "prepare": ["--list"],
    "keys": ["--loss_type=sce"],
}
# values for the placeholders of docs/commands.md
NAMES = {"RUN": "saved/shop", "ITEM": "lamp", "A,B": "Pop,EASER", "MODEL": "SASRecCE", "KIND": "models"}
# commands that end with an error, and what it says: the recipe's data set is not there
REFUSED = {"reproduce": "dataset 'amazon-beauty' was not found"}


def section(title: str) -> str:
    """Return the text below a heading of README."""
    return README.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def blocks(title: str, language: str = "") -> list[str]:
    """Return the blocks of one language below a heading of README."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", section(title), flags=re.DOTALL | re.MULTILINE)
    return [block for name, block in found if name == language]


def test_readme_fits_on_a_page() -> None:
    assert len(README.splitlines()) <= 110


def test_three_commands_recommend_from_a_csv_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process; from the wheel in a slow test below."""
    monkeypatch.chdir(tmp_path)
    write_orders(tmp_path)
    (commands,) = blocks("Three commands for a shop")
    assert len(commands.strip().splitlines()) == 3
    for line in commands.strip().splitlines():
        program, *arguments = shlex.split(line)
        assert program == "recbole-hyper"
        # to early stopping would take minutes
        short = ["--epochs=2", "--n_threads=1"] if arguments[0] == "run" else []
        assert main([*arguments, *short]) == 0
    assert (tmp_path / "saved" / "shop" / "result.json").is_file()
    first = (tmp_path / "recommendations.csv").read_bytes()
    assert len(first.splitlines()) > 100
    # the run needs its folder alone: the data grow, they are deleted, the folder moves
    with (tmp_path / "orders.csv").open("a") as orders:
        orders.write("anna,lamp,99999999\n")
    shutil.rmtree(tmp_path / "dataset")
    shutil.copytree(tmp_path / "saved" / "shop", tmp_path / "elsewhere")
    assert main(["recommend", "elsewhere", "--output=again.csv"]) == 0
    assert (tmp_path / "again.csv").read_bytes() == first


@pytest.mark.slow
def test_ten_lines_print_what_readme_shows(tmp_path: Path) -> None:
    (code,) = blocks("Ten lines of Python", "python")
    (shown,) = blocks("Ten lines of Python")
    (tmp_path / "ten_lines.py").write_text(code)
    printed = python(tmp_path, "ten_lines.py", package=unpacked_wheel()).split("result.json\n")[-1]
    # another processor rounds in another way, and training carries that on
    assert float(printed.split()[0]) == pytest.approx(float(shown.split()[0]), abs=0.01)
    assert [line.split() for line in printed.splitlines() if "item_id" in line] == [
        line.split() for line in shown.splitlines() if "item_id" in line
    ]
    assert len(printed.splitlines()) == len(shown.splitlines())


def table_of_commands() -> list[list[str]]:
    """Return the words of every command of docs/commands.md, placeholders replaced."""
    cells = re.findall(r"^\| (`.*?`) \|", COMMANDS, flags=re.MULTILINE)
    spans = [span for cell in cells for span in re.findall(r"`(.*?)`", cell) if span != "recbole-hyper ..."]
    names = re.compile("|".join(rf"\b{name}\b" for name in NAMES))
    return [shlex.split(names.sub(lambda found: NAMES[found[0]], span)) for span in spans]


@pytest.mark.slow
def test_every_command_works_from_a_wheel_in_an_empty_folder(tmp_path: Path) -> None:
    package = unpacked_wheel()

    def typed(arguments: list[str]) -> str:
        short = FAST if arguments[0] in ("run", "compare") else []
        names = tuple(f"{word.partition('=')[0]}=" for word in short)
        kept = [word for word in arguments if not (names and word.startswith(names))]  # an option is given once
        return python(tmp_path, "-m", "recbole_hyper", *kept, *short, package=package)

    write_orders(tmp_path)
    # `make demo` is this in a checkout
    demo = re.search(r"^\t\t\S+ run_recbole_hyper.py (.*)$", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    assert demo is not None
    typed(["run", *shlex.split(demo[1]), "--output_dir=saved/demo"])
    for title in ("Three commands for a shop", "Your RecBole model"):
        for line in "".join(blocks(title)).splitlines():
            if "my_model.py" not in line:  # a model of the reader: docs/coming-from-recbole.md runs such a command
                typed(shlex.split(line)[1:])
    for words in inline_commands(README):
        typed([*words, "--help"] if len(words) == 1 or words[0] == "serve" else words)
    for name in ("global_timepoint", "sampled_candidates", "temporal_users"):
        typed(["run", "--model=Pop", "--dataset=ml-100k", f"--config_files={name}"])
    commands = table_of_commands()
    assert len(commands) >= 12
    for words in commands:
        if words[0] == "serve":
            typed([*words, "--help"])
        elif words[0] in REFUSED:
            with pytest.raises(AssertionError, match=REFUSED[words[0]]):
                typed([*words, *MORE[words[0]]])
        else:
            typed([*words, *MORE.get(words[0], [])])
