"""benchmarks/bench_peers.py without any peer: split files, lists, clock, table, and scripts that fail in every way."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import script, write_inter
from tests.raising import refused

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


sys.path.insert(0, str(BENCHMARKS))
bench = script(BENCHMARKS / "bench_peers.py")
peer = script(BENCHMARKS / "peers" / "peer.py")
environments = sys.modules["peers.driver.environments"]
lists = sys.modules["peers.driver.lists"]
running = sys.modules["peers.driver.running"]
split_files = sys.modules["peers.driver.split"]
tables = sys.modules["peers.driver.tables"]

# times with ties, which stay in file order; users of 1 to 6 interactions
ROWS = [
    ("a", "x", 5), ("b", "y", 1), ("a", "y", 5), ("c", "x", 1), ("a", "z", 3), ("b", "x", 1), ("a", "w", 5),
    ("b", "z", 0), ("a", "v", 9), ("b", "w", 1), ("d", "x", 4), ("d", "y", 2), ("d", "z", 3), ("e", "v", 1),
    ("e", "w", 1), ("a", "u", 9),
]  # fmt: skip


def read(file: Path) -> list[tuple[int, ...]]:
    return [tuple(map(int, line.split("\t"))) for line in file.read_text().splitlines()[1:]]


@pytest.fixture
def split(tmp_path: Path):
    data = write_inter(tmp_path / "data", "tied", ROWS)
    return split_files.make_split(tmp_path / "splits", "tied", str(data))


# --- split -----------------------------------------------------------------------------------------------------------
def slow_leave_one_out() -> dict[str, tuple[list[str], list[str], list[str]]]:
    """Training, validation and test items of each user, by loops: the last two interactions of those with 4 or more."""
    histories: dict[str, list[tuple[int, int, str]]] = {}
    for place, (user, item, when) in enumerate(ROWS):
        histories.setdefault(user, []).append((when, place, item))
    parts = {}
    for user, rows in histories.items():
        items = [item for _, _, item in sorted(rows)]
        held = 2 if len(items) >= 4 else 1 if len(items) == 3 else 0
        train = items[: len(items) - held]
        parts[user] = (train, items[-2:-1] if held == 2 else [], items[-1:] if held else [])
    return parts


def test_split_files_are_leave_one_out_in_file_order(split) -> None:
    parts = slow_leave_one_out()
    train: dict[int, list[int]] = {}
    for user, item, position in read(split.folder / "train.tsv"):
        train.setdefault(user, []).append(item)
        assert position == len(train[user]) - 1
    # numbers are the split's own; the order of users and items by first appearance is RecBole's
    users = {name: number for number, name in enumerate(dict.fromkeys(user for user, _, _ in ROWS), start=1)}
    items = {name: number for number, name in enumerate(dict.fromkeys(item for _, item, _ in ROWS), start=1)}
    assert train == {users[user]: [items[item] for item in part[0]] for user, part in parts.items()}
    for name, at in (("valid.tsv", 1), ("held_out/targets.tsv", 2)):
        expected = {
            (users[user], items[part[at][0]], len(part[0]) + (at == 2 and bool(part[1])))
            for user, part in parts.items()
            if part[at]
        }
        assert set(read(split.folder / name)) == expected
    assert {user for (user,) in read(split.folder / "test_users.tsv")} == {users[u] for u, p in parts.items() if p[2]}
    assert split.meta["n_items"] == len(items) + 1


def test_no_file_of_peers_holds_a_test_target(split) -> None:
    held = {(user, item) for user, item, _ in read(split.folder / "held_out" / "targets.tsv")}
    visible = [row[:2] for name in ("train.tsv", "valid.tsv") for row in read(split.folder / name)]
    assert held
    assert not held & set(visible)
    assert len(held) + len(visible) == len(ROWS)


# --- lists -----------------------------------------------------------------------------------------------------------
def write_lists(file: Path, rows: list[tuple[int, int, int]], header: str = "user\titem\trank") -> Path:
    file.write_text("\n".join([header, *("\t".join(map(str, row)) for row in rows)]) + "\n")
    return file


def test_lists_are_scored_as_by_hand(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    users, n_items, k = np.array([7, 2, 9, 4, 5]), 30, 10
    targets = draw.integers(1, n_items, len(users))
    made = {
        user: draw.permutation(np.arange(1, n_items))[:size].tolist()
        for user, size in zip(users.tolist(), (10, 3, 10, 0, 10), strict=True)
    }
    # one is found in the third place
    made[7] = [item for item in made[7] if item != targets[0]]
    made[7].insert(2, int(targets[0]))
    del made[5]
    rows = [(int(user), item, rank) for user, items in made.items() for rank, item in enumerate(items[:k], start=1)]
    order = draw.permutation(len(rows))
    file = write_lists(tmp_path / "lists.tsv", [rows[at] for at in order])
    found = lists.read_lists(file, users, np.empty((0, 2), dtype=np.int64), n_items, k)
    gain = hits = 0.0
    for user, target in zip(users.tolist(), targets.tolist(), strict=True):
        for at, item in enumerate(made.get(user, [])[:k]):
            if item == target:
                gain, hits = gain + 1 / math.log2(at + 2), hits + 1
    assert hits >= 1
    scored = lists.score_lists(found, targets)
    assert scored["ndcg@10"] == pytest.approx(gain / len(users), abs=1e-6)
    assert scored["hit@10"] == pytest.approx(hits / len(users), abs=1e-6)


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([(3, 1, 1)], "user 3, item 1, rank 1: the user"),
        ([(1, 5, 1), (1, 6, 3)], "user 1, item 6, rank 3: ranks"),
        ([(1, 10, 1)], "outside 1 to 9"),
        ([(1, 5, 1), (2, 5, 1), (2, 5, 2)], "user 2, item 5, rank 2: an item is listed twice"),
        ([(2, 6, 1), (2, 4, 2)], "user 2, item 4, rank 2: an item is in the history"),
        ([], "empty"),
    ],
)
def test_bad_lists_are_refused(tmp_path: Path, rows: list[tuple[int, int, int]], named: str) -> None:
    file = write_lists(tmp_path / "valid_1.tsv", rows)
    with refused(lists.BadListsError, named):
        lists.read_lists(file, np.array([1, 2]), np.array([[2, 4]]), 10, 3)


# --- what scripts of peers share -------------------------------------------------------------------------------------
class Time:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def run(split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "run"
    folder.mkdir()
    settings = {
        "split": str(split.folder), "n_items": split.meta["n_items"], "threads": torch.get_num_threads(), "seed": 1,
        "seconds": 10.0, "every": 4.0, "k": 3, "max_length": 2,
    }  # fmt: skip
    (folder / "settings.json").write_text(json.dumps(settings))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["peer", "settings.json"])
    clock = Time()
    monkeypatch.setattr(peer, "time", clock)
    made = peer.Run()
    made.clock = clock
    return made


def test_clock_counts_training_and_no_ranking(run) -> None:
    def scores(histories: list[list[int]]) -> torch.Tensor:
        run.clock.now += 1000
        return torch.zeros(len(histories), run.n_items)

    run.begin(scores, packages=("numpy",), steps=2, targets=run.last_targets(), notes="", source="fake")
    went_on = []
    for _ in range(4):
        run.clock.now += 3
        went_on.append(run.step())
    assert went_on == [True, True, True, False]
    points = [json.loads(line) for line in Path("points.jsonl").read_text().splitlines()]
    assert [(point["steps"], point["seconds"]) for point in points] == [(2, 6.0), (3, 9.0), (4, 12.0)]
    facts = json.loads(Path("peer.json").read_text())
    assert facts["epochs"] == [6.0, 6.0]
    assert (facts["train_seconds"], facts["steps"], facts["version"]) == (12.0, 4, "fake")
    assert facts["rank_seconds"] == 3 * 2 * 1000


def test_lists_leave_out_what_is_seen_or_unknown(run, split) -> None:
    """Scores fall with the number of the item; those that no list may hold have the best."""
    held = {item for _, item, _ in read(split.folder / "held_out" / "targets.tsv")}
    known = {item for items in run.train.values() for item in items}
    assert held - known, "an item that is only a target"

    def scores(histories: list[list[int]]) -> torch.Tensor:
        found = -torch.arange(run.n_items, dtype=torch.float32).repeat(len(histories), 1)
        found[:, sorted(held - known)] = 9.0
        found[:, 0] = 9.0
        return found

    run.begin(scores, packages=("numpy",), steps=1, targets=1, notes="", source="fake")
    run.clock.now += 20
    assert not run.step()
    for part in ("valid", "test"):
        users = split.targets(part)[:, 0]
        found = lists.read_lists(Path(f"{part}_1.tsv"), users, split.seen(part), run.n_items, 3)
        for user, row in zip(users.tolist(), found.tolist(), strict=True):
            seen = {item for owner, item, _ in split.seen(part).tolist() if owner == user}
            best = sorted(known - seen)[:3]
            assert row == best + [0] * (3 - len(best))


# --- driver ----------------------------------------------------------------------------------------------------------
GOOD = """
import json, os, sys
settings = json.load(open(sys.argv[1]))
rows = [line.split("\\t") for line in open(settings["split"] + "/train.tsv").read().splitlines()[1:]]
seen, users = {}, set()
for name in ("train.tsv", "valid.tsv"):
    for line in open(f"{settings['split']}/{name}").read().splitlines()[1:]:
        user, item, _ = map(int, line.split("\\t"))
        seen.setdefault(user, set()).add(item)
        users |= {user} if name == "valid.tsv" else set()
users_of = {"valid": users, "test": set(map(int, open(settings["split"] + "/test_users.tsv").read().split()[1:]))}
with open("points.jsonl", "w") as points:
    for point in (1, 2):
        for part, names in users_of.items():
            with open(f"{part}_{point}.tsv", "w") as file:
                print("user", "item", "rank", sep="\\t", file=file)
                for user in names:
                    items = [item for item in range(1, settings["n_items"]) if item not in seen[user]]
                    for rank, item in enumerate(items[: point], start=1):
                        print(user, item, rank, sep="\\t", file=file)
        print(json.dumps({"point": point, "steps": 3 * point, "seconds": 30.0 * point}), file=points)
facts = {"version": "1.2", "versions": {}, "notes": "a fake", "steps_per_epoch": 2, "targets_per_epoch": 1234,
         "prepare_seconds": 0.5, "train_seconds": 60.0, "rank_seconds": 1.0, "steps": 6, "epochs": [40.0, 12.0, 8.0],
         "threads": os.environ["OMP_NUM_THREADS"], "spin": os.environ.get("GOMP_SPINCOUNT")}
json.dump(facts, open("peer.json", "w"))
"""


def test_selection_sees_validation_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    monkeypatch.setattr(bench, "PEERS", {"good": environments.PeerSpec("good", str(tmp_path / "good.py"))})
    data = str(write_inter(tmp_path / "data", "tied", ROWS))
    arguments = bench.options().parse_args(["--dataset=tied", "--minutes=1", "--no_make", "--limit=1"])
    arguments.peers, arguments.data_path, arguments.build = ["good"], data, tmp_path / "build"
    split = split_files.make_split(arguments.build / "splits", "tied", data)
    opened = []

    def noted(file: Path, *rest: object) -> object:
        opened.append(file.name)
        return lists.read_lists(file, *rest)

    monkeypatch.setattr(bench, "read_lists", noted)
    result = bench.measure("good", arguments, split)
    assert "failed" not in result, result
    best = max(result["curve"], key=lambda point: point["ndcg@10"])
    assert opened == ["valid_1.tsv", "valid_2.tsv", f"test_{best['point']}.tsv"]
    assert result["chosen"] == best


# --- table -----------------------------------------------------------------------------------------------------------
def test_seconds_of_an_epoch() -> None:
    result = {"epochs": [9.0, 2.0, 4.0, 3.0], "train_seconds": 18.0, "steps_per_epoch": 5, "steps": 20}
    assert tables.seconds_of_epoch(result) == (3.0, False)
    assert tables.seconds_of_epoch({**result, "epochs": [9.0]}) == (9.0, False)
    assert tables.seconds_of_epoch({**result, "epochs": [], "steps": 2}) == (45.0, True)


def test_minutes_to_a_quality() -> None:
    curve = [{"seconds": 60.0, "ndcg@10": 0.1}, {"seconds": 90.0, "ndcg@10": 0.3}, {"seconds": 120.0, "ndcg@10": 0.2}]
    assert tables.minutes_to(curve, 0.1) == 1.0
    assert tables.minutes_to(curve, 0.2) == 1.5
    assert tables.minutes_to(curve, 0.31) is None
    assert tables.default_quality([{"curve": curve}, {"failed": "x"}]) == 0.27
    assert tables.default_quality([{"failed": "x"}]) == 0.0


@pytest.mark.slow
def test_our_own_script_learns_a_cycle(cycle: Path, tmp_path: Path) -> None:
    given = bench.options().parse_args(
        ["--dataset=cycle", "--minutes=0.25", "--every=3", "--max_length=8", "--dropout=0"]
    )
    given.data_path, given.build, given.threads = str(cycle), tmp_path / "build", torch.get_num_threads()
    split = split_files.make_split(given.build / "splits", "cycle", given.data_path)
    result = bench.measure("ours", given, split)
    assert "failed" not in result, result
    # the items of a history are left out, and what follows is among them for some
    assert result["valid"]["hit@10"] == 1.0
    assert result["valid"]["ndcg@10"] > 0.9
