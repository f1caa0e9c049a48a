"""The patches: RecBole's stock code runs after importing this package, and applying them again changes nothing."""

import subprocess
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from recbole.utils import get_model

from recbole_hyper import run
from recbole_hyper.bridge import patches
from recbole_hyper.bridge.patches import stack
from recbole_hyper.config import Config
from recbole_hyper.errors import ConfigError
from tests.conftest import SMALL, cycle_rows, write_inter


def test_applying_again_changes_nothing() -> None:
    from recbole.data.dataset import Dataset
    from recbole.quick_start import quick_start

    def patched() -> tuple:
        quick = (quick_start.get_model, quick_start.create_dataset, quick_start.objective_function, quick_start.tune)
        return (np.__dict__["float"], Dataset._remap, Dataset._load_feat, scipy.sparse.dok_matrix._update, *quick)

    before, filters = patched(), len(warnings.filters)
    patches.apply()
    assert patched() == before
    assert len(warnings.filters) <= filters + 4


def python(code: str) -> str:
    """Run ``code`` in a fresh interpreter and return what it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


HELP = "from recbole_hyper.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"


@pytest.mark.parametrize("start", ["import recbole_hyper", HELP])
def test_a_start_imports_nothing_heavy(start: str) -> None:
    heavy = ("torch", "ray", "matplotlib", "numba", "recbole", "pandas", "scipy", "numpy")
    assert python(f"{start}\nimport sys\nprint([name for name in {heavy} if name in sys.modules])") == "[]"


@pytest.mark.parametrize("order", ["import recbole_hyper, {modules}", "import {modules}, recbole_hyper"])
def test_shims_are_there_whichever_is_imported_first(order: str) -> None:
    first = order.format(modules="numpy, scipy.sparse")
    shown = "'float' in vars(numpy), scipy.sparse.dok_matrix((2, 2))._update({(0, 1): 1.0})"
    assert python(f"{first}\nprint({shown})") == "True None"


@pytest.mark.parametrize("first", ["recbole_hyper", "recbole.data.dataset.dataset"])
def test_the_dataset_is_patched_whichever_is_imported_first(first: str) -> None:
    # the alias lets RecBole be imported without this package
    code = f"""
import numpy
numpy.float = float
import {first}
import recbole_hyper
from recbole.data.dataset import Dataset, SequentialDataset, sequential_dataset
print(Dataset._fill_nan.__module__, Dataset._load_feat.__module__, sequential_dataset.len.__module__)
"""
    assert python(code).split() == 3 * ["recbole_hyper.bridge.patches.dataset"]


NAMES = """
from recbole.utils import get_model
from recbole.config import Config
from recbole.quick_start import run_recbole
from recbole.trainer import Trainer
"""


@pytest.mark.parametrize("order", [f"import recbole_hyper{NAMES}", f"{NAMES}import recbole_hyper"])
def test_recboles_names_are_patched_whichever_is_imported_first(order: str) -> None:
    # the aliases let RecBole be imported without this package
    code = f"""
import numpy
numpy.float, numpy.str = float, str
{order}
import recbole.config.configurator, recbole.quick_start.quick_start as quick, torch, pickle
configurator = recbole.config.configurator
print(get_model.patched, configurator.get_model is get_model is quick.get_model, quick.create_dataset.patched,
      Trainer._save_checkpoint.__module__, Config.__new__.__module__,
      any(item.__module__ == "recbole_hyper.bridge.patches.checkpoints"
          for item in torch.serialization.get_safe_globals() if not isinstance(item, tuple)))
"""
    assert python(code).split() == [
        *(
            "True",
            "True",
            "True",
            "recbole_hyper.bridge.patches.checkpoints",
            "recbole_hyper.bridge.patches.names",
            "True",
        )
    ]


def test_files_are_read_the_same_whatever_the_version_of_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    from recbole.data.dataset import Dataset

    for method in ("_load_feat", "_fill_nan"):
        monkeypatch.setattr(Dataset, method, None)
    monkeypatch.setattr(pd, "__version__", "2.2.0")
    patches.apply()
    assert Dataset._load_feat is patches.dataset._load_feat
    assert Dataset._fill_nan is patches.dataset._fill_nan


def test_numpy_names_that_exist_are_left_alone() -> None:
    assert np.bool is np.bool_
    assert np.__dict__["float"] is np.float64
    assert isinstance(1.0, np.float64) is False


def test_dok_matrix_update() -> None:
    matrix = scipy.sparse.dok_matrix((3, 3))
    matrix._update({(0, 1): 2.0, (2, 2): 5.0})
    assert matrix.toarray().sum() == 7


def test_stock_config_and_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RecBole's own Config, dataset and loaders, without anything of ours but the import."""
    from recbole.config import Config
    from recbole.data import create_dataset, data_preparation
    from recbole.model.general_recommender import LightGCN

    monkeypatch.setattr("sys.argv", ["test"])
    write_inter(tmp_path, "d", cycle_rows())
    items = "".join(f"i{item}\ta b{'' if item % 2 else ' c'}\t{item}.5\t{item} 3 {item}\n" for item in range(12))
    header = "item_id:token\twords:token_seq\tprice:float\tprices:float_seq\n"
    (tmp_path / "d" / "d.item").write_text(header + items)
    config = Config(
        LightGCN,
        "d",
        config_file_list=[str(Path(__import__("recbole").__file__).parent / "properties" / "model" / "LightGCN.yaml")],
        config_dict={
            "data_path": str(tmp_path),
            "checkpoint_dir": str(tmp_path),
            "load_col": {"inter": ["user_id", "item_id"], "item": ["item_id", "words", "price", "prices"]},
            "normalize_field": ["price", "prices"],
        },
    )
    train, _, _ = data_preparation(config, create_dataset(config))
    features = train.dataset.item_feat
    assert features["words"].shape == (13, 3)
    assert ((features["words"] > 0).sum(1)[1:] >= 2).all()
    assert float(features["price"].max()) == 1.0
    twelfth = features["prices"][train.dataset.token2id("item_id", "i11")]
    assert twelfth.tolist() == pytest.approx([1.0, 3 / 11, 1.0])
    model = LightGCN(config, train.dataset)
    assert np.isfinite(float(sum(model.calculate_loss(next(iter(train))))))


def test_recboles_own_dataset_takes_lines_of_another_width(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from recbole.config import Config
    from recbole.data import create_dataset

    from recbole_hyper.data.dataset import FeatureDataset
    from recbole_hyper.errors import DataError

    monkeypatch.setattr("sys.argv", ["test"])
    folder = tmp_path / "uneven"
    folder.mkdir()
    lines = ["user_id:token\titem_id:token\trating:float\ttimestamp:float", "a\tx\t4\t1\tmore", "a\ty\t\t2", "b\tx\t2"]
    (folder / "uneven.inter").write_text("\n".join(lines) + "\n")
    keys = {"data_path": str(tmp_path), "load_col": {"inter": ["user_id", "item_id", "rating", "timestamp"]}}
    config = Config("BPR", "uneven", config_dict=keys)
    frame = create_dataset(config).inter_feat
    assert frame["user_id"].tolist() == [1, 1, 2]
    assert frame["timestamp"].tolist() == [1.0, 2.0, 1.5]  # what a line lacks is missing: the mean
    assert "2 lines hold more or fewer values than the 4 columns" in caplog.text
    with pytest.raises(DataError, match="line 2: 5 values"):
        FeatureDataset(config)


def test_missing_floats_are_filled_with_the_mean(tmp_path: Path) -> None:
    from recbole_hyper.config import Config
    from recbole_hyper.data.dataset import FeatureDataset

    rows = [(*row, "" if index == 3 else 1 + index % 2) for index, row in enumerate(cycle_rows())]
    write_inter(tmp_path, "d", rows, "user_id:token\titem_id:token\ttimestamp:float\trating:float\n")
    columns = ["user_id", "item_id", "timestamp", "rating"]
    config = Config("SASRecCE", "d", config_dict={"data_path": str(tmp_path), "load_col": {"inter": columns}})
    ratings = FeatureDataset(config).inter_feat["rating"]
    known = [row[3] for row in rows if row[3] != ""]
    assert ratings.iloc[3] == pytest.approx(np.mean(known))
    assert not pd.isna(ratings).any()


def test_sine_leaves_the_anomaly_detection_of_torch_as_it_is() -> None:
    import recbole.model.sequential_recommender.sine

    assert recbole.model.sequential_recommender.sine.SINE
    assert not torch.is_anomaly_enabled()


def test_a_count_is_collected_as_it_is() -> None:
    """RecBole 1.2.1 calls .cpu() of all that its collector has."""
    from collections import Counter

    from recbole.evaluator.collector import Collector, DataStruct

    collector = object.__new__(Collector)
    collector.data_struct = DataStruct()
    collector.data_struct.set("data.num_items", 7)
    collector.data_struct.set("data.count_items", Counter({1: 2}))
    collector.data_struct.update_tensor("rec.items", torch.tensor([[1, 2]]))
    found = collector.get_data_struct()
    assert (found.get("data.num_items"), found.get("data.count_items")) == (7, Counter({1: 2}))
    assert found.get("rec.items").tolist() == [[1, 2]]
    assert "rec.items" not in collector.data_struct
    assert "data.num_items" in collector.data_struct


def test_geoopts_scripted_functions_warn_no_user() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.resetwarnings()
        stack.quiet_known_warnings()
        for kind in (DeprecationWarning, FutureWarning):
            warnings.warn("`torch.jit.script` is deprecated. Please switch to `torch.compile`.", kind, stacklevel=1)
    assert seen == []


@pytest.mark.parametrize("name", ["AsymKNN", "GRU4RecCPR", "SASRecCPR"])
def test_models_of_recbole_121(name: str, cycle: Path) -> None:
    keys = {**SMALL, "data_path": str(cycle), "epochs": 1}
    if version("recbole") == "1.2.0":
        with pytest.raises(ConfigError, match=rf"{name} came with RecBole 1\.2\.1.*--no-deps recbole==1\.2\.1"):
            Config(name, "cycle", config_dict=keys)
        with pytest.raises(ConfigError, match="came with"):
            get_model(name)
        return
    keys |= {"k": 5} if name == "AsymKNN" else {"reranker_CAN_NUM": 5}
    result = run(name, "cycle", config_dict={**keys, "output_dir": str(cycle / name)})
    assert result["test"]["ndcg@10"] > 0
