"""What is written over, what is written through, and what reaches a terminal."""

from pathlib import Path

import pandas as pd
import pytest

from recbole_hyper import run
from recbole_hyper.errors import ConfigError
from recbole_hyper.evaluation.tables import frame_table
from recbole_hyper.files import printable, replaced_folder, require_own
from tests.conftest import SMALL
from tests.raising import refused


def test_only_an_own_output_is_written_over(tmp_path: Path) -> None:
    def own(path: Path) -> bool:
        return path.read_text() == "mine"

    output, other = tmp_path / "out.csv", tmp_path / "in.csv"
    require_own(output, own, "my output")  # not there yet
    for text in ("", "mine"):
        output.write_text(text)
        require_own(output, own, "my output", [other, None])
    other.write_text("mine")
    with refused(ConfigError, "input", "command"):
        require_own(other, own, "my output", [tmp_path / "." / "in.csv"])
    output.write_text("yours")
    with refused(ConfigError, "contain", "overwritten"):
        require_own(output, own, "my output")
    with refused(ConfigError, "is a folder"):
        require_own(tmp_path, own, "my output")
    (tmp_path / "link.csv").symlink_to(tmp_path / "nowhere.csv")
    with refused(ConfigError, "choose", "another"):
        require_own(tmp_path / "link.csv", own, "my output")


@pytest.mark.parametrize("name", ["run.log", ".run.lock"])
def test_a_prepared_link_in_the_folder_of_a_run_is_not_followed(name: str, random_data: Path, tmp_path: Path) -> None:
    """run.log wrote into whatever file it pointed to."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere")
    keys = {"data_path": str(random_data), "output_dir": str(tmp_path / "run")}
    with pytest.raises(ConfigError, match=f"{name} is a link, and writing would change another file"):
        run("Pop", "random", config_dict={**SMALL, **keys})
    assert not (tmp_path / "elsewhere").exists()


def test_control_characters_of_ids_do_not_reach_the_terminal() -> None:
    hostile = "a\x1b[2J\x07b\u202ec\x9b31m"
    assert printable(hostile) == "a\\x1b[2J\\x07b\\u202ec\\x9b31m"
    assert printable("line\nwith\ttab, é and 漢字") == "line\nwith\ttab, é and 漢字"
    text = frame_table(pd.DataFrame({"item_id": [hostile], "score": [0.5]}))
    assert "\x1b" not in text
    assert "a\\x1b[2J" in text


def test_a_folder_that_cannot_be_removed_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old files and the new ones were lost."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "old").touch()
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    with replaced_folder(tmp_path / "data") as part:
        (part / "new").touch()
    assert [file.name for file in (tmp_path / "data").iterdir()] == ["new"]
