"""What README tells a stranger to type works in an empty folder."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

from tests.stranger import CHECKOUT, python, write_orders


def section(title: str) -> str:
    """Return the text below a heading of README."""
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    return text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_own_data_to_recommendations(tmp_path: Path) -> None:
    write_orders(tmp_path)
    text = section("Your own data to recommendations")
    code = next(iter(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)))
    commands = next(block for block in re.findall(r"```\n(.*?)```", text, flags=re.DOTALL) if "prepare" in block)
    for line in commands.strip().splitlines():
        program, *arguments = shlex.split(line)
        assert program == "recbole-hyper"
        # to early stopping would take minutes
        short = ["--epochs=2", "--n_threads=1"] if arguments[0] == "run" else []
        python(tmp_path, "-m", "recbole_hyper", *arguments, *short)
    assert (tmp_path / "saved" / "shop" / "result.json").is_file()
    asked = (tmp_path / "recommendations.csv").read_bytes()
    assert len(asked.splitlines()) > 100
    # the run outlives its data: they grow, they go, the folder moves
    with (tmp_path / "orders.csv").open("a") as orders:
        orders.write("anna,lamp,99999999\n")
    shutil.rmtree(tmp_path / "dataset")
    shutil.copytree(tmp_path / "saved" / "shop", tmp_path / "elsewhere")
    python(tmp_path, "-m", "recbole_hyper", "recommend", "elsewhere", "--output=again.csv")
    assert (tmp_path / "again.csv").read_bytes() == asked
    call = next(line for line in code.splitlines() if line.startswith("model.recommend("))
    shown = python(tmp_path, "-c", code.replace(call, f"print(len({call.partition('  #')[0]}))"))
    assert shown.split() == ["20"]


def test_a_frame_to_recommendations(tmp_path: Path) -> None:
    write_orders(tmp_path)
    text = section("Your own data to recommendations")
    code = next(block for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL) if ".fit(" in block)
    call = next(line for line in code.splitlines() if line.startswith("model.recommend("))
    code = code.replace("epochs=20", "epochs=2, n_threads=1").replace(call, f"found = {call}")
    saved = re.search(r'model\.save\("(.*?)"\)', code)[1]
    again = call.replace("model", f"recbole_hyper.load({saved!r})")
    python(tmp_path, "-c", f"{code}\nimport recbole_hyper\nassert len(found) == 10\nassert {again}.equals(found)")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders.csv", "saved"]
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == [Path(saved).name]
