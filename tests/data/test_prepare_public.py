"""The catalogue and the dataset configurations: complete, consistent, and loaded by the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from recbole_hyper.config import Config
from recbole_hyper.data.formats import formats
from recbole_hyper.data.prepare import public
from recbole_hyper.yaml_files import properties_folder, read_yaml

SETTINGS = read_yaml(properties_folder() / "datasets.yaml")
NAMES = sorted(public.entries())
INTERVALS = {"user_inter_num_interval", "item_inter_num_interval"}


def test_the_settings_are_those_of_known_data_sets_and_differ_from_the_defaults() -> None:
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
    folder = tmp_path / name
    folder.mkdir()
    (folder / f"{name}.inter").write_text("user_id:token\titem_id:token\ttimestamp:float\n1\t2\t3\n")
    config = Config(model="SASRecCE", dataset=name, config_dict={"data_path": str(tmp_path)})
    assert config["load_col"] == {"inter": ["user_id", "item_id", "timestamp"]}
    assert config["MAX_ITEM_LIST_LENGTH"] == length
    assert config["user_inter_num_interval"] == config["item_inter_num_interval"] == interval
