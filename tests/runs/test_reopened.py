"""A run says if its folder cannot give its model back."""

from pathlib import Path

import pytest

from recbole_hyper import load, run
from recbole_hyper.runs.evaluate import evaluate
from tests.host.conftest import keys
from tests.host.conftest import place as place  # a fixture

SAME = "a freshly opened model gives the same scores"


@pytest.mark.parametrize("model", ["PlainTensor", "HiddenBuffer", "Dictionary"])
def test_state_outside_the_weights_is_a_warning(model: str, place: Path) -> None:
    result = run(model, "d", config_dict=keys(place, model, plugins="keepers.py", epochs=1))
    assert result["reopened"].startswith(f"{model} keeps more than its weights (")
    assert result["reopened"] in (place / "runs" / model / "run.log").read_text()


def test_what_the_weights_contain_is_opened_as_it_was(place: Path) -> None:
    result = run("KeptBuffer", "d", config_dict=keys(place, "KeptBuffer", plugins="keepers.py", epochs=1))
    assert result["reopened"] == SAME
    assert evaluate(place / "runs" / "KeptBuffer")["test"] == result["test"]
    assert len(load(place / "runs" / "KeptBuffer").recommend(["u1"], k=3)) == 3


def test_a_resume_compares_its_own_weights(place: Path) -> None:
    """Not those of the result that it replaces."""
    settings = keys(place, "GatedAverage", epochs=1)
    run("GatedAverage", "d", config_dict=settings)
    again = run(config_dict={"output_dir": settings["output_dir"], "resume": True, "epochs": 3})
    assert again["reopened"] == SAME
    assert "reopened" not in run("Pop", "d", config_dict=keys(place, "Pop", plugins=None))
