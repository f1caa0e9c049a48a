"""Scripts of RecBole's users work with ``import recbole_hyper`` as their first line, in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import cycle_rows, write_inter
from tests.stranger import python

# a quick start for sequential models, with the keys that RecBole's documentation gives it
QUICK_START = """\
data_path: dataset
USER_ID_FIELD: user_id
ITEM_ID_FIELD: item_id
TIME_FIELD: timestamp
load_col:
    inter: [user_id, item_id, timestamp]
ITEM_LIST_LENGTH_FIELD: item_length
LIST_SUFFIX: _list
MAX_ITEM_LIST_LENGTH: 8
embedding_size: 16
hidden_size: 16
num_layers: 1
dropout_prob: 0.3
loss_type: 'CE'
epochs: 2
train_batch_size: 16
eval_batch_size: 4096
train_neg_sample_args: ~
eval_args:
    group_by: user
    order: TO
    split: {'LS': 'valid_and_test'}
    mode: full
metrics: ['Recall', 'MRR', 'NDCG', 'Hit', 'Precision']
topk: 5
valid_metric: MRR@5
metric_decimal_place: 4
show_progress: False
use_gpu: False
"""
RUN = """\
import argparse
import recbole_hyper
from recbole.quick_start import run

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="BPR")
parser.add_argument("--dataset", default="ml-100k")
parser.add_argument("--config_files", default=None)
parser.add_argument("--nproc", type=int, default=1)
known, _ = parser.parse_known_args()
files = known.config_files.strip().split(" ") if known.config_files else None
result = run(known.model, known.dataset, config_file_list=files, nproc=known.nproc)
print(sorted(result), len(result["test_result"]))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with a data set, a configuration and a script."""
    write_inter(tmp_path / "dataset", "cycle", cycle_rows())
    (tmp_path / "quick.yaml").write_text(QUICK_START)
    (tmp_path / "run_recbole.py").write_text(RUN)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("model", ["HSASRecCE", "SASRec"])
def test_run_recbole(place: Path, model: str) -> None:
    words = [f"--model={model}", "--dataset=cycle", "--config_files=quick.yaml", "--epochs=1", "--n_layers=1"]
    shown = python(place, "run_recbole.py", *words)
    assert shown.splitlines()[-1] == (
        "['best_valid_result', 'best_valid_score', 'test_result', 'valid_score_bigger'] 5"
    )
    (file,) = (place / "saved").glob(f"{model}-*.pth")
    load = "import recbole_hyper\nfrom recbole.quick_start import load_data_and_model\n"
    assert "8" in python(place, "-c", f"{load}print(load_data_and_model({str(file)!r})[0]['MAX_ITEM_LIST_LENGTH'])")
