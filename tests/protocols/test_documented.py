"""docs/protocols.md lists which settings of RecBole's documentation work: each row of its table is run."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recbole_hyper import run
from recbole_hyper.errors import ConfigError
from recbole_hyper.yaml_files import merge, parse_yaml
from tests.conftest import SMALL, write_inter
from tests.protocols.part_files import write_parts
from tests.stranger import CHECKOUT

ROW = re.compile(r"^\| `(.+?)` \| (works|refused: .+?) \| (works|refused: .+?) \| .* \|$", flags=re.MULTILINE)
ROWS = ROW.findall((CHECKOUT / "docs" / "protocols.md").read_text(encoding="utf-8").partition("## What RecBole")[2])


def test_the_table_holds_every_combination_of_recboles_words() -> None:
    """Splits x orders x groupings x modes of RecBole's overall.yaml, one thing changed at a time from time order."""
    settings = [parse_yaml(setting, "protocols.md") for setting, _, _ in ROWS]
    arguments = [setting["eval_args"] for setting in settings if "eval_args" in setting]
    made = {
        (name, given.get("order", "TO"), given.get("group_by", "user"))
        for given in arguments
        for name in (given.get("split") or {})
    }
    assert {(name, order, "user") for name in ("RS", "LS") for order in ("TO", "RO")} <= made
    assert {("RS", order, "none") for order in ("TO", "RO")} | {("LS", "TO", "none")} <= made
    modes = {str(given["mode"])[:3] for given in arguments if "mode" in given}
    assert {"ful", "uni", "pop", "lab", "{'v"} <= modes


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data_path that holds "d", as one file and as three."""
    draw = np.random.default_rng(2)
    rows: list[list[tuple]] = [[], [], []]
    for user in range(12):
        for step, item in enumerate(draw.permutation(20)[:10].tolist()):
            rows[max(0, step - 7)].append((f"u{user}", f"i{item}", 1000 + 13 * step + user, 1 + (step + user) % 5))
    header = "user_id:token\titem_id:token\ttimestamp:float\trating:float\n"
    folder = write_parts(tmp_path_factory.mktemp("data"), rows, header)
    return write_inter(folder, "d", [row for part in rows for row in part], header)


@pytest.mark.parametrize(
    ("model", "column"),
    [
        ("SASRecCE", 1),
        pytest.param("SASRec", 1, marks=pytest.mark.slow),
        pytest.param("EASER", 2, marks=pytest.mark.slow),
        ("BPR", 2),
    ],
)
@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_each_row_works_or_is_refused_for_its_reason(row, model, column, data, tmp_path) -> None:
    keys: dict[str, Any] = {**SMALL, "epochs": 1, "topk": [5], "valid_metric": "NDCG@5", "use_gpu": False}
    keys |= {"data_path": str(data), "output_dir": str(tmp_path / "run"), "save_data": False}
    merge(keys, parse_yaml(row[0], "protocols.md"))
    outcome = row[column]
    if outcome == "works":
        result = run(model, "d", config_dict=keys)
        cases = result["n_valid_cases"], result["n_test_cases"]
        assert max(cases) > 0
        assert bool(result["valid"]) is (cases[0] > 0)
        assert bool(result["test_result"]) is (cases[1] > 0)
        return
    with pytest.raises(ConfigError, match=re.escape(outcome.removeprefix("refused: "))):
        run(model, "d", config_dict=keys)
    assert not (tmp_path / "run").exists()
