"""The page in a browser: a search, neighbours, a history that grows, what it contributes, and the map."""

import base64
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.serving.conftest import ask, free_port, until

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no Chromium with its driver here"),
]
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of the page of a run."""
    names = ["lamp", "desk", "chair", "sofa", "<b>bold</b>", "rug", "vase", "clock", "bowl", "jar", "mirror", "shelf"]
    kinds = ["light", "office", "office", "living"] * 3
    table = pd.DataFrame({"item_id": [f"i{item}" for item in range(12)], "title": names, "kind": kinds})
    table.to_csv(folder.parent / "shown.csv", index=False)
    address = f"http://127.0.0.1:{(port := free_port())}"
    words = ["serve", str(folder), f"--port={port}", f"--catalogue={folder.parent / 'shown.csv'}"]
    process = subprocess.Popen([sys.executable, "-m", "recbole_hyper", *words])
    try:
        until(lambda: ask(f"{address}/health"))
        yield address
    finally:
        process.terminate()
        process.wait(30)


class Browser:
    """A page in headless Chromium, driven over the WebDriver protocol."""

    def __init__(self, port: int, width: int, profile: Path) -> None:
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                     "--disable-background-networking", f"--user-data-dir={profile}",
                     f"--window-size={width},1100"]  # fmt: skip
        screen = {"deviceMetrics": {"width": width, "height": 1100, "pixelRatio": 1.0}}
        chrome = {"binary": CHROMIUM, "args": arguments, **({"mobileEmulation": screen} if width < 500 else {})}
        options = {"goog:chromeOptions": chrome}
        body = {"capabilities": {"alwaysMatch": {**options, "goog:loggingPrefs": {"browser": "ALL"}}}}
        until(lambda: ask(f"http://127.0.0.1:{port}/status")["value"]["ready"])
        session = ask(f"http://127.0.0.1:{port}/session", body)["value"]["sessionId"]
        self.address = f"http://127.0.0.1:{port}/session/{session}"

    def script(self, text: str) -> Any:
        return ask(f"{self.address}/execute/sync", {"script": text, "args": []})["value"]

    def open(self, address: str) -> None:
        ask(f"{self.address}/url", {"url": address})

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(ask(f"{self.address}/screenshot")["value"]))

    def errors(self) -> list[str]:
        log = ask(f"{self.address}/se/log", {"type": "browser"})["value"]
        return [entry["message"] for entry in log if entry["level"] == "SEVERE" and "favicon" not in entry["message"]]


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_shows_what_the_model_knows(width: int, folder: Path, tmp_path: Path) -> None:
    with served(folder) as server:
        look(server, width, tmp_path)


def look(server: str, width: int, tmp_path: Path) -> None:
    """Use the page as a person does."""
    driver = subprocess.Popen([str(DRIVER), f"--port={(port := free_port())}"], stdout=subprocess.DEVNULL)
    try:
        browser = Browser(port, width, tmp_path / "profile")
        browser.open(server)
        until(lambda: browser.script("return document.querySelectorAll('#results li').length == 12"))
        # ids and titles are text, never markup
        assert browser.script("return document.querySelectorAll('#results b').length") == 0
        assert "<b>bold</b> (i4)" in browser.script("return document.querySelector('#results').innerText")
        browser.script(
            "const box = document.querySelector('#search'); box.value = 'LAMP'; box.dispatchEvent(new Event('input'))"
        )
        until(lambda: browser.script("return document.querySelectorAll('#results li').length == 1"))
        press = "[...document.querySelectorAll('#results li button')].find((one) => one.textContent == '{}').click()"
        browser.script(press.format("near"))
        until(lambda: browser.script("return document.querySelectorAll('#near li').length == 10"))
        browser.script(press.format("+"))
        until(lambda: browser.script("return document.querySelectorAll('#history li').length == 1"))
        heads = "return [...document.querySelectorAll('#recommended th')].map((one) => one.innerText)"
        until(lambda: browser.script(heads) == ["item", "score"])  # nothing is left without the only item
        browser.script("document.querySelector('#near li button').click()")
        until(lambda: browser.script("return document.querySelectorAll('#history li').length == 2"))
        until(lambda: len(browser.script(heads)) == 4)
        history = browser.script(heads)
        assert history[:3] == ["item", "score", "i0"]
        names = browser.script("return [...document.querySelectorAll('#near li .name')].map((one) => one.innerText)")
        assert all(name.endswith(")") for name in names)  # a title before the id
        answer = ask(f"{server}/explain", {"history": history[2:], "k": 10})
        shown = browser.script(
            "return [...document.querySelectorAll('#recommended tr')].slice(1)"
            ".map((row) => [...row.cells].map((cell) => cell.innerText))"
        )
        assert [row[0].rpartition("(")[2] for row in shown] == [f"{item['item']})" for item in answer["items"]]
        assert [row[2] for row in shown] == [f"{part:.2f}" for part in answer["contributions"][0]]
        browser.script(
            "const box = document.querySelector('#colour'); box.value = 'kind'; box.dispatchEvent(new Event('change'))"
        )
        until(lambda: browser.script("return document.querySelectorAll('#legend span').length == 3"))
        assert browser.script("return document.documentElement.scrollWidth <= window.innerWidth")
        assert browser.errors() == []
        browser.picture(tmp_path / f"page-{width}.png")
        if place := os.environ.get("PAGE_PICTURES"):
            shutil.copy(tmp_path / f"page-{width}.png", place)
    finally:
        driver.terminate()
        driver.wait(30)
