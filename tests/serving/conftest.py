"""One small finished run for the tests of what is served, which leave it as it is."""

import json
import socket
import time
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from recbole_hyper import load, run
from recbole_hyper.runs.bundle import write_bundle
from recbole_hyper.serving.bundle import BUNDLE, Served, open_bundle
from recbole_hyper.serving.recommender import Recommender
from tests.conftest import small, write_inter

ITEMS = 12


keys = partial(small, epochs=1, use_gpu=False)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on 30 users u0 .. u29 and items i0 .. i11, of which i0 is the most popular, then i1, ..."""
    place = tmp_path_factory.getbasetemp() / "served"
    if place.exists():  # the fixture of another folder of tests made it
        return place / "run"
    rows = [
        (f"u{user}", f"i{(user * step) % ITEMS if step else user % (1 + user % ITEMS)}", 1000 + step)
        for user in range(30)
        for step in range(8)
    ]
    write_inter(place / "data", "small", rows)
    run("SASRecCE", "small", config_dict=keys(place / "data", place / "run"))
    return place / "run"


@pytest.fixture(scope="module")
def model(folder: Path) -> Recommender:
    """The loaded run."""
    return load(folder)


def free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


def ask(address: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))


def until(question: Any, seconds: float = 600.0) -> Any:
    """Return the first answer that is something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if answer := question():
                return answer
        except (OSError, urllib.error.URLError):
            pass
        time.sleep(0.02 if seconds < 100 else 0.2)
    raise AssertionError("no answer")


@pytest.fixture(scope="session")
def bundle(folder: Path) -> Path:
    if not (folder / BUNDLE).exists():
        write_bundle(folder)
    table = pd.DataFrame({"item_id": [f"i{item}" for item in range(12)], "price": range(12), "kind": list("abcd") * 3})
    table.to_csv(folder.parent / "catalogue.csv", index=False)
    return folder


def opened(folder: Path) -> Served:
    return open_bundle(folder, load, table=folder.parent / "catalogue.csv")


def ids(answer: dict[str, Any]) -> list[str]:
    return [item["item"] for item in answer["items"]]
