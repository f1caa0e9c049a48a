"""The arithmetic of several processes without Ray: shares of a batch, and the loss of the whole."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from recbole_hyper.batches.loader import WindowLoader
from recbole_hyper.config import Config
from recbole_hyper.runs.build import read_data
from recbole_hyper.runs.run import run
from recbole_hyper.training.checkpoint import STATE, load_state
from recbole_hyper.training.processes import Shares, gathered, shared_work, world
from tests.conftest import SMALL, loading
from tests.training.several import ITEMS, same_training, settings


def test_shares_cover_every_batch_once(random_data: Path) -> None:
    keys = {**SMALL, "train_windows": "last", "train_batch_size": 9, "data_path": str(random_data)}
    config = Config("SASRecCE", "random", config_dict=keys)
    data, split = read_data(config)
    for size in (1, 2, 4, 20):  # 20: more processes than rows
        found: list[int] = []
        for rank in range(size):
            shares = Shares(WindowLoader(data, split.store, split.train_lengths, *loading(config)), rank, size)
            for batch in shares:
                assert len(batch) >= 1
                found += batch["user_id"].tolist() if shares.weight else []
        assert sorted(found) == list(range(1, data.user_num))


@pytest.mark.parametrize("rule", ["all", "random"])
def test_a_share_of_the_windows_is_gathered_from_its_own_rows_alone(random_data: Path, rule: str) -> None:
    def loaders(count: int) -> list[WindowLoader]:
        more = {"train_windows": rule, "train_batch_size": 9, "MAX_ITEM_LIST_LENGTH": 5}
        config = Config("SASRecCE", "random", config_dict={**SMALL, **more, "data_path": str(random_data)})
        data, split = read_data(config)
        return [WindowLoader(data, split.store, split.train_lengths, *loading(config)) for _ in range(count)]

    whole, first, second, third = loaders(4)
    shares = [Shares(loader, rank, 3) for rank, loader in enumerate((first, second, third))]
    for _ in range(2):
        assert len(whole) == len(shares[0]) > 3
        for batch, *parts in zip(whole, *shares, strict=True):
            for rank, part in enumerate(parts):
                width = int(part["item_length"].max())
                for name in ("user_id", "item_length", "item_id"):
                    assert part[name].tolist() == batch[name][rank::3].tolist()
                for name in ("item_id_list", "target_list"):
                    assert part[name].tolist() == batch[name][rank::3, :width].tolist()


def test_one_process_is_left_alone() -> None:
    loader = object()
    model = SimpleNamespace(calculate_loss=lambda batch: batch)
    assert world() == (0, 1)
    assert shared_work(model, loader, 0) == (loader, model.calculate_loss)
    assert gathered(7) == [7]


def _gloo(rank: int, size: int, port: int, data: str, folder: str, more: dict[str, Any]) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    torch.set_num_threads(1)
    run("SASRecCE", "random", config_dict=settings(Path(data), Path(folder) / f"rank-{rank}", n_threads=1, **more))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize(("size", "more"), [(2, {"ema_decay": 0.9}), (3, {})])
def test_processes_joined_by_torch(random_data: Path, tmp_path: Path, size: int, more: dict[str, Any]) -> None:
    run("SASRecCE", "random", config_dict=settings(random_data, tmp_path / "one", n_threads=1, **more))
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(_gloo, (size, port, str(random_data), str(tmp_path), more), nprocs=size)
    for rank in range(size):
        same_training(tmp_path / "one", tmp_path / f"rank-{rank}")
    # every process ends with the same model
    cases = [pd.read_parquet(tmp_path / f"rank-{rank}" / "cases_test.parquet") for rank in range(size)]
    for frame in cases[1:]:
        pd.testing.assert_frame_equal(frame, cases[0])
    folders = ("one", "rank-0", f"rank-{size - 1}")
    one, first, last = (load_state(tmp_path / name / STATE)["average"] for name in folders)
    if more:
        assert one["steps"] == first["steps"] == last["steps"] > 0
        assert all(torch.equal(tensor, last["tensors"][name]) for name, tensor in first["tensors"].items())
        # biases of the keys have no gradient but rounding, by which Adam moves them
        torch.testing.assert_close(first["tensors"][ITEMS], one["tensors"][ITEMS], rtol=1e-3, atol=1e-5)
