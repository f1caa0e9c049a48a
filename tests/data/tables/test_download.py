"""Downloads from a local server: only a complete download becomes a data set."""

import io
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from recbole_hyper.config import Config
from recbole_hyper.data.tables import download
from recbole_hyper.errors import ConfigError
from recbole_hyper.files import read_json
from recbole_hyper.yaml_files import read_yaml
from tests.conftest import HEADER, SMALL, cycle_rows
from tests.raising import refused

INTER = HEADER + "".join("\t".join(map(str, row)) + "\n" for row in cycle_rows())


def zipped(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/").replace("_inter", ".inter").replace("_item", ".item"), text)
    return buffer.getvalue()


GOOD = zipped(Far_inter=INTER, Far_item="item_id:token\tkind:token\ni1\ta\n")
# by path: what the server sends, and the length that it tells
FILES: dict[str, tuple[bytes, int]] = {
    "Far.zip": (GOOD, len(GOOD)),
    "Inside.zip": (inside := zipped(Inside__Inside_inter=INTER), len(inside)),
    "Broken.zip": (GOOD[: len(GOOD) // 2], len(GOOD)),
    "Damaged.zip": (damaged := GOOD[:60] + b"!!!!" + GOOD[64:], len(damaged)),
    "Text.zip": (text := b"<html>not here</html>", len(text)),
    "Page.zip": (page := zipped(Page_inter="<html>not here</html>"), len(page)),
    "Items.zip": (items := zipped(Items_inter=INTER, Items_item="<html>not here</html>"), len(items)),
    "Empty.zip": (empty := zipped(README="nothing"), len(empty)),
}


class Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content, length = FILES.get(self.path[1:], (b"", -1))
        self.send_response(200 if length >= 0 else 403)
        if length >= 0:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a data_path, with RecBole's table of addresses pointed at a server here."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    names = {name: name.lower() for name in ("Far", "Inside", "Broken", "Damaged", "Text", "Empty", "Gone")}
    names |= {name: name.lower() for name in ("Page", "Items")}
    names["Far2"] = "amazon-beauty"
    lines = [
        f"{known}: http://127.0.0.1:{server.server_port}/{name.removesuffix('2')}.zip\n"
        for name, known in names.items()
    ]
    (tmp_path / "url.yaml").write_text("".join(lines))
    monkeypatch.setattr(download, "data_addresses", lambda: read_yaml(tmp_path / "url.yaml"))
    yield tmp_path / "data"
    server.shutdown()
    server.server_close()


def bound(place: Path, name: str, **keys: Any) -> Config:
    settings = {**SMALL, "data_path": str(place), "use_gpu": False, **keys}
    return download.with_data(lambda: Config("SASRecCE", name, config_dict=settings))


@pytest.mark.parametrize("name", ["far", "inside"])
def test_a_name_of_recboles_list_is_fetched_once(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bound(place, name)["data_path"] == str(place / name)
    printed = capsys.readouterr().err
    assert f"downloading {name} from http://127.0.0.1" in printed
    assert f"to {place / name}" in printed
    assert (place / name / f"{name}.inter").read_text() == INTER
    source = read_json(place / name / "SOURCE.json")
    assert len(source["sha256"]) == 64
    bound(place, name)
    assert "fetching" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("broken", r"the connection broke after [\d,]+ of [\d,]+ bytes"),
        ("damaged", "is cut off, damaged"),
        ("text", "is cut off, damaged"),
        ("empty", "No such file .*empty.inter"),
        ("gone", "HTTP Error 403"),
        ("page", "not 'name:type'"),
        ("items", "Items.item|items.item: header entry '<html>not here</html>' is not 'name:type'"),
    ],
)
def test_what_is_no_data_set_never_becomes_one(name: str, says: str, place: Path) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        bound(place, name)
    assert "\n" not in str(caught.value)
    assert "http://127.0.0.1" in str(caught.value)
    assert not any(place.rglob("*"))


def test_offline_fetches_nothing(place: Path) -> None:
    for name in ("far", "ml-1m"):
        with refused(ConfigError, "available", "http"):
            bound(place, name, offline=True)
    assert not any(place.rglob("*"))


def test_a_name_of_both_means_ours(place: Path) -> None:
    with refused(ConfigError, "--dataset=recbole/amazon-beauty"):
        bound(place, "amazon-beauty")
    config = bound(place, "recbole/amazon-beauty")
    assert config["dataset"] == "amazon-beauty"
    assert (place / "recbole" / "amazon-beauty" / "amazon-beauty.inter").is_file()
    # and is found again by what the run wrote
    assert Config(config_dict=config.plain())["data_path"] == config["data_path"]


def test_a_folder_with_other_files_is_left_alone(place: Path) -> None:
    (place / "far").mkdir(parents=True)
    (place / "far" / "notes.txt").write_text("mine")
    with refused(ConfigError, "'far'"):
        bound(place, "far")
    assert [path.name for path in (place / "far").iterdir()] == ["notes.txt"]


def test_what_this_package_prepares_is_prepared(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(name: str, *, output: Path, say: Any) -> None:
        (output / name).mkdir(parents=True)
        (output / name / f"{name}.inter").write_text(INTER)

    monkeypatch.setattr(download, "prepare", prepare)
    assert bound(place, "ml-1m")["data_path"] == str(place / "ml-1m")
