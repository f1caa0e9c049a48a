"""A finished run on new interactions: which are ranked, after which history, and at which rank the target is."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from recbole_hyper import load, run
from recbole_hyper.cli import main
from recbole_hyper.config import ConfigError
from recbole_hyper.runs.evaluate import evaluate
from tests.conftest import SMALL, write_inter
from tests.raising import refused


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve users with 3 to 8 interactions with 15 items, and an .item file."""
    generator = np.random.default_rng(2)
    rows = [
        (f"u{user}", f"i{item}", 100 + 10 * place + user)
        for user in range(12)
        for place, item in enumerate(generator.permutation(15)[: 3 + user % 6])
    ]
    folder = write_inter(tmp_path_factory.mktemp("data"), "shop", rows)
    kinds = "\n".join(f"i{item}\t{'book' if item % 3 else 'lamp'}" for item in range(15))
    (folder / "shop" / "shop.item").write_text(f"item_id:token\tkind:token\n{kinds}\n")
    return folder


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("run") / "out"
    keys = {**SMALL, "data_path": str(data), "use_gpu": False, "topk": [3], "valid_metric": "NDCG@3", "epochs": 1}
    run("SASRecCE", "shop", config_dict={**keys, "output_dir": str(output)})
    return output


NEW = pd.DataFrame(
    [
        ("u0", "i1", 500), ("u0", "i2", 400), ("u0", "lost", 450),  # out of order, and an unknown item
        ("u3", "i4", 150), ("u3", "i5", 600),  # the first is late for the user, but before the newest of the run
        ("new", "i6", 700), ("new", "i7", 710), ("new", "i6", 720),  # a new user: the first has no history
        ("u5", "i8", 800),
    ],
    columns=["user_id", "item_id", "timestamp"],
)  # fmt: skip


def reference(trained: Path, data: Path, frame: pd.DataFrame, since: float) -> list[tuple[str, str, int]]:
    """(user, item, rank) of every late interaction by a loop: score the history, count who is ahead."""
    model = load(trained)
    old = pd.read_csv(data / "shop" / "shop.inter", sep="\t")
    old.columns = ["user_id", "item_id", "timestamp"]
    found = []
    for user, own in frame.groupby("user_id"):
        events = pd.concat([old[old.user_id == user].assign(new=False), own.assign(new=True)])
        events = events[events.item_id.isin(model.item_ids)].sort_values("timestamp", kind="stable")
        for place, event in enumerate(events.itertuples()):
            if not event.new or event.timestamp <= since or not place:
                continue
            history = events.item_id.tolist()[:place]
            scores = model.score([history])[0]
            by_item = dict(zip(model.item_ids, scores, strict=True))
            others = [item for item in by_item if item not in history and item != event.item_id]
            ahead = sum(by_item[item] >= by_item[event.item_id] for item in others)
            found.append((user, event.item_id, len(others) + 1 if event.item_id in history else ahead + 1))
    return sorted(found)


def test_every_new_interaction_is_ranked_after_its_history(trained: Path, data: Path, tmp_path: Path) -> None:
    newest = pd.read_csv(data / "shop" / "shop.inter", sep="\t")["timestamp:float"].max()
    file = tmp_path / "yesterday.csv"
    new = pd.concat([NEW, NEW[-1:]])
    new.sample(frac=1, random_state=1).to_csv(file, index=False)
    result = evaluate(trained, data=file)
    assert result["new_data"] == file.name
    expected = reference(trained, data, new, float(newest))
    assert len(expected) == 7
    ranks = np.array([rank for *_, rank in expected])
    assert result["test"]["hit@3"] == pytest.approx(np.mean(ranks <= 3), abs=1e-4)
    assert result["test"]["ndcg@3"] == pytest.approx(np.mean(np.where(ranks <= 3, 1 / np.log2(ranks + 1), 0)), abs=1e-4)
    counts = result["protocol_counts"]
    assert counts["protocol"] == result["protocol"] == "new data"
    assert (counts["test cases"], counts["cases twice, as rows twice in the data"]) == (7, 1)
    assert counts["cases of new users"] == 2
    assert counts["new interactions with unknown items, not ranked"] == 1
    assert counts["new interactions without an earlier one, not ranked"] == 1
    assert counts["interactions before the first test time that the run lacks, not ranked"] == int(
        (NEW.timestamp <= newest).sum()
    )
    assert (counts["since"], counts["until"]) == (newest, 800)
    (written,) = trained.glob("evaluation_new_data-*.json")
    assert json.loads(written.read_text())["test"] == result["test"]


def test_since_moves_the_first_case(trained: Path, data: Path) -> None:
    result = evaluate(trained, data=NEW, since=600)
    assert result["protocol_counts"]["test cases"] == 4  # inclusive, and without the first of the new user
    # what the run's data hold already is none of the new interactions
    old = pd.read_csv(data / "shop" / "shop.inter", sep="\t")
    old.columns = ["user_id", "item_id", "timestamp"]
    assert evaluate(trained, data=pd.concat([old, NEW]), since=600)["test"] == result["test"]
    assert evaluate(trained, data=NEW.rename(columns={"user_id": "user", "item_id": "item"}), since="600")["test"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"data": "nothing.csv"}, "nothing.csv"),
        ({"data": NEW.drop(columns="item_id")}, "item_id"),
        ({"data": NEW.drop(columns="timestamp")}, "timestamp"),
        ({"data": NEW, "since": "soon"}, "'soon'"),
        ({"data": NEW, "since": 900}, "after 900"),
        ({"since": 3}, "since=3"),
        ({"segments": ["mood"]}, "history_length"),
        ({"segments": ["item.mood"]}, "item.kind"),
    ],
)
def test_invalid_data_since_and_segments_are_refused(trained: Path, options: dict[str, Any], named: str) -> None:
    with refused(ConfigError, named):
        evaluate(trained, **options)


def test_segments_of_new_data_on_the_command_line(trained, tmp_path, capsys) -> None:
    file = tmp_path / "orders.csv"
    NEW.to_csv(file, index=False)
    segments = "--segments=history_length,item_popularity,item.kind,user.new"
    assert main(["evaluate", str(trained), f"--data={file}", "--since=400", segments]) == 0
    printed = capsys.readouterr().out
    assert "cases of new users: 2" in printed
    written = Path(printed.splitlines()[-1])
    rows = json.loads(written.read_text())["test_segments"]
    assert {row["by"] for row in rows} == {"history_length", "item_popularity", "item.kind", "user.new"}
    for name in ("history_length", "item_popularity", "user.new", "item.kind"):
        own = [row for row in rows if row["by"] == name]
        assert sum(row["cases"] for row in own) == 6
        mean = sum(row["cases"] * row["hit@3"] for row in own) / 6
        assert mean == pytest.approx(json.loads(written.read_text())["test"]["hit@3"], abs=1e-4)
    assert {row["segment"]: row["cases"] for row in rows if row["by"] == "user.new"} == {"known": 4, "new": 2}


@pytest.mark.parametrize("model", ["BPR", "HGN"])
def test_a_model_that_learns_users_ranks_known_ones(model: str, data: Path, tmp_path: Path) -> None:
    keys = {"data_path": str(data), "use_gpu": False, "topk": [3], "valid_metric": "NDCG@3", "epochs": 1}
    keys |= {"eval_args": {"split": {"LS": "valid_and_test"}}, "output_dir": str(tmp_path / "bpr")}
    run(model, "shop", config_dict=keys)
    found = evaluate(tmp_path / "bpr", data=pa.Table.from_pandas(NEW))["protocol_counts"]
    assert (found["test cases"], found["new interactions of users that the model did not learn, not ranked"]) == (4, 3)
