"""The code that the scripts of all peers share: settings, split, clock and lists. It needs only torch.

A script is run as ``python <peer>_run.py SETTINGS.json`` in an empty folder. It builds its model, calls
:meth:`Run.begin` with a function that scores histories, and calls :meth:`Run.step` after every training step until it
returns False. The clock is stopped while lists are made. The folder gets:

* ``valid_<n>.tsv``, ``test_<n>.tsv``: user, item and rank at the n-th point of the curve, without seen items
* ``points.jsonl``: a line per point: steps and seconds of training so far
* ``peer.json``: versions, steps and targets per epoch, seconds of each epoch, differences from the other peers
"""

from __future__ import annotations

import json
import platform
import random
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor

USERS = 256  # users scored at once
# (histories, oldest item first) -> scores (users, n_items); column 0 is padding, -inf for items without a score
Scores = Callable[[list[list[int]]], Tensor]


class Run:
    """One run of a peer.

    Attributes:
        settings: as the driver wrote them.
        train: items of each user's training part, oldest first; users and items are numbered from 1.
        valid: the next item of each user: part of the history in the test, but no peer trains on it.
        n_items: number of item ids, including 0 for padding.
    """

    def __init__(self) -> None:
        self.settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
        torch.set_num_threads(self.settings["threads"])
        seed = self.settings["seed"]
        random.seed(seed)
        torch.manual_seed(seed)
        folder = Path(self.settings["split"])
        self.train: dict[int, list[int]] = {}
        for user, item, _ in _rows(folder / "train.tsv"):
            self.train.setdefault(user, []).append(item)
        self.valid = {user: item for user, item, _ in _rows(folder / "valid.tsv")}
        tested = [user for (user,) in _rows(folder / "test_users.tsv")]
        self.n_items = self.settings["n_items"]
        self._histories = {
            "valid": {user: self.train[user] for user in self.valid},
            "test": {user: [*self.train[user], *([self.valid[user]] if user in self.valid else [])] for user in tested},
        }
        known = torch.zeros(self.n_items, dtype=torch.bool)
        known[[item for items in self.train.values() for item in items]] = True
        self._unknown = ~known
        self._created = time.perf_counter()
        self._points = self._steps = 0
        self._trained = self._ranked = 0.0
        self._epochs: list[float] = []

    def last_targets(self) -> int:
        """Return the number of targets of an epoch that trains only on the newest L + 1 items of each user."""
        length = self.settings["max_length"]
        return sum(min(len(items) - 1, length) for items in self.train.values())

    def begin(
        self, scores: Scores, *, packages: tuple[str, ...], steps: int, targets: int, notes: str, source: str = ""
    ) -> None:
        """Start the clock.

        Args:
            scores: scores histories with the current weights, without dropout.
            packages: distributions whose versions are recorded.
            steps: steps per epoch.
            targets: predicted items per epoch.
            notes: how the peer differs from the others apart from its model.
            source: version, if the peer is a checkout and not a package.
        """
        self._scores, self._steps_of_epoch = scores, steps
        now = time.perf_counter()
        versions = {"python": platform.python_version()} | {name: version(name) for name in ("torch", *packages)}
        self._facts = {
            "version": source or version(packages[0]),
            "versions": versions,
            "threads": torch.get_num_threads(),
            "steps_per_epoch": steps,
            "targets_per_epoch": targets,
            "notes": notes,
            "prepare_seconds": now - self._created,
        }
        self._next = self.settings["every"]
        self._since, self._epoch_began = time.perf_counter(), 0.0

    def step(self) -> bool:
        """Count a training step, and make lists when they are due; False once the time is up and all is written."""
        trained = self._trained + time.perf_counter() - self._since
        self._steps += 1
        if self._steps % self._steps_of_epoch == 0:
            self._epochs.append(trained - self._epoch_began)
            self._epoch_began = trained
        over = trained >= self.settings["seconds"]
        if trained < self._next and not over:
            return True
        self._trained = trained
        self._point()
        while self._next <= trained:
            self._next += self.settings["every"]
        if over:
            self._facts |= {
                "train_seconds": trained, "rank_seconds": self._ranked, "steps": self._steps, "epochs": self._epochs,
            }  # fmt: skip
            Path("peer.json").write_text(json.dumps(self._facts, indent=2), encoding="utf-8")
        self._since = time.perf_counter()
        return not over

    def _point(self) -> None:
        began = time.perf_counter()
        self._points += 1
        for part, histories in self._histories.items():
            lines = ["user\titem\trank\n"]
            users = list(histories)
            for start in range(0, len(users), USERS):
                some = users[start : start + USERS]
                for user, items in zip(some, self._best([histories[user] for user in some])):  # noqa: B905
                    lines += [f"{user}\t{item}\t{rank}\n" for rank, item in enumerate(items, start=1)]
            Path(f"{part}_{self._points}.tsv").write_text("".join(lines), encoding="utf-8")
        row = {"point": self._points, "steps": self._steps, "seconds": self._trained}
        with Path("points.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self._ranked += time.perf_counter() - began

    @torch.no_grad()
    def _best(self, histories: list[list[int]]) -> list[list[int]]:
        """Return the best items for each history, among the items of the training part that are not in it."""
        scores = self._scores(histories).float().cpu()
        if scores.shape != (len(histories), self.n_items):
            raise ValueError(f"scores have shape {tuple(scores.shape)}, not {(len(histories), self.n_items)}")
        if bool(scores.isnan().any()):
            raise ValueError("scores are NaN: training diverged")
        scores[:, self._unknown] = -torch.inf
        for row, items in enumerate(histories):
            scores[row, items] = -torch.inf
        # a stable sort: equal scores in item order
        values, order = scores.sort(dim=1, descending=True, stable=True)
        k = self.settings["k"]
        kept = (values[:, :k] > -torch.inf).sum(dim=1).tolist()
        return [items[:count] for items, count in zip(order[:, :k].tolist(), kept)]  # noqa: B905


def padded_left(histories: list[list[int]], length: int, padding: int = 0) -> Tensor:
    """Return the last ``length`` items of each history as (n, length), padded on the left."""
    rows = [items[-length:] for items in histories]
    return torch.tensor([[padding] * (length - len(items)) + items for items in rows], dtype=torch.long)


def _rows(file: Path) -> list[tuple[int, ...]]:
    lines = file.read_text(encoding="utf-8").splitlines()[1:]
    return [tuple(map(int, line.split("\t"))) for line in lines]
