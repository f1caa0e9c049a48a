"""A model that reads the target or other rows is refused, and the check changes no number."""

from pathlib import Path
from typing import Any

import pytest

from recbole_hyper import run
from recbole_hyper.errors import ConfigError
from tests.host.conftest import keys


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("Cheat", "Cheat reads item_id of the case while it ranks"),
        ("LateCheat", "LateCheat reads item_id of the case while it ranks"),
        ("Neighbourly", "Neighbourly reads item_id_list.* of other rows while it ranks"),
        ("TimeTeller", "TimeTeller reads timestamp of the case while it ranks"),
        ("Leading", "Leading reads item_id_list.* of other rows while it ranks"),
        ("Crowded", "Crowded ranks a case differently after more cases: its scores change with the batch"),
        ("Tired", "Tired ranks the same cases differently when it is called again"),
        ("Moody", "Moody ranks the same cases differently when it is called again"),
        ("NoisyCheat", "NoisyCheat reads item_id of the case while it ranks"),
    ],
)
def test_a_model_that_reads_the_answer_is_refused(model: str, says: str, place: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        run(model, "d", config_dict=keys(place, model))
    trained = (place / "runs" / model / "train.csv").is_file()
    assert trained == (model == "LateCheat")


def test_a_model_that_only_looks_at_the_column_runs(place: Path) -> None:
    honest = run("GatedAverage", "d", config_dict=keys(place, "GatedAverage"))
    assert run("Harmless", "d", config_dict=keys(place, "Harmless"))["test"] == honest["test"]


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("AsksForMore", "reads the column 'rating_list'; batches have user_id, item_id"),
        ("RanksNothing", "needs a full_sort_predict, which scores all items"),
    ],
)
def test_a_model_that_cannot_rank_is_refused_before_training(model: str, says: str, place: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        run(model, "d", config_dict=keys(place, model, plugins="various.py"))
    assert not (place / "runs" / model / "train.csv").is_file()


def test_the_check_changes_no_number(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = run("Crossed", "d", config_dict=keys(place, "Crossed", plugins="various.py"))
    monkeypatch.setattr("recbole_hyper.host.leaks.check", lambda *_: "")
    other = keys(place, "Crossed", plugins="various.py", output_dir=str(place / "runs" / "unchecked"))
    assert run("Crossed", "d", config_dict=other)["test"] == checked["test"]


def test_recboles_own_models_are_checked_and_stay_as_they_were(place: Path) -> None:
    small = {"plugins": None, "hidden_size": 16, "inner_size": 16, "n_layers": 1}
    result = run("SASRec", "d", config_dict=keys(place, "SASRec", **small))
    assert "neither on the target" in result["leak_check"]


def test_a_leak_in_recbole_itself_is_reported(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run continues, because the target that such a model reads is another item here."""
    from recbole.model.sequential_recommender.sasrec import SASRec

    honest = SASRec.full_sort_predict

    def leaking(self: Any, interaction: Any) -> Any:
        bonus = self.item_embedding(interaction["item_id"]) @ self.item_embedding.weight.T
        return honest(self, interaction) + 1000 * bonus

    monkeypatch.setattr(SASRec, "full_sort_predict", leaking)
    small = {"plugins": None, "hidden_size": 16, "inner_size": 16, "n_layers": 1}
    result = run("SASRec", "d", config_dict=keys(place, "SASRec", **small))
    assert result["leak_check"].startswith("SASRec reads item_id of the case while it ranks")


@pytest.mark.parametrize(
    ("model", "says"),
    [("Forgetful", "scores are random (dropout while it ranks?)"), ("Lonely", "cannot rank a batch of 1 cases")],
)
def test_what_changes_no_fair_comparison_is_a_warning(model: str, says: str, place: Path) -> None:
    result = run(model, "d", config_dict=keys(place, model, epochs=1))
    assert says in result["leak_check"]
    assert says in (place / "runs" / model / "run.log").read_text()
