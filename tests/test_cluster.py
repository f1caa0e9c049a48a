"""Two nodes of one Ray cluster on this machine: each with its raylet, ports and workers, and one core.

They share the files of this machine, as nodes of a real cluster must share a folder. What a network adds, latency and
lost packets, is not tested.
"""

import csv
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recbole_hyper.cluster import RAY_ENVIRONMENT
from recbole_hyper.sweep.driver import sweep
from tests.conftest import SMALL

KEYS = {**SMALL, "hidden_dropout_prob": 0.0, "attn_dropout_prob": 0.0, "use_gpu": False, "n_threads": 1}
KEYS |= {"topk": [5], "valid_metric": "NDCG@5", "learning_rate": 0.01, "stopping_step": 1000}


class TwoNodes:
    """A head node and a second one, which can be killed and replaced."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        memory = {"object_store_memory": 100 << 20}
        self.cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **memory}
        )
        self.options = {"num_cpus": 1, **memory}
        self.second = self.cluster.add_node(**self.options)
        self.address = self.cluster.address

    def kill(self) -> None:
        """Kill the second node: its raylet at once, and with it its workers."""
        self.cluster.remove_node(self.second, allow_graceful=False)

    def replace(self) -> None:
        """Add a node that replaces the killed one."""
        self.second = self.cluster.add_node(**self.options)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoNodes]:
    for name, value in RAY_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    # the workers of a node import this package from where the tests do
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    )
    started = TwoNodes()
    yield started
    started.cluster.shutdown()


def once(condition: Callable[[], bool], do: Callable[[], None], seconds: float = 240) -> threading.Thread:
    """Start a thread that waits for ``condition`` and then calls ``do``."""

    def wait() -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                do()
                return
            time.sleep(0.1)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def epochs_in(folder: Path) -> int:
    file = folder / "train.csv"
    return len(list(csv.DictReader(file.open()))) if file.is_file() else 0


@pytest.mark.slow
def test_a_sweep_over_two_nodes_outlives_one_of_them(nodes: TwoNodes, random_data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    fixed = {**KEYS, "data_path": str(random_data), "output_dir": str(folder), "epochs": 60, "show_progress": False}
    rates = [0.001, 0.003, 0.01, 0.03, 0.1, 0.0003]
    space = {"learning_rate": {"grid_search": rates}}
    fixed.pop("learning_rate")

    def under_way() -> bool:
        return sum(epochs_in(trial) >= 3 for trial in (folder / "trials").glob("*")) >= 2

    killing = once(under_way, nodes.kill)
    start = time.monotonic()
    outcome = sweep("SASRecCE", "random", space=space, config_dict=fixed, ray_address=nodes.address)
    killing.join()
    print(f"6 trials, a node killed: {outcome['trials']}, {time.monotonic() - start:.0f} s")
    assert outcome["trials"].get("finished", 0) >= 5, (folder / "trials.csv").read_text()
    # Ray runs the trial that was lost with its node again on the other one
    nodes.replace()
    outcome = sweep(config_dict={"output_dir": str(folder), "resume": True}, ray_address=nodes.address)
    assert outcome["trials"] == {"finished": 6}, (folder / "trials.csv").read_text()
    assert json.loads((folder / "sweep.json").read_text())["best"]["settings"] in [
        {"learning_rate": value} for value in rates
    ]
