"""The settings of every run: their spelling, and the help that lists the common ones."""

import pytest

from recbole_hyper.cli import main
from recbole_hyper.config.binding import parse_keys
from recbole_hyper.runs.evaluate import evaluation_keys
from recbole_hyper.settings import BY_MODEL, COMMON, COMMON_OF_RANKING, SETTINGS, common_text, typed


@pytest.mark.parametrize(
    "value", [None, True, 3, 0.5, "ce", "[5,inf)", [1, 5], ["NDCG", "Hit"], {"mode": "full", "split": {"LS": "x"}}]
)
def test_defaults_are_spelled_as_they_are_typed(value: object) -> None:
    assert parse_keys({"anything": typed(value)})["anything"] == value


def test_common_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(set(COMMON)) == len(COMMON) < 25
    assert set(COMMON) <= set(SETTINGS)
    assert set(COMMON_OF_RANKING) <= evaluation_keys()
    assert SETTINGS["lr_schedule"].about == "decay the rate to 0 over all epochs; ~ keeps it"
    text = common_text()
    assert "\n  --epochs=300 " in text
    assert f"\n  --hidden_size={BY_MODEL} " in text
    for command in ("run", "compare", "sweep", "evaluate"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        printed = capsys.readouterr().out
        assert "  --topk=[1, 5, 10] " in printed
        assert "recbole-hyper keys MODEL" in printed
        assert ("--epochs=300" in printed) == (command != "evaluate")
