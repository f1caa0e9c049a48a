"""Run folders written by hand, so that every number of a report is known."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml


def write_run(folder: Path, **more: Any) -> Path:
    """Write result.json, config.yaml and train.csv of a run; ``more`` replaces entries of the result."""
    config = {"hidden_size": 16, "learning_rate": 0.001, "valid_metric": "NDCG@10", "seed": 1, **more.pop("config", {})}
    result: dict[str, Any] = {
        "model": "SASRecCE",
        "dataset": "tiny",
        "protocol": "leave-one-out",
        "eval_args": {"mode": {"valid": "full", "test": "full"}},
        "exclude_seen": True,
        "seed": config["seed"],
        "valid": {"ndcg@10": 0.2, "hit@10": 0.4},
        "test": {"ndcg@10": 0.1, "hit@10": 0.3},
        "best_valid_score": 0.2,
        "valid_score_bigger": True,
        "seconds": {"train": 10.0},
        "peak_memory_bytes": 100 * 2**20,
        "peak_memory_bytes_per_phase": {"train": 80 * 2**20},
        "parameters": 1234,
        "epochs": 2,
        "data_fingerprint": "abc",
        "versions": {"python": "3.11", "torch": "2.13"},
        "commit": "0123456789abcdef",
        "n_users": 5,
        "config": config,
        **more,
    }
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "train.csv").write_text("epoch,train_loss,valid_ndcg@10\n0,3.0,0.1\n1,2.0,0.2\n")
    return folder


def write_sweep(folder: Path, trials: list[dict[str, Any]], best: int | None = 0) -> Path:
    """Write a sweep over hidden_size; a trial is {status, score, hidden_size, seconds, MiB, more settings}."""
    folder.mkdir(parents=True)
    space = {"hidden_size": [{"grid": sorted({entry["hidden_size"] for entry in trials})}], "epochs": [{"value": 2}]}
    request = {
        "model": "SASRecCE",
        "dataset": "tiny",
        "space": space,
        "fixed": {},
        "search": "grid",
        "scheduler": "none",
    }
    (folder / "sweep.yaml").write_text(yaml.safe_dump(request, sort_keys=False))
    counts: dict[str, int] = {}
    for number, entry in enumerate(trials):
        counts[entry["status"]] = counts.get(entry["status"], 0) + 1
        name = f"{number:04d}-x"
        place = folder / "trials" / name
        settings = {"hidden_size": entry["hidden_size"], **entry.get("more", {})}
        if entry["status"] == "finished":
            write_run(
                place,
                valid={"ndcg@10": entry["score"]},
                test={},
                best_valid_score=entry["score"],
                seconds={"train": entry["seconds"]},
                peak_memory_bytes_per_phase={"train": entry["MiB"] * 2**20},
                config=settings,
            )
        place.mkdir(parents=True, exist_ok=True)
        record = {"number": number, "name": name, "settings": settings, "status": entry["status"]}
        record |= {"score": entry.get("score"), "reason": entry.get("reason", "")}
        (place / "trial.json").write_text(json.dumps(record))
    if best is not None:
        settings = {"hidden_size": trials[best]["hidden_size"]}
        for seed in (1, 2):
            tested = {"ndcg@10": 0.1 * seed, "hit@10": 0.3}
            write_run(folder / "best" / f"seed-{seed}", test=tested, config={**settings, "seed": seed})
        outcome = {"trials": counts, "valid_metric": "ndcg@10", "best": {"settings": settings}}
        (folder / "sweep.json").write_text(json.dumps(outcome))
    return folder


TRIALS: list[dict[str, Any]] = [
    {"status": "finished", "score": 0.20, "hidden_size": 32, "seconds": 10.0, "MiB": 100},
    {"status": "finished", "score": 0.25, "hidden_size": 64, "seconds": 30.0, "MiB": 200},
    {"status": "finished", "score": 0.15, "hidden_size": 64, "seconds": 40.0, "MiB": 90},
    {"status": "failed", "hidden_size": 128, "reason": "out of memory: <script>alert(1)</script>"},
]


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """A sweep, two runs of one configuration, one of another, and one with other candidates."""
    write_sweep(tmp_path / "saved" / "sweep", TRIALS, best=1)
    for seed, value in ((1, 0.30), (2, 0.40)):
        write_run(
            tmp_path / "saved" / f"run-{seed}",
            model="gSASRec",
            test={"ndcg@10": value},
            config={"seed": seed},
            seed=seed,
        )
    write_run(tmp_path / "saved" / "sampled", eval_args={"mode": "uni99"}, test={"ndcg@10": 0.9})
    return tmp_path / "saved"


CONFIG = {"n_layers": 2, "train_batch_size": 32, "curvature": 1.0, "epochs": 9, "topk": [10]}


def write_scored_run(
    folder: Path, value: float, seed: int = 1, epochs: int = 2, model: str = "SASRecCE", **config: Any
) -> None:
    write_run(
        folder, model=model, seed=seed, valid={"ndcg@10": value}, test={"ndcg@10": value}, epochs=epochs,
        best_valid_score=value, config={**CONFIG, "seed": seed, **config},
    )  # fmt: skip


@pytest.fixture
def sizes(tmp_path: Path) -> Path:
    """Two sizes with two batch sizes each, one of them with two seeds; and a size that was tried with other epochs."""
    for batch, at_16, at_32 in ((32, 0.1, 0.3), (64, 0.4, 0.2)):
        write_scored_run(tmp_path / f"{batch}-16", at_16, train_batch_size=batch, hidden_size=16)
        write_scored_run(tmp_path / f"{batch}-32", at_32, train_batch_size=batch, hidden_size=32)
    write_scored_run(tmp_path / "64-32-seed", 0.4, seed=2, train_batch_size=64, hidden_size=32)
    write_scored_run(tmp_path / "long", 0.9, epochs=90, train_batch_size=64, hidden_size=64, **{"learning_rate": 0.001})
    config = {**CONFIG, "epochs": 90, "train_batch_size": 64, "hidden_size": 128}
    write_run(tmp_path / "longer", valid={"ndcg@10": 0.99}, config=config)
    return tmp_path
