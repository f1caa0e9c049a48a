"""What README tells a stranger to type works in an empty folder."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import recbole_hyper
from tests.reference import planted

CHECKOUT = Path(recbole_hyper.__file__).parents[1]


def section(title: str) -> str:
    """Return the text below a heading of README."""
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    return text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_own_data_to_recommendations(tmp_path: Path) -> None:
    names = {"u0": "anna", "u1": "ben", "i3": "lamp", "i4": "chair"}
    rows = [[names.get(value, value) for value in map(str, row)] for row in planted.walk_rows()]
    (tmp_path / "orders.csv").write_text("\n".join(",".join(row) for row in [["user", "item", "time"], *rows]) + "\n")
    text = section("Your own data to recommendations")
    python = next(iter(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)))
    commands = next(block for block in re.findall(r"```\n(.*?)```", text, flags=re.DOTALL) if "prepare" in block)
    path = os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")])

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    for line in commands.strip().splitlines():
        program, *arguments = shlex.split(line)
        assert program == "recbole-hyper"
        # to early stopping would take minutes
        short = ["--epochs=2", "--n_threads=1"] if arguments[0] == "run" else []
        run("-m", "recbole_hyper", *arguments, *short)
    assert (tmp_path / "saved" / "shop" / "result.json").is_file()
    asked = (tmp_path / "recommendations.csv").read_bytes()
    assert len(asked.splitlines()) > 100
    # the run outlives its data: they grow, they go, the folder moves
    with (tmp_path / "orders.csv").open("a") as orders:
        orders.write("anna,lamp,99999999\n")
    shutil.rmtree(tmp_path / "dataset")
    shutil.copytree(tmp_path / "saved" / "shop", tmp_path / "elsewhere")
    run("-m", "recbole_hyper", "recommend", "elsewhere", "--output=again.csv")
    assert (tmp_path / "again.csv").read_bytes() == asked
    call = next(line for line in python.splitlines() if line.startswith("model.recommend("))
    shown = run("-c", python.replace(call, f"print(len({call.partition('  #')[0]}))"))
    assert shown.split() == ["20"]
