"""The default model: its three parts in a run, what a validation fits and knows, and what a folder keeps of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from recbole_hyper import load, run
from recbole_hyper.config import Config, ConfigError
from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.evaluation.statistics import case_values
from recbole_hyper.models import memory, propose
from recbole_hyper.models.evidence import Evidence, EvidenceReader
from recbole_hyper.models.memory import folds_of, ranker_cases
from recbole_hyper.models.rank import Ranker
from recbole_hyper.protocols.base import repeated_targets
from recbole_hyper.runs.build import build_model, read_data
from recbole_hyper.training.checkpoint import CheckpointError, read_weights, save_weights
from tests.conftest import LEARN, SMALL, write_inter
from tests.models.test_rank import filled
from tests.raising import refused


def test_the_memory_alone_finds_the_blocks(blocks: Path, tmp_path: Path) -> None:
    """With a rate of nearly nothing the network knows nothing: what is found, the memory found."""
    keys = {**LEARN, "data_path": str(blocks), "output_dir": str(tmp_path / "run"), "learning_rate": 1e-9, "epochs": 1}
    alone = run("FMLPRecMemory", "blocks", config_dict=keys)
    network = run("FMLPRecCE", "blocks", config_dict={**keys, "output_dir": str(tmp_path / "network")})
    assert alone["test"]["hit@5"] > 0.6
    assert network["test"]["hit@5"] < 0.3


@pytest.mark.parametrize("key", ["memory_window", "memory_neighbours"])
def test_settings_that_make_no_sense_are_refused(key: str, walk: Path, tmp_path: Path) -> None:
    with refused(ConfigError, key):
        run("FMLPRecMemory", "walk", config_dict={**SMALL, "data_path": str(walk), "output_dir": str(tmp_path), key: 0})


def made_of(data: Path, name: str = "random", **keys: Any) -> tuple[Any, Any, Any, Any]:
    """Return model, configuration, data and split."""
    config = Config("FMLPRecMemory", name, config_dict={**SMALL, "data_path": str(data), **keys})
    dataset, split = read_data(config)
    return build_model(config, dataset, split.store, split.train_lengths).eval(), config, dataset, split


@pytest.mark.parametrize(("rerank", "rows"), [(True, 256), (True, 7), (False, 7)])
def test_a_case_is_scored_by_the_newest_items_of_its_history(
    rerank: bool, rows: int, random_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scorer of the ranking, which reads whole histories, agrees with RecBole's interface, which reads batches."""
    monkeypatch.setattr(memory, "_ROWS", rows)
    model, config, dataset, split = made_of(random_data, memory_rerank=rerank)
    model.ranking.ranker.numbers.copy_(filled().numbers)
    batch = dataset.build()[1].inter_feat
    found = model.case_scorer(config)(split.valid)
    torch.testing.assert_close(found[:, 1:], model.full_sort_predict(batch)[:, 1:], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[:, 1:].exp().sum(1), torch.ones(len(found)))
    if rerank:
        lists, mixture = model._read(split.valid)[0], model.case_scorer(config, "epoch")(split.valid)
        torch.testing.assert_close(lists.scores, mixture.gather(1, lists.items), rtol=1e-4, atol=1e-4)


def test_the_mixture_chooses_the_epoch_and_the_ranker_is_fitted_once(
    walk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the best weights, by evidence that is not read before, and only where the target is proposed."""
    fits: list[Any] = []
    fit, read = Ranker.fit, EvidenceReader.forward
    reads: list[int] = []

    def noted(self: Ranker, evidence: Evidence, *more: Any) -> None:
        fits.append(evidence)
        fit(self, evidence, *more)

    def counted(self: EvidenceReader, *given: Any) -> Evidence:
        reads.append(len(fits))
        return read(self, *given)

    monkeypatch.setattr(Ranker, "fit", noted)
    monkeypatch.setattr(EvidenceReader, "forward", counted)
    monkeypatch.setattr(propose, "BEST", 2)  # so that some targets are not proposed
    keys = {**SMALL, "data_path": str(walk), "epochs": 3, "eval_step": 1, "learning_rate": 0.05}
    result = run("FMLPRecMemory", "walk", config_dict={**keys, "output_dir": str(tmp_path / "run")})
    assert len(fits) == 1
    assert reads.count(0) == 1  # one block of cases
    without = run(
        "FMLPRecMemory", "walk", config_dict={**keys, "output_dir": str(tmp_path / "no"), "memory_rerank": False}
    )
    columns = ["epoch", "train_loss", "valid_ndcg@10"]
    found, expected = (pd.read_csv(tmp_path / name / "train.csv")[columns] for name in ("run", "no"))
    pd.testing.assert_frame_equal(found, expected)
    assert result["best_epoch"] == without["best_epoch"]
    cases = result["n_valid_cases"]
    assert f" over {cases} cases chose the epoch" in (tmp_path / "run" / "run.log").read_text()
    model = load(tmp_path / "run").model
    few = ranker_cases(read_data(load(tmp_path / "run").config)[1].valid, exclude_seen=True)
    targets, folds, whole = torch.from_numpy(few.targets).long(), torch.from_numpy(folds_of(few)), Ranker()
    again, rows = model._read(few)
    hit = (again.items == targets[rows, None]).any(1)
    assert 0 < hit.sum() < len(few) == len(rows)
    torch.testing.assert_close(again.values[hit], fits[0].values)
    fit(whole, again, targets, folds)
    torch.testing.assert_close(model.ranking.ranker.numbers, whole.numbers)


@pytest.mark.parametrize("exclude_seen", [True, False])
def test_no_target_that_is_left_out_fits_the_ranker(
    exclude_seen: bool, walk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _, _, split = made_of(walk, "walk", exclude_seen=exclude_seen)
    repeated, fits = repeated_targets(split.valid), list[Any]()
    assert 0 < repeated.sum() < len(repeated)
    monkeypatch.setattr(Ranker, "fit", lambda self, evidence, targets, *_: fits.append(targets.numpy()))
    assert model.choose(split.valid)
    np.testing.assert_array_equal(fits[0], split.valid.targets[~repeated | (not exclude_seen)])
    assert model.choose(split.valid[np.flatnonzero(repeated)]) is not exclude_seen


def test_cases_without_a_proposed_target_fit_nothing(random_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propose, "BEST", 1)
    model, _, _, split = made_of(random_data, exclude_seen=False)
    missed = (model._read(split.valid)[0].items[:, 0].numpy() != split.valid.targets).nonzero()[0]
    assert len(missed) > 0
    model.ranking.ranker.numbers.fill_(1.0)  # of an earlier fit
    assert model.choose(split.valid[missed])  # all of validation is ranked then
    assert not model.ranking.ranker.numbers.any()


def test_a_draw_of_the_cases_chooses_the_epoch(random_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, _, split = made_of(random_data)
    assert model.epoch_cases(split.valid) is split.valid
    monkeypatch.setattr(memory, "EPOCH_CASES", 7)
    assert len(model.epoch_cases(split.valid)) == 7
    without, *_ = made_of(random_data, memory_rerank=False)
    assert without.epoch_cases(split.valid) is split.valid  # its figures are those of the epoch


@pytest.fixture(scope="module")
def ordered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data on which the order of two items tells what follows: after a pair comes its third item, before it another."""
    random, rows = np.random.default_rng(0), []
    for user in range(600):
        items: list[int] = []
        while len(items) < 9:
            first = int(random.integers(0, 40))
            items += [item for item in (first, (first + 1) % 40, (first + 2) % 40) if item not in items[-12:]]
        rows += [(f"u{user}", f"i{item}", time) for time, item in enumerate(items[: int(random.integers(6, 10))])]
    return write_inter(tmp_path_factory.mktemp("data"), "order", rows)


def trained(data: Path, folder: Path, name: str = "order", **keys: Any) -> dict[str, Any]:
    """Run one epoch in which the network learns next to nothing."""
    given_keys = {**LEARN, "data_path": str(data), "epochs": 1, "learning_rate": 1e-6, "output_dir": str(folder)}
    return run("FMLPRecMemory", name, config_dict=given_keys | keys)


@pytest.mark.parametrize("memory_ease", [True, False])
def test_a_run_gains_and_keeps_it(memory_ease: bool, ordered: Path, tmp_path: Path) -> None:
    result = trained(ordered, tmp_path / "run", memory_ease=memory_ease, ema_decay=0.9)
    without = trained(ordered, tmp_path / "without", memory_ease=memory_ease, memory_rerank=False)
    assert result["valid"]["ndcg@10"] > without["valid"]["ndcg@10"] + 0.02
    assert result["test"]["ndcg@10"] > without["test"]["ndcg@10"] + 0.02
    loaded = load(tmp_path / "run")
    assert bool(loaded.model.ranking.ranker.numbers.any())
    assert loaded.model.ranking.reader.ease.is_fitted is memory_ease


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data on which EASE^R alone helps: a history has five items of a group of six, with others between them."""
    random, rows = np.random.default_rng(0), []
    for user in range(400):
        items = random.integers(72, 200, 9)
        items[[0, 2, 4, 7, 8]] = user % 12 * 6 + random.permutation(6)[:5]
        rows += [(f"u{user}", f"i{item}", time) for time, item in enumerate(items)]
    return write_inter(tmp_path_factory.mktemp("data"), "sets", rows)


def test_a_ranker_reads_ease(pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propose, "BEST", 200)
    keys = {"name": "sets", "memory_window": 1}
    with_ease, without = (
        trained(pairs, tmp_path / str(ease), memory_ease=ease, **keys)["test"]["ndcg@10"] for ease in (True, False)
    )
    assert with_ease > 1.5 * without


def test_validation_is_cross_fitted_and_the_test_uses_both_networks(ordered: Path, tmp_path: Path) -> None:
    result = trained(ordered, tmp_path / "run")
    loaded = load(tmp_path / "run")
    model, (_, split) = loaded.model, read_data(loaded.config)
    options = {"n_items": split.store.n_items, "k": 10, "exclude_seen": True}

    def ndcg(score: Any, part: Any) -> float:
        return float(case_values("ndcg@10", rank_cases(score, part, **options).ranks).mean())

    found = ndcg(model.case_scorer(loaded.config, "valid"), split.valid)
    assert found == pytest.approx(result["valid"]["ndcg@10"], abs=1e-5)
    assert ndcg(model.case_scorer(loaded.config), split.test) == pytest.approx(result["test"]["ndcg@10"], abs=1e-5)
    # other numbers of one network change the validation of the other's users alone
    folds, before = folds_of(split.valid), model.case_scorer(loaded.config, "valid")(split.valid)
    model.ranking.ranker.numbers[0] = filled().numbers[0]
    after = model.case_scorer(loaded.config, "valid")(split.valid)
    changed = (before[:, 1:] != after[:, 1:]).any(1).numpy()
    assert not changed[folds == 0].any()
    assert changed[folds == 1].all()


def test_a_refit_keeps_the_ranker(ordered: Path, tmp_path: Path) -> None:
    trained(ordered, tmp_path, refit=True, memory_ease=True)
    selected, refit = (read_weights(tmp_path / part / "model.safetensors")[0] for part in ("", "refit"))
    name = "ranking.ranker._extra_state"
    assert bool(selected[name].any())
    assert torch.equal(selected[name], refit[name])
    assert refit["ranking.reader.ease._extra_state"].numel()
    assert not torch.equal(selected["item_embedding.weight"], refit["item_embedding.weight"])


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True)])
def test_a_refit_reads_ease_if_the_ranker_was_fitted_with_it(before: bool, after: bool, random_data: Path) -> None:
    """More interactions may cross the border of the rule that offers it: its columns were 0 in the fit."""
    models = [made_of(random_data, memory_ease=ease)[0] for ease in (before, after)]
    split = made_of(random_data)[-1]
    models[0].choose(split.valid)
    models[1].choose_as(models[0])
    assert models[1].ranking.reader.ease.is_fitted is before


def test_weights_without_a_ranking_are_refused(walk: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "data_path": str(walk), "output_dir": str(tmp_path / "run")}
    run("FMLPRecMemory", "walk", config_dict=keys)
    file = tmp_path / "run" / "model.safetensors"
    tensors, metadata = read_weights(file)
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("ranking.")}
    save_weights(file, kept, metadata)
    with refused(CheckpointError, "model.safetensors"):
        load(tmp_path / "run")


def test_a_case_of_one_user_is_in_one_fold(random_data: Path) -> None:
    """Rows of a benchmark file are cases, so a user has several rows."""
    split = made_of(random_data)[-1]
    assert set(folds_of(split.valid).tolist()) == {0, 1}
    split.store.users[:] = split.store.users[0]
    assert len(set(folds_of(split.valid).tolist())) == 1
