"""What a training prints: one line an epoch, with the chosen metric."""

import re
from pathlib import Path

import pytest

from recbole_hyper import run
from recbole_hyper.training.progress import in_time
from tests.training.common import settings


def lines(folder: Path) -> list[str]:
    return [line.split(" ", 1)[1] for line in (folder / "run.log").read_text().splitlines() if line[2:3] == ":"]


def test_an_epoch_is_one_line(random_data: Path, tmp_path: Path) -> None:
    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "run", epochs=3, eval_step=2))
    said = lines(tmp_path / "run")
    epochs = [line for line in said if line.startswith("epoch ")]
    assert len(epochs) == 3
    time = r"[\d.]+ s"
    score = r"ndcg@10 0\.\d{4} \(best 0\.\d{4}, epoch \d\)"
    assert re.fullmatch(rf"epoch 0 of 0 to 2: loss \d\.\d{{4}}, {time}, at most {time} left", epochs[0])
    assert re.fullmatch(rf"epoch 1 of 0 to 2: loss \d\.\d{{4}}, {time}, {score}, at most {time} left", epochs[1])
    # eval_step skips the last epoch, which is validated as well
    assert re.fullmatch(rf"epoch 2 of 0 to 2: loss \d\.\d{{4}}, {time}, {score}", epochs[2])
    assert max(map(len, said)) < 400
    # no count that is 0
    assert [line for line in said if line.endswith(": 0")] == []


def test_a_model_that_is_fitted_in_one_step_has_no_epochs(random_data, tmp_path, capsys) -> None:
    run("EASER", "random", config_dict=settings(random_data, tmp_path / "run"))
    printed = capsys.readouterr().out
    assert "fitted in one step, " in printed
    assert "epoch" not in printed
    assert [line for line in lines(tmp_path / "run") if "epoch" in line and "fitted in one step" not in line] == []


@pytest.mark.parametrize(("seconds", "text"), [(0.04, "0.0 s"), (9.9, "9.9 s"), (9.96, "10 s"), (61, "1 min 1 s"),
                                               (3599.4, "59 min 59 s"), (7500, "2 h 5 min")])  # fmt: skip
def test_times_in_words(seconds: float, text: str) -> None:
    assert in_time(seconds) == text
