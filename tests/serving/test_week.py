"""A shop's week by the commands of the docs: orders, a model served under rules, new orders, a warm start, a switch."""

import json
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.reference import planted
from tests.serving.conftest import ask, free_port, until
from tests.stranger import python, started, unpacked_wheel

pytestmark = pytest.mark.slow
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

SHORT = ["--epochs=1", "--hidden_size=16", "--n_layers=1", "--MAX_ITEM_LIST_LENGTH=8", "--show_progress=False"]


def command(folder: Path, *words: str) -> str:
    """Run a documented command of the installed package in the shop's folder."""
    return python(folder, "-m", "recbole_hyper", *words, package=unpacked_wheel())


def write_orders(file: Path, rows: list[tuple]) -> None:
    lines = [f"{user},{item},{1_700_000_000 + 3600 * time}\n" for user, item, time in rows]
    file.write_text("user_id,item_id,timestamp\n" + "".join(lines))


def test_a_shops_week(tmp_path: Path) -> None:
    rows = planted.walk_rows()
    users = sorted({row[0] for row in rows})
    items = sorted({row[1] for row in rows})
    old = set(users[: len(users) // 2])
    # a step of a walk is an hour: the last one is tomorrow
    monday = [row for row in rows if row[0] in old and row[2] < 1006]
    sunday = [row for row in rows if row[2] < 1008]
    week = [row for row in rows if row[0] in old and row[2] >= 1006]
    kinds = {item: f"kind{number % 5}" for number, item in enumerate(items)}
    catalogue = [f"{item},{kinds[item]},{number % 3}\n" for number, item in enumerate(items)]
    (tmp_path / "catalogue.csv").write_text("item_id,kind,stock\n" + "".join(catalogue))
    stock = {item: number % 3 for number, item in enumerate(items)}

    write_orders(tmp_path / "orders.csv", monday)
    command(tmp_path, "prepare", "monday", "--source=orders.csv", "--output=data")
    command(tmp_path, "run", "--model=SASRecCE", "--dataset=monday", "--data_path=data", "--output_dir=models/monday",
            *SHORT)  # fmt: skip
    (tmp_path / "models" / "current").symlink_to("monday")
    port = free_port()
    words = ["serve", "models/current", f"--port={port}", "--catalogue=catalogue.csv"]
    server = subprocess.Popen(**started(tmp_path, "-m", "recbole_hyper", *words, package=unpacked_wheel()))
    address = f"http://127.0.0.1:{port}"
    question = {"history": items[:3], "k": 4, "rules": {"where": "stock > 0", "at_most": {"kind": 1}}}
    failed: list[Any] = []
    answered, stop = [0], threading.Event()

    def customers() -> None:
        while not stop.wait(0.05):
            try:
                answer = ask(f"{address}/recommend", question)
                shown = [item["item"] for item in answer["items"]]
                assert len(shown) == 4
                assert all(stock[item] > 0 for item in shown)
                assert len({kinds[item] for item in shown}) == 4
                answered[0] += 1
            except (AssertionError, OSError, urllib.error.URLError) as error:
                failed.append(error)

    try:
        before = until(lambda: ask(f"{address}/health"))
        assert before["dataset"] == "monday"
        people = threading.Thread(target=customers)
        people.start()
        write_orders(tmp_path / "orders.csv", sunday)
        command(tmp_path, "prepare", "sunday", "--source=orders.csv", "--output=data")
        command(tmp_path, "run", "--init_from=models/monday", "--dataset=sunday", "--data_path=data",
                "--output_dir=models/sunday", "--show_progress=False")  # fmt: skip
        results = [json.loads((tmp_path / "models" / day / "result.json").read_text()) for day in ("monday", "sunday")]
        assert results[1]["n_users"] > results[0]["n_users"]
        assert Path(results[1]["started_from"]["run"]) == tmp_path / "models" / "monday"
        write_orders(tmp_path / "week.csv", week)
        write_orders(tmp_path / "tomorrow.csv", [row for row in rows if row[2] >= 1008 and row[0] in old])
        tomorrow = 1_700_000_000 + 3600 * 1008
        command(tmp_path, "evaluate", "models/monday", "--data=week.csv", f"--since={tomorrow}")
        command(tmp_path, "evaluate", "models/sunday", "--data=tomorrow.csv")
        (tmp_path / "models" / "next").symlink_to("sunday")
        (tmp_path / "models" / "next").replace(tmp_path / "models" / "current")
        until(lambda: ask(f"{address}/health")["dataset"] == "sunday")
        time.sleep(0.5)
        stop.set()
        people.join()
        assert failed == []
        assert answered[0] > 10
        # a user who came during the week
        assert not ask(f"{address}/recommend", {"user": users[-1], "k": 3})["popular"]
    finally:
        stop.set()
        server.terminate()
        server.wait(30)
    command(tmp_path, "recommend", "models/current", "--k=3", "--catalogue=catalogue.csv", "--where=stock > 0",
            "--output=recs.parquet")  # fmt: skip
