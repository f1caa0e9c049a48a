"""From a split to batches: right-padded windows with a target at every position, or RecBole's (prefix, target) rows."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from recbole.data.interaction import Interaction
from recbole.data.transform import construct_transform
from torch.utils.data import DataLoader

from recbole_hyper.batches.device_windows import DeviceWindows, Names
from recbole_hyper.data.sequences import SequenceStore, ranges
from recbole_hyper.options import OfKeys
from recbole_hyper.registry import reads_times
from recbole_hyper.types import Cases, Int64, Prefixes, gather


def windows(
    store: SequenceStore, train_lengths: Int64, max_length: int, rule: str = "all", generator: Any = None
) -> Cases:
    """Cut the first ``train_lengths[row]`` interactions of every row into windows of at most ``max_length`` targets.

    A window is a case whose history starts at its first input; every later item is a target. ``rule`` "all" cuts from
    the end until every target is in one window, "last" keeps the last window, as in the HSASRec and SCE papers, and
    "random" draws one window with the generator, as in the DualRec paper. Rows with fewer than 2 interactions have no
    window.
    """
    rows = np.flatnonzero(train_lengths >= 2)
    ends = train_lengths[rows] - 1
    if rule == "random":
        ends = ends - generator.integers(0, np.maximum(ends - max_length, 0) + 1)
    elif rule == "all":
        pieces = -(-ends // max_length)
        order = ranges(np.zeros_like(pieces), pieces)
        rows, ends = np.repeat(rows, pieces), np.repeat(ends, pieces) - order * max_length
    return Cases.build(store, rows, ends, np.maximum(ends - max_length, 0))


def as_batch(columns: Mapping[str, torch.Tensor]) -> Interaction:
    """Return columns of equal length as a batch of RecBole."""
    return Interaction(dict(columns))


@dataclass(frozen=True)
class BatchSettings:
    """The names of a batch's columns, and its times: none (""), "exact", or "rounded" to float32 as in RecBole."""

    user: str
    item: str
    time: str
    suffix: str
    length: str
    times: str
    others: str = ""  # column of items beside those of the history, for DIEN

    @classmethod
    def of(cls, config: Any) -> "BatchSettings":
        """Return the settings of a configuration; a loader reads them once."""
        is_dien = any(base.__name__ == "DIEN" for base in config.model_class.__mro__)
        return cls(
            user=config["USER_ID_FIELD"],
            item=config["ITEM_ID_FIELD"],
            time=config["TIME_FIELD"],
            suffix=config["LIST_SUFFIX"],
            length=config["ITEM_LIST_LENGTH_FIELD"],
            times="exact" if reads_times(config) else "rounded" if config.model_class.origin == "third" else "",
            others=config["NEG_PREFIX"] + config["ITEM_ID_FIELD"] + config["LIST_SUFFIX"] if is_dien else "",
        )


def case_interaction(cases: Cases, width: int, settings: BatchSettings) -> Interaction:
    """Return cases as RecBole's Interaction: the last ``width`` items of each history, its length, and the target.

    Encoders that read times get the times of the history too. Third-party models get RecBole's: float32, which rounds
    Unix seconds to 64 or 128 s, with the time of the target.
    """
    return _interaction(cases, width, settings, cases.targets, lambda: cases.times)


def history_interaction(histories: Prefixes, width: int, settings: BatchSettings) -> Interaction:
    """Return :func:`case_interaction` of histories without a target; the columns of the target are 1."""
    ones = np.ones(len(histories))
    return _interaction(histories, width, settings, ones, lambda: ones)


def _interaction(
    histories: Prefixes, width: int, settings: BatchSettings, targets: npt.NDArray, times: Callable[[], npt.NDArray]
) -> Interaction:
    store, rows, ends = histories.store, histories.rows, histories.ends
    item, time, suffix = settings.item, settings.time, settings.suffix
    starts = np.maximum(ends - width, histories.starts)
    columns = {
        settings.user: store.users[rows],
        item: targets.astype(np.int64),
        item + suffix: gather(store, rows, starts, ends, width),
        settings.length: ends - starts,
    }
    if settings.others:
        # the loss of DIEN compares the history with other items; a ranking reads them without effect
        history = columns[item + suffix]
        columns[settings.others] = np.where(history > 0, history % (store.n_items - 1) + 1, 0)
    if settings.times == "exact":
        columns[time + suffix] = gather(store, rows, starts, ends, width, times=True)
    elif settings.times == "rounded":
        columns[time + suffix] = gather(store, rows, starts, ends, width, times=True).astype(np.float32)
        columns[time] = times().astype(np.float32)
    return Interaction({name: torch.from_numpy(column) for name, column in columns.items()})


def window_interaction(part: Cases, width: int, settings: BatchSettings) -> Interaction:
    """Return :func:`windows` as an Interaction, with all their targets in the column ``target_list``."""
    interaction = case_interaction(part, width, settings)
    targets = gather(part.store, part.rows, part.starts + 1, part.ends + 1, width)
    interaction.update(Interaction({"target_list": torch.from_numpy(targets)}))
    return interaction


@dataclass(frozen=True)
class LoaderSettings(OfKeys):
    """What the loaders read of a configuration, by the names of its keys."""

    train_batch_size: int
    shuffle: bool
    drop_last: bool | None
    seed: int
    MAX_ITEM_LIST_LENGTH: int
    train_windows: str | None
    device: torch.device


class BatchLoader:
    """Base of the training loaders; the state of the ``generator`` determines the order of an epoch."""

    count: int  # rows per epoch

    def __init__(self, dataset: Any, settings: LoaderSettings, columns: BatchSettings, generator: Any) -> None:
        self.dataset = self._dataset = dataset
        self.settings, self.max_length = columns, settings.MAX_ITEM_LIST_LENGTH
        self.shuffle, self.drop_last = settings.shuffle, bool(settings.drop_last)
        self.batch_size = settings.train_batch_size
        self.generator = generator

    def _make(self, index: Int64) -> Interaction:
        """Return the batch with these row numbers."""
        raise NotImplementedError

    @property
    def _drops(self) -> bool:
        """Whether a short last batch is left out; the only batch never is."""
        return self.drop_last and self.count >= self.batch_size

    def __len__(self) -> int:
        return self.count // self.batch_size if self._drops else math.ceil(self.count / self.batch_size)

    def __iter__(self) -> Iterator[Interaction]:
        return map(self._make, self._batches())

    def _batches(self) -> Iterator[Int64]:
        """Yield the row numbers of each batch."""
        raise NotImplementedError


class WindowLoader(BatchLoader):
    """Training batches for this project's models: right-padded windows, as wide as the longest in the batch.

    On a device whose memory has room for the sequences, batches are made there, see ``batches.device_windows``.

    A batch is a random sample of the windows. Batches of similar lengths would give targets of short histories more
    weight than targets of long ones. Rows are sorted by length, so that the encoder can process them in groups.
    """

    def __init__(
        self,
        dataset: Any,
        store: SequenceStore,
        train_lengths: Int64,
        settings: LoaderSettings,
        columns: BatchSettings,
        *,
        fills: bool = False,
    ) -> None:
        super().__init__(dataset, settings, columns, np.random.default_rng(settings.seed))
        self.store, self.train_lengths = store, train_lengths
        self.rule = settings.train_windows or "all"
        #: makes the batches on a device; None where the host makes them, and for data that would fill its memory
        self.on_device: DeviceWindows | None = None
        timed = columns.times == "exact"
        if DeviceWindows.fits(store, settings.device, times=timed):
            items, times = (name + columns.suffix for name in (columns.item, columns.time))
            names = Names(columns.user, items, columns.length, "target_list", times if timed else None)
            self.on_device = DeviceWindows(store, settings.device, self.max_length, names, fills=fills)
        self._draw()
        self.count = len(self._windows)

    def _draw(self) -> None:
        self._windows = windows(self.store, self.train_lengths, self.max_length, self.rule, self.generator)

    def share(self, rank: int, size: int) -> Iterator[tuple[Interaction, bool]]:
        """Yield the rows ``rank``, ``rank + size``, ... of each batch, and True; if there is none, a row and False."""
        for index in self._batches():
            share = index[rank::size]
            yield self._on_host(share if len(share) else index[:1]), len(share) > 0

    def longest(self, rows: int) -> Interaction:
        """Return a batch of the ``rows`` longest windows."""
        return self._make(self._arranged(np.arange(self.count))[-rows:])

    def share_of_longest(self, rows: int) -> float:
        """Return the mean length of all windows relative to that of the ``rows`` longest ones."""
        lengths = np.sort(self._windows.ends - self._windows.starts)
        return float(lengths.mean() / lengths[-rows:].mean())

    def _arranged(self, index: Int64) -> Int64:
        """Return the row numbers of a batch by the lengths of its windows."""
        part = self._windows[index]
        return index[np.argsort(part.ends - part.starts, kind="stable")]

    def _batches(self) -> Iterator[Int64]:
        if self.rule == "random":
            self._draw()
        order = self.generator.permutation(self.count) if self.shuffle else np.arange(self.count)
        batches = [order[start : start + self.batch_size] for start in range(0, self.count, self.batch_size)]
        if self.shuffle:
            # puts the short last batch at a random place, unless it is dropped
            self.generator.shuffle(batches)
        if self._drops:
            batches = [batch for batch in batches if len(batch) == self.batch_size]
        yield from map(self._arranged, batches)

    def _make(self, index: Int64) -> Any:
        """Return the batch, or on a device a ``PackedBatch``, which makes it there."""
        return self._on_host(index) if self.on_device is None else self.on_device.pack(self._windows[index])

    def _on_host(self, index: Int64) -> Interaction:
        part = self._windows[index]
        return window_interaction(part, int((part.ends - part.starts).max()), self.settings)


class PrefixLoader(BatchLoader):
    """Training batches for RecBole's sequential models: its (prefix, target) rows, built batch by batch.

    RecBole's table of all prefixes never exists. ``train_batch_size`` counts rows, as in RecBole, and their order is
    that of RecBole's loader with the same seed. If the model needs negatives, they are drawn as by its
    RepeatableSampler, uniformly over the items other than the target. A pointwise model with negatives (DIN) gets them
    as rows with the label 0, as from RecBole's loader.
    """

    def __init__(
        self,
        dataset: Any,
        store: SequenceStore,
        train_lengths: Int64,
        settings: LoaderSettings,
        columns: BatchSettings,
    ) -> None:
        super().__init__(dataset, settings, columns, torch.Generator().manual_seed(settings.seed))
        self.store, config = store, dataset.config
        users = np.flatnonzero(train_lengths > 1).astype(np.int32)
        # RecBole's table has users in the order of their first targets
        users = users[np.argsort(store.times[store.offsets[users] + 1].astype(np.float32), kind="stable")]
        targets = train_lengths[users] - 1
        self._rows = np.repeat(users, targets)
        self._ends = (ranges(np.zeros_like(targets), targets) + 1).astype(np.int32)
        self.count = len(self._rows)
        sampling = config["train_neg_sample_args"]
        self._negatives = 0 if sampling["distribution"] == "none" else int(sampling["sample_num"])
        if self._negatives and (sampling["distribution"] != "uniform" or sampling.get("dynamic")):
            raise ValueError(
                f"train_neg_sample_args={sampling}: RecBole's sequential models only get uniform negatives; set "
                "distribution: uniform and dynamic: False"
            )
        # column of labels, if negatives are rows; or else the column of negatives
        self._labels = config["LABEL_FIELD"] if config["MODEL_INPUT_TYPE"].name == "POINTWISE" else None
        self._wrong = config["NEG_PREFIX"] + columns.item
        if self._negatives:
            self.batch_size = max(1, self.batch_size // (self._negatives + (self._labels is not None)))
        # BERT4Rec masks items of a batch; building the transform also sets the field names that its constructor reads
        self._transform = construct_transform(config)

    def view(self) -> Any:
        """Return the dataset with RecBole's table of prefixes as ``inter_feat``; its rows are built when read."""
        view = self.dataset.copy(PrefixTable(self.store, self._rows, self._ends, self.max_length, self.settings))
        for name in ("inter_matrix", "history_item_matrix", "history_user_matrix"):
            # the table has no row for a user's first interaction, which is still a training interaction
            setattr(view, name, getattr(self.dataset, name))
        return view

    def _batches(self) -> Iterator[Int64]:
        """Yield the row numbers of each batch as torch's loader, which RecBole's is."""
        rows: Any = range(self.count)
        yield from DataLoader(
            rows, self.batch_size, self.shuffle, drop_last=self._drops, generator=self.generator, collate_fn=np.asarray
        )

    def _make(self, index: Int64) -> Interaction:
        cases = Cases.build(self.store, self._rows[index], self._ends[index])
        batch = case_interaction(cases, self.max_length, self.settings)
        item = self.settings.item
        if self.settings.others:
            history = batch[item + self.settings.suffix].numpy()
            others = np.random.randint(1, self.store.n_items - 1, history.shape)  # noqa: NPY002  as RecBole's samplers
            others = (others + (others >= history)) * (history > 0)
            batch.update(Interaction({self.settings.others: torch.from_numpy(others)}))
        if self._negatives:
            positives = batch[item].numpy()
            wrong = torch.from_numpy(_others(np.tile(positives, self._negatives), self.store.n_items))
            if self._labels is not None:
                # the targets first, as in RecBole, then the drawn items with label 0
                labels = torch.cat((torch.ones(len(positives)), torch.zeros(len(wrong))))
                items = torch.cat((batch[item], wrong))
                batch = batch.repeat(1 + self._negatives)
                batch.update(Interaction({item: items, self._labels: labels}))
            else:
                batch = batch.repeat(self._negatives) if self._negatives > 1 else batch
                batch.update(Interaction({self._wrong: wrong}))
        return self._transform(self.dataset, batch)


def _others(items: Int64, n_items: int) -> Int64:
    """Draw an item other than each of these, as RecBole's RepeatableSampler does from numpy's global generator."""
    drawn = np.random.randint(1, n_items, len(items))  # noqa: NPY002
    while len(same := np.flatnonzero(drawn == items)):
        drawn[same] = np.random.randint(1, n_items, len(same))  # noqa: NPY002
    return drawn


class PrefixTable(Interaction):
    """RecBole's (prefix, target) rows; the column of histories is made when a model asks for it, as FEARec does."""

    def __init__(self, store: SequenceStore, rows: npt.NDArray, ends: npt.NDArray, width: int, names: BatchSettings):
        columns = {
            names.user: store.users[rows],
            names.item: store.items[store.offsets[rows] + ends].astype(np.int64),
            names.length: np.minimum(ends, width).astype(np.int64),
        }
        super().__init__({name: torch.from_numpy(column) for name, column in columns.items()})
        self._of_histories, self._list_field = (store, rows, ends, width), names.item + names.suffix

    @cached_property
    def _histories(self) -> torch.Tensor:
        store, rows, ends, width = self._of_histories
        return torch.from_numpy(gather(store, rows.astype(np.int64), np.maximum(ends - width, 0), ends, width))

    def __getitem__(self, index: Any) -> Any:
        return self._histories if isinstance(index, str) and index == self._list_field else super().__getitem__(index)
