"""What a loaded run answers: any form of a question, unknown ids, no history, neighbours, scores, states."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from recbole_hyper import load, run
from recbole_hyper.geometry.poincare import Poincare
from recbole_hyper.serving.model_scorer import ModelScorer
from recbole_hyper.serving.recommender import Recommender
from tests.conftest import write_inter
from tests.raising import refused
from tests.serving.conftest import keys

HISTORIES = {"anna": ["i3", "i1", "i4"], "ben": ["i5", "i9"]}
# each an hour after the one before, in texts of the opposite order
ZONES = ["2024-01-01T23:00:00+09:00", "2024-01-01T15:00:00Z", "2024-01-01T08:00:00-08:00"]


class Polars:
    """What polars offers: a table that turns itself into Arrow."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def to_arrow(self) -> Any:
        return self.table


def rows_of(histories: dict[str, list[str]], *names: str) -> dict[str, list]:
    rows = [(user, item, time) for user, items in histories.items() for time, item in enumerate(items)]
    return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=False)}


def lists(frame: pd.DataFrame) -> list[list[str]]:
    return [group["item_id"].tolist() for _, group in frame.groupby("user_id", sort=False)]


def forms() -> dict[str, Any]:
    table = pd.DataFrame(rows_of(HISTORIES, "user_id", "item_id", "timestamp"))
    mixed = table.sample(frac=1, random_state=3)
    mixed = pd.concat([mixed[mixed["user_id"] == "anna"], mixed[mixed["user_id"] == "ben"]])
    arrow = pa.table(rows_of(HISTORIES, "user_id", "item_id", "timestamp"))
    return {
        "lists": list(HISTORIES.values()),
        "generator": (iter(items) for items in HISTORIES.values()),
        "arrays": [np.array(items) for items in HISTORIES.values()],
        "series": pd.Series(list(HISTORIES.values()), index=[7, 9]),
        "mapping": HISTORIES,
        "frame": table,
        "frame in any order": mixed,
        "frame in order, without a time": table.drop(columns="timestamp"),
        "frame of names that a file may have": mixed.rename(
            columns={"user_id": "customerID", "item_id": "SKU", "timestamp": "date"}
        ),
        "frame of dates": mixed.assign(timestamp=pd.to_datetime(mixed["timestamp"], unit="D")),
        "frame of numbers as text": mixed.assign(timestamp=(mixed["timestamp"] * 7).astype(str)),
        "frame of dates as text": mixed.assign(timestamp=[ZONES[time] for time in mixed["timestamp"]]),
        "arrow": arrow,
        "arrow lists": pa.array(list(HISTORIES.values())),
        "polars": Polars(arrow),
    }


@pytest.mark.parametrize("form", forms())
def test_every_form_of_histories_gives_the_same_lists(form: str, model: Recommender) -> None:
    found = model.recommend(histories=forms()[form], k=4)
    assert list(found.columns) == ["user_id", "position", "item_id", "score", "popular"]
    assert lists(found) == lists(model.recommend(histories=HISTORIES, k=4))
    named = ["anna", "ben"] if not isinstance(forms()[form], (list, pd.Series)) else [0, 1]
    named = [0, 1] if form in ("generator", "arrow lists") else named
    assert found["user_id"].tolist() == list(np.repeat(named, 4))
    # another order of the items is another question
    turned = {user: items[::-1] for user, items in HISTORIES.items()}
    assert not np.allclose(model.recommend(histories=turned, k=4)["score"], found["score"])


@pytest.mark.parametrize(
    "users",
    [
        ["u3", "u1"],
        np.array(["u3", "u1"]),
        pd.Series(["u3", "u1"], index=[4, 2]),
        pd.DataFrame({"who": ["u3", "u1"]}),
        pa.array(["u3", "u1"]),
        Polars(pa.chunked_array([["u3"], ["u1"]])),
        (name for name in ("u3", "u1")),
    ],
)
def test_users_are_scored_by_their_whole_history(users: Any, model: Recommender) -> None:
    found = model.recommend(users=users, k=3)
    store = model.store
    histories = {name: store.item_tokens[store.row(int(name[1:]))].tolist() for name in ("u3", "u1")}
    pd.testing.assert_frame_equal(found, model.recommend(histories=histories, k=3), check_dtype=False)


def test_a_new_history_of_a_user_replaces_the_old_one(model: Recommender) -> None:
    store = model.store
    old = store.item_tokens[store.row(3)].tolist()
    new = next(item for item in model.item_ids if item not in old)
    found = model.recommend(histories={"u3": [*old, new]}, k=2)
    assert new not in found["item_id"].tolist()
    assert found["score"].tolist() != model.recommend(users=["u3"], k=2)["score"].tolist()


def test_unknown_items_are_skipped_and_counted(model: Recommender) -> None:
    found = model.recommend(histories=[["i3", "gone", "i4", "i", "i333", "[PAD]"], ["i5"]], k=3)
    assert lists(found) == lists(model.recommend(histories=[["i3", "i4"], ["i5"]], k=3))
    assert found.attrs == {"unknown_items": 4, "unknown_users": 0, "popular_users": 0}
    with refused(ValueError, "'gone'"):
        model.recommend(histories=[["i3", "gone"]], unknown="error")
    assert model.recommend(users=["nobody", "u1"]).attrs["unknown_users"] == 1
    with refused(ValueError, "'nobody'"):
        model.recommend(users=["u1", "nobody"], unknown="error")


def test_histories_without_a_known_item_get_popular_items(model: Recommender) -> None:
    counts = np.bincount(model.store.items, minlength=13)  # the newest two of each are held out
    for row in range(model.store.n_rows):
        np.subtract.at(counts, model.store.row(row)[-2:], 1)
    order = np.argsort(-counts[1:], kind="stable") + 1
    found = model.recommend(histories=[[], ["i3"], ["gone", "lost"]], k=4)
    assert found["popular"].tolist() == [True] * 4 + [False] * 4 + [True] * 4
    assert lists(found)[0] == lists(found)[2] == model.store.item_tokens[order[:4]].tolist()
    np.testing.assert_allclose(found["score"][:4], counts[order[:4]] / counts.sum(), rtol=1e-6)
    assert found.attrs["popular_users"] == 2
    only = model.recommend(users=["nobody"], k=2, items=["i7", "i8", "i9"], exclude=["i8"])
    assert set(only["item_id"]) == {"i7", "i9"}
    with refused(ValueError, "histories", "first"):
        model.recommend(histories=[[], ["i3"], ["gone"]], cold="error")


def test_allowed_and_excluded_items(model: Recommender) -> None:
    every = model.recommend(histories=[["i1"]], k=12)
    assert len(every) == 11  # one is in the history
    some = model.recommend(histories=[["i1"]], k=5, items=["i2", "i1", "i5", "i9", "gone"], exclude=pd.Series(["i5"]))
    assert some["item_id"].tolist() == [item for item in every["item_id"] if item in ("i2", "i9")]
    assert "i1" in model.recommend(histories=[["i1"]], k=12, exclude_seen=False)["item_id"].tolist()
    with refused(ValueError, "items", "recommended"):
        model.recommend(histories=[["i1"]], items=[])
    with refused(ValueError, "'gone'"):
        model.recommend(histories=[["i1"]], items=["i2", "gone"], unknown="error")


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({}, "give users or histories"),
        ({"users": ["u1"], "histories": [["i1"]]}, "give users or histories"),
        ({"users": ["u1"], "k": 13}, "between 1 and 12"),
        ({"users": [], "k": 0}, "k=0"),
        ({"users": ["u1"], "k": "3"}, "k='3'"),
        ({"users": ["u1"], "exclude_seen": 1}, "exclude_seen=1"),
        ({"users": ["u1"], "unknown": "ignore"}, "unknown='ignore'"),
        ({"users": ["u1"], "cold": "random"}, "cold='random'"),
        ({"users": "u1"}, "users='u1' is a single string"),
        ({"users": [True]}, "True is not an id"),
        ({"histories": [b"i1"]}, "histories[0]=b'i1' is a single string"),
        ({"histories": ["i1", "i2"]}, "histories[0]='i1' is a single string"),
        ({"histories": [{"i1", "i2"}]}, "histories[0] is a set"),
        ({"histories": [[["i1"]]]}, "histories[0]"),
        ({"histories": [[None]]}, "None is not an id"),
        ({"histories": 3}, "histories=3 is not a list"),
        ({"histories": pd.DataFrame({"user_id": ["a"], "thing": ["i1"]})}, "item_id; its columns: user_id, thing"),
        ({"histories": pd.DataFrame({"user_id": ["a"], "item_id": [None]})}, "row 0 (from 0): no item in 'item_id'"),
        ({"users": pd.DataFrame({"a": ["u1"], "b": ["u1"]})}, "a table of 2 columns"),
    ],
)
def test_invalid_arguments_are_refused(asked: dict, named: str, model: Recommender) -> None:
    with refused(ValueError, named):
        model.recommend(**asked)


def test_a_batch_of_histories_equals_single_calls(model: Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelScorer, "block", 7)
    users = [*model.user_ids, "nobody"]
    whole = model.recommend(users=users, k=5)
    ones = pd.concat([model.recommend(users=[user], k=5) for user in users], ignore_index=True)
    assert whole["item_id"].tolist() == ones["item_id"].tolist()
    np.testing.assert_allclose(whole["score"], ones["score"], rtol=1e-4, atol=1e-5)


def test_scores_states_and_vectors_belong_together(model: Recommender) -> None:
    histories = list(HISTORIES.values())
    scores, states, vectors = model.score(histories), model.states(histories), model.item_vectors()
    assert vectors.index.tolist() == model.item_ids.tolist()
    np.testing.assert_allclose(states @ vectors.to_numpy().T, scores, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(model.score(histories, ["i7", "i2"]), scores[:, [_at(model, "i7"), _at(model, "i2")]])
    best = model.recommend(histories=histories, k=1, exclude_seen=False)
    np.testing.assert_allclose(best["score"], scores.max(axis=1), rtol=1e-6)
    with refused(ValueError, "'gone'"):
        model.score(histories, ["gone"])
    with refused(ValueError, "histories", "item"):
        model.states([["gone"]])


def _at(model: Recommender, item: str) -> int:
    return model.item_ids.tolist().index(item)


def test_no_history_is_no_row_and_ids_are_read_only(model: Recommender) -> None:
    assert model.score([]).shape == (0, 12)
    assert model.states([]).shape == (0, model.item_vectors().shape[1])
    for nobody, somebody in (({"users": []}, {"users": ["u1"]}), ({"histories": iter([])}, {"histories": [["i1"]]})):
        empty = model.recommend(**nobody)
        assert len(empty) == 0
        pd.testing.assert_series_equal(empty.dtypes, model.recommend(**somebody).dtypes)
    for ids in (model.item_ids, model.user_ids):
        with refused(ValueError, "read-only"):
            ids[0] = "other"


def test_similar_items_by_cosine(model: Recommender) -> None:
    vectors = model.item_vectors()
    normed = vectors.to_numpy() / np.linalg.norm(vectors.to_numpy(), axis=1, keepdims=True)
    alike = normed @ normed[_at(model, "i4")]
    order = [item for item in vectors.index[np.argsort(-alike, kind="stable")] if item != "i4"]
    found = model.similar_items(["i4", "i2"], k=5)
    assert found["similar_id"].tolist()[:5] == order[:5]
    assert found["item_id"].tolist() == ["i4"] * 5 + ["i2"] * 5
    assert found.attrs["measure"] == "cosine of the item vectors"
    assert model.similar_items("i4", 5)["similar_id"].tolist() == order[:5]
    with refused(ValueError, "'gone'"):
        model.similar_items(["gone"])
    with refused(ValueError, "k=12"):
        model.similar_items(["i1"], 12)


def test_the_measure_of_the_ball_is_its_geodesic_distance() -> None:
    geoopt = pytest.importorskip("geoopt")
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(9, 4, generator=generator, dtype=torch.float64) / 2
    ball = geoopt.PoincareBall(c=0.3)
    where = ball.expmap0(points)
    found = Poincare().similarity(points[:2], points, theta=0.3)
    torch.testing.assert_close(-found, ball.dist(where[:2, None], where[None]), atol=1e-6, rtol=1e-9)


@pytest.mark.parametrize("name", ["BPR", "HGN"])
def test_a_model_with_user_vectors_needs_the_users_of_histories(name: str, folder: Path, tmp_path: Path) -> None:
    run(name, "small", config_dict=keys(folder.parent / "data", tmp_path / "run"))
    model = load(tmp_path / "run")
    found = model.recommend(histories={"u1": ["i2"], "nobody": ["i2"]}, k=2)
    assert found["popular"].tolist() == [False, False, True, True]
    assert "i2" not in found["item_id"].tolist()
    with refused(ValueError, name):
        model.recommend(histories=[["i2"]])
    assert len(model.similar_items(["i2"], 3)) == 3


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Recommender:
    """A run of a model that reads times, over users u0 .. u9 who came after hours, days and months."""
    place = tmp_path_factory.mktemp("timed")
    generator = np.random.default_rng(2)
    rows = [
        (f"u{user}", f"i{(user * 5 + step) % 12}", time)
        for user in range(10)
        for step, time in enumerate((1.5e9 + np.exp(generator.uniform(5, 17, 8)).cumsum()).round())
    ]
    write_inter(place / "data", "small", rows)
    run("SASRecCE", "small", config_dict=keys(place / "data", place / "run", encoder="hstu", learning_rate=0.05))
    return load(place / "run")


def test_times_in_every_form_equal_those_of_the_data(timed: Recommender) -> None:
    store = timed.store
    users = ["u3", "u7"]
    rows = [int(np.flatnonzero(store.user_tokens[store.users] == user)[0]) for user in users]
    histories = {user: store.item_tokens[store.row(row)].tolist() for user, row in zip(users, rows, strict=True)}
    times = {user: store.times[store.offsets[row] :][:8].tolist() for user, row in zip(users, rows, strict=True)}
    expected = timed.recommend(users=users, k=3)["score"].tolist()
    table = pd.DataFrame(
        [(user, item, time) for user in users for item, time in zip(histories[user], times[user], strict=True)],
        columns=["user_id", "item_id", "timestamp"],
    ).sample(frac=1, random_state=1)
    dates = pd.to_datetime(table["timestamp"], unit="s")
    forms: list[dict[str, Any]] = [
        {"histories": histories, "times": dict(reversed(times.items()))},
        {"histories": list(histories.values()), "times": list(times.values())},
        {"histories": list(histories.values()), "times": [pd.to_datetime(one, unit="s") for one in times.values()]},
        {"histories": table},
        {"histories": table.assign(timestamp=dates)},
        {"histories": table.assign(timestamp=dates.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"))},
    ]
    for form in forms:
        found = timed.recommend(k=3, **form).set_index("user_id")
        own = found.loc[users if not isinstance(form["histories"], list) else [0, 1], "score"].tolist()
        assert own == pytest.approx(expected, abs=1e-6)
    lists_ = forms[1]
    scores = timed.score(**lists_)
    best = [timed.store.item_tokens[1:][row.argsort()[::-1]] for row in scores]
    assert [item for item in best[0] if item not in histories["u3"]][:3] == lists(timed.recommend(users=users, k=3))[0]
    assert not np.allclose(timed.states(**lists_), timed.states(lists_["histories"]))
    # an unknown item goes with its time
    longer = {user: ["gone", *items] for user, items in histories.items()}
    when = {user: [0.0, *own] for user, own in times.items()}
    assert timed.recommend(histories=longer, times=when, k=3)["score"].tolist() == pytest.approx(expected, abs=1e-6)
    # a part of what is asked has its own times
    query = timed.query(histories=histories, times=times)
    assert timed.answer(query[1:], timed.catalogue.plan(3))["score"].tolist() == pytest.approx(expected[3:], abs=1e-6)


@pytest.mark.parametrize("form", ["milliseconds", "days as numbers", "dates"])
def test_histories_of_a_run_on_a_frame_have_the_frames_times(form: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(4)
    # 3600 days at most: a run refuses times after tomorrow
    moments = pd.to_datetime("2011-03-01") + pd.to_timedelta(
        generator.integers(1, 600, (8, 6)).cumsum(axis=1).ravel(), "D"
    )
    times = {"milliseconds": moments.as_unit("ms").asi8, "days as numbers": moments.strftime("%Y%m%d").astype(int)}
    frame = pd.DataFrame(
        {
            "user_id": np.repeat([f"u{number}" for number in range(8)], 6),
            "item_id": [f"i{(user * 5 + step) % 12}" for user in range(8) for step in range(6)],
            "timestamp": times.get(form, moments),
        }
    )
    options = keys(tmp_path, tmp_path / "run", encoder="hstu", learning_rate=0.05)
    run("SASRecCE", "frame", config_dict=options, interactions=frame)
    model = load(tmp_path / "run")
    own = frame[frame["user_id"] == "u3"]
    expected = model.recommend(users=["u3"], k=4)["score"].tolist()
    assert model.recommend(histories=own, k=4)["score"].tolist() == pytest.approx(expected, abs=1e-6)
    one_moment = model.recommend(histories=own.assign(timestamp=own["timestamp"].iloc[0]), k=4)["score"].tolist()
    assert one_moment != pytest.approx(expected, abs=1e-6)


def test_histories_without_times_get_one_time_and_a_warning(timed, caplog) -> None:
    histories = [["i1", "i2", "i3"], ["i7"]]
    timed._warned = False
    found = [timed.score(histories) for _ in range(2)]
    assert [text for text in caplog.messages if "reads times, but the histories have none" in text] == [
        "SASRecCE reads times, but the histories have none: all their items get the same time; pass times=, "
        "or a table with a column timestamp"
    ]
    np.testing.assert_array_equal(found[0], timed.score(histories, times=[[5.0] * 3, [9.0]]))
    assert not np.allclose(found[0][0], timed.score(histories, times=[[1e9, 2e9, 3e9], [1.0]])[0])


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"histories": [["i1", "i2"]], "times": [[1.0]]}, "times[0] has 1 entries, its history has 2 items"),
        ({"histories": [["i1"]], "times": [[1.0], [2.0]]}, "times has 2 lists for 1 histories"),
        ({"histories": [["i1"]], "times": {"a": [1.0]}}, "the form of the histories"),
        ({"histories": {"a": ["i1"]}, "times": {"b": [1.0]}}, "times[0] has 0 entries"),
        ({"histories": [["i1"]], "times": [["31.13.2024"]]}, "numbers or dates"),
        ({"histories": [["i1"]], "times": [[1j]]}, "1j"),
        ({"histories": [["i1"]], "times": [[float("inf")]]}, "numbers or dates"),
        ({"histories": [["i1"]], "times": [[pd.NaT]]}, "numbers or dates"),
        ({"histories": [["i1"], ["i1", "i2"]], "times": [[9.0], [2.0, 1.0]]}, "times[1] go backwards"),
        ({"histories": pd.DataFrame({"user_id": ["a"], "item_id": ["i1"], "timestamp": ["soon"]})}, "'timestamp'"),
        ({"histories": pd.DataFrame({"user_id": ["a"], "item_id": ["i1"]}), "times": [[1.0]]}, "'timestamp'"),
        ({"users": np.array([1j])}, "users, row 0 (from 0): 1j"),
        ({"users": ["u1"], "times": [[1.0]]}, "times belong to histories"),
    ],
)
def test_times_that_do_not_fit_the_histories_are_refused(asked: dict, named: str, timed: Recommender) -> None:
    with refused(ValueError, named):
        timed.recommend(**asked, k=2)
