"""Settings that decide which interactions are read."""

from pathlib import Path
from typing import Any

import pytest

from recbole_hyper.cli import main
from recbole_hyper.config import Config
from recbole_hyper.errors import ConfigError, DataError
from recbole_hyper.runs.dataset import SequenceDataset, stored
from tests.conftest import write_inter
from tests.raising import refused


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"val_interval": {"timestamp": ">5"}}, "val_interval: timestamp='>5' must be an interval"),
        ({"val_interval": {"item_id": "1234567890"}}, "val_interval: item_id='1234567890' must be a list"),
        ({"unload_col": True}, "unload_col=True must be a mapping"),
        ({"field_separator": ""}, "field_separator=None"),
        ({"LIST_SUFFIX": ""}, "LIST_SUFFIX=None"),
        ({"ITEM_LIST_LENGTH_FIELD": ""}, "ITEM_LIST_LENGTH_FIELD=None"),
        ({"output_dir": "a\0b"}, r"output_dir='a\x00b'"),
        ({"USER_ID_FIELD": "item_id"}, "they must differ"),
        ({"TIME_FIELD": None}, "TIME_FIELD=None"),  # in the order of time
    ],
)
def test_invalid_keys_are_one_error(keys: dict[str, Any], message: str) -> None:
    with refused(ConfigError, message):
        SequenceDataset(Config("SASRecCE", "ml-100k", config_dict=keys))


def test_a_folder_without_ml_100k_does_not_silently_give_the_copy_of_the_package(tmp_path, caplog) -> None:
    Config("SASRecCE", "ml-100k", config_dict={"data_path": str(tmp_path)})
    assert "has no ml-100k: using the copy in the recbole package" in caplog.text


def test_models_without_sequences_need_no_times_in_random_order(tmp_path: Path) -> None:
    write_inter(tmp_path, "mine", [(f"u{n % 7}", f"i{n % 5}") for n in range(70)], "user_id:token\titem_id:token\n")
    keys: dict[str, Any] = {
        "data_path": str(tmp_path),
        "eval_args": {"order": "RO", "split": {"RS": [8, 1, 1]}, "mode": "full"},
        "TIME_FIELD": None,
    }
    assert len(stored(Config("BPR", "mine", config_dict=keys)).items) == 70
    with refused(DataError, "'timestamp'", "--order=file", "eval_args", "RO}"):
        stored(Config("BPR", "mine", config_dict={"data_path": str(tmp_path)}))


def test_a_misspelt_name_and_a_path_get_a_hint(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["run", "--model=Pop", "--dataset=ml100k", f"--data_path={tmp_path}", "--offline=True"]) == 1
    assert "Did you mean 'ml-100k'?" in capsys.readouterr().err
    (tmp_path / "my orders.csv").write_text("user,item,time\n")
    dataset = str(tmp_path / "my orders.csv")
    assert main(["run", "--model=Pop", f"--dataset={dataset}", "--offline=True"]) == 1
    assert f"recbole-hyper prepare mine --source='{dataset}', and then --dataset=mine" in capsys.readouterr().err
