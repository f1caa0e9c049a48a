"""The studies of the default model: other networks, memories and rerankers, and cuts of a data set."""

import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import torch

from recbole_hyper import plugin_files, registry, run
from recbole_hyper.config import Config
from recbole_hyper.protocols.base import make_split
from recbole_hyper.random_numbers import OwnDraws
from recbole_hyper.runs.build import build
from recbole_hyper.runs.dataset import SequenceDataset
from tests.conftest import SMALL, script

STUDIES = Path(__file__).parents[2] / "examples" / "studies"


def study(name: str) -> ModuleType:
    return script(STUDIES / f"{name}.py")


def test_cuts_of_a_data_set() -> None:
    cuts = study("cuts")
    # user u has the items 0 to u, each user after the one before
    rows = [(str(user), str(item)) for user in range(6) for item in range(user + 1)]
    frame = pd.DataFrame(rows, columns=[cuts.USER, cuts.ITEM]).assign(**{cuts.TIME: range(len(rows))})
    users, newest, items = cuts.cuts(frame, 2).values()
    assert users[cuts.USER].nunique() == 2
    assert len(users) == sum(int(user) + 1 for user in users[cuts.USER].unique())
    assert list(newest.index) == list(range(len(frame) // 2, len(frame)))
    assert set(items[cuts.ITEM]) == {"0", "1"}
    assert all(part.index.is_monotonic_increasing for part in (users, newest, items))


def variant(data: Path, monkeypatch: pytest.MonkeyPatch, **keys: Any) -> tuple[Any, Any]:
    """Return a variant of the default model and its first batch; the registry forgets it after the test."""
    monkeypatch.setattr(registry, "_registry", {kind: dict(known) for kind, known in registry._registry.items()})
    model = plugin_files.load(STUDIES / "network_variants.py").FMLPRecMemoryVariant
    settings = {**SMALL, "data_path": str(data), "hidden_dropout_prob": 0.0, "label_smoothing": 0.0, **keys}
    config = Config(model, "random", config_dict=settings)
    dataset = SequenceDataset(config)
    split = make_split(dataset.store, config)
    with OwnDraws(0):
        made, loader, _ = build(config, dataset, split, split.train_lengths)
    return made, next(iter(loader))


def test_near_targets_are_soft_labels(random_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = variant(random_data, monkeypatch, near_targets=0.3)
    found = model.calculate_loss(batch)
    ((states, _),), targets = model._states, batch["target_list"][batch["target_list"] > 0]
    labels = torch.zeros(len(targets), model.n_items)
    labels.scatter_add_(1, model._near[targets], 0.3 * model._rates[targets])
    labels[torch.arange(len(targets)), targets] += 1 - 0.3 * model._rates[targets].sum(1)
    logits = model.head.logits(states)[:, 1:]
    torch.testing.assert_close(found, torch.nn.functional.cross_entropy(logits, labels[:, 1:]))


def test_reversed_histories_have_reversed_targets(random_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = variant(random_data, monkeypatch, reversed_rows=1.0)
    turned = study("network_variants").reversed_rows
    items = torch.tensor([[1, 2, 3, 0], [4, 5, 6, 7], [4, 5, 0, 0]])
    targets = torch.tensor([[2, 3, 9, 0], [0, 0, 7, 8], [5, 0, 0, 0]])
    new_items, new_targets = turned(items, torch.tensor([3, 4, 2]), targets)
    # the first two targets of the second row stay untrained; the last target of the third is not known
    assert new_items.tolist() == [[9, 3, 2, 0], [8, 7, 6, 5], [4, 5, 0, 0]]
    assert new_targets.tolist() == [[3, 2, 1, 0], [0, 0, 5, 4], [5, 0, 0, 0]]
    straight, _ = variant(random_data, monkeypatch)
    found = model.calculate_loss(batch)
    assert found != straight.calculate_loss(batch)
    new_items, new_targets = turned(batch["item_id_list"], batch["item_length"], batch["target_list"])
    batch["item_id_list"], batch["target_list"] = new_items, new_targets
    torch.testing.assert_close(found, straight.calculate_loss(batch))


def test_other_memories_are_compared_on_the_cases_of_a_run(random_data: Path, tmp_path: Path) -> None:
    """A row of several runs is the mean over all choices of so many of their networks."""
    writer = study("memory_variants")
    writer.FILE, writer.NEIGHBOURS, folders = tmp_path / "variants.csv", 5, []
    for seed in (1, 2):
        folders.append(tmp_path / str(seed))
        keys = {"data_path": str(random_data), "seed": seed, "output_dir": str(folders[-1])}
        run("FMLPRecMemory", "random", config_dict={**SMALL, **keys})
    writer.main([str(folder) for folder in folders])
    table = pd.read_csv(writer.FILE).set_index("variant")
    runs = [writer.Run(str(folder)) for folder in folders]
    assert table.loc["the network alone", "valid ndcg@10"] == round(
        writer.ndcg(runs[0].ranks(runs[0].network.copy())), 4
    )

    def best(network: Any) -> float:
        runs[0].network = network
        return max(writer.ndcg(r) for *_, r in runs[0].mixtures(writer.distributions(runs[0], runs[0].memory)))

    networks = [one.network for one in runs]
    one, two = (f"the mean of the networks of {count} of 2 seeds, and the memory" for count in (1, 2))
    assert table.loc[one, "valid ndcg@10"] == pytest.approx(sum(map(best, networks)) / 2, abs=1e-4)
    assert table.loc[two, "valid ndcg@10"] == pytest.approx(best(sum(networks) / 2), abs=1e-4)
    assert (table["cases"] == len(runs[0].cases)).all()


def test_rerankers_are_compared_on_the_cases_of_runs(random_data, tmp_path) -> None:
    writer = study("rerankers")
    writer.FILE, folders = tmp_path / "rerankers.csv", []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        shutil.copy(random_data / "random" / "random.inter", tmp_path / name / f"{name}.inter")
        folders.append(tmp_path / "runs" / name)
        run("FMLPRecMemory", name, config_dict={**SMALL, "data_path": str(tmp_path), "output_dir": str(folders[-1])})
    table = writer.main([str(folder) for folder in folders]).set_index(["data", "reranker"])
    assert list(table.loc["one"].index[:2]) == ["none", "all evidence"]
    assert table.index[-1] == ("two", "of one")
    one, two = (writer.read(str(folder)) for folder in folders)
    assert one.name == "one"
    evidence = one.of_best(50)
    assert table.loc[("one", "none"), "valid ndcg@10"] == round(one.ndcg(evidence, evidence.scores), 4)
    again = writer.Ranker()
    again.fit(evidence, one.targets, one.folds)
    found = one.ndcg(evidence, again(evidence, one.folds))
    assert table.loc[("one", "all evidence"), "valid ndcg@10"] == round(found, 4)
    expected = one.ndcg(evidence, two.ranker(evidence))
    assert table.loc[("one", "of two"), "valid ndcg@10"] == round(expected, 4)
