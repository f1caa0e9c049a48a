"""Runs on the device: optimizers, half precision, averages, features, resume, refit, recommendations and export."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from recbole_hyper import load, run
from recbole_hyper.evaluation.compare import measured_on
from recbole_hyper.geometry.head import FrozenHead
from recbole_hyper.losses.ce import CrossEntropy
from recbole_hyper.runs.evaluate import evaluate
from recbole_hyper.serving.export import export
from recbole_hyper.sweep import sweep
from recbole_hyper.training.memory import Trial
from tests.devices import foreign as device_module
from tests.devices.steps import small_keys, write_random
from tests.raising import refused

PUBLISHED = Path(__file__).parents[1] / "host" / "published"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_random(tmp_path / "data")


def result_of(model: str, data: Path, folder: Path, **keys: Any) -> dict[str, Any]:
    return run(model, "random", config_dict=small_keys(model, data, output_dir=str(folder), **keys))


@pytest.mark.parametrize(
    "keys",
    [
        {"learner": "adamw"},
        {"learner": "sgd"},
        {"learner": "riemannian_adam", "curvature": "learn"},
        {"learner": "riemannian_sgd"},
        {"ema_decay": 0.9, "clip_grad_norm": {"max_norm": 1.0}, "lr_schedule": "cosine", "warmup_ratio": 0.2},
    ],
    ids=str,
)
def test_ways_to_learn(keys: dict[str, Any], data: Path, tmp_path: Path, foreign: torch.device) -> None:
    result = result_of("HSASRecCE", data, tmp_path / "run", **keys)
    assert result["device"] == {"type": "foreign", "name": "Foreign test device", "memory": device_module.MEMORY}
    assert 0 < result["test"]["ndcg@10"] <= 1
    # what the device's allocator says
    assert result["peak_memory_bytes"] == 3 << 20


@pytest.mark.parametrize("has_bfloat16", [True, False])
def test_half_precision_is_bfloat16_where_there_is_one(has_bfloat16, data, tmp_path, foreign, monkeypatch) -> None:
    """float16 loses small gradients, which the scaler keeps; bfloat16 needs none."""
    seen, scaled = set(), []
    product, scale = torch.nn.functional.linear, torch.amp.GradScaler.scale

    def linear(*arguments: Any) -> torch.Tensor:
        out = product(*arguments)
        seen.add(out.dtype)
        return out

    def noted(scaler: Any, loss: torch.Tensor) -> Any:
        scaled.append(scaler.is_enabled())
        return scale(scaler, loss)

    monkeypatch.setattr(torch.nn.functional, "linear", linear)
    monkeypatch.setattr(torch.amp.GradScaler, "scale", noted)
    monkeypatch.setattr(device_module.ForeignModule, "has_bfloat16", has_bfloat16)
    result = result_of("HSASRecCE", data, tmp_path / "run", enable_amp=True)
    assert result["test"]["ndcg@10"] > 0
    assert (torch.bfloat16 if has_bfloat16 else torch.float16) in seen
    assert (torch.float16 if has_bfloat16 else torch.bfloat16) not in seen
    assert set(scaled) == {not has_bfloat16}


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(data: Path, tmp_path: Path, foreign: torch.device) -> None:
    whole = result_of("HSASRecCE", data, tmp_path / "whole", epochs=3)
    result_of("HSASRecCE", data, tmp_path / "parts", epochs=1)
    parts = result_of("HSASRecCE", data, tmp_path / "parts", epochs=3, resume=True)
    assert parts["test"] == whole["test"]
    rows = [(tmp_path / name / "train.csv").read_text().splitlines() for name in ("whole", "parts")]
    losses = [[line.split(",")[2] for line in lines] for lines in rows]
    assert losses[0] == losses[1]
    assert losses[0][0] == "train_loss"


def test_refit_recommend_and_export(data: Path, tmp_path: Path, foreign: torch.device) -> None:
    result = result_of("SASRecCE", data, tmp_path / "run", refit=True, epochs=2)
    assert result["refit_epochs"] == result["best_epoch"] + 1
    on_device = load(tmp_path / "run").recommend(["u1", "u2"], k=3)
    run_on_device = load(tmp_path / "run")
    assert next(run_on_device.model.parameters()).device.type == "foreign"
    exported = [tmp_path / "device.pt2", tmp_path / "cpu.pt2"]
    length = int(run_on_device.config["MAX_ITEM_LIST_LENGTH"])
    export(run_on_device.model, run_on_device.store.item_tokens, length, exported[0], format="program", top_k=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_module.ForeignModule, "active", False)
        device_module._MODULE.active = False
        on_cpu = load(tmp_path / "run").recommend(["u1", "u2"], k=3)
        run_on_cpu = load(tmp_path / "run")
        export(run_on_cpu.model, run_on_cpu.store.item_tokens, length, exported[1], format="program", top_k=3)
        device_module._MODULE.active = True
    assert on_device["item_id"].tolist() == on_cpu["item_id"].tolist()
    assert on_device["score"].tolist() == pytest.approx(on_cpu["score"].tolist(), rel=1e-4)
    history = torch.tensor([[5, 7, 9, 0], [1, 2, 3, 4]]), torch.tensor([3, 4])
    given, expected = (torch.export.load(path).module()(*history) for path in exported)
    for one, other in zip(given, expected, strict=True):
        assert torch.equal(one, other)
    # the model that was exported stays where it was
    assert next(run_on_device.model.parameters()).device.type == "foreign"


@pytest.mark.parametrize(
    ("model", "keys"),
    [
        ("SASRec", {"n_layers": 1, "n_heads": 1, "inner_size": 16}),
        ("GRU4Rec", {"embedding_size": 16, "num_layers": 1, "dropout_prob": 0.0}),
        ("Fading", {"plugins": str(PUBLISHED / "fading.py")}),
    ],
)
def test_models_of_recbole_and_of_others(model, keys, data, tmp_path, foreign) -> None:
    result = result_of(model, data, tmp_path / "run", **keys)
    assert result["device"]["type"] == "foreign"
    assert "neither on the target" in result["leak_check"]
    assert len(load(tmp_path / "run").recommend(["u1", "u2"], k=3)) == 6
    if model != "SASRec":
        return
    resumed = result_of(model, data, tmp_path / "run", **keys, epochs=2, resume=True)
    assert resumed["test"] == result_of(model, data, tmp_path / "whole", **keys, epochs=2)["test"]


@pytest.mark.usefixtures("serial_sweeps")
def test_a_sweep(data: Path, tmp_path: Path, foreign: torch.device) -> None:
    (tmp_path / "space.yaml").write_text("ema_decay: {grid_search: [0.5, 0.9]}\n")
    keys = small_keys("SASRecCE", data, output_dir=str(tmp_path / "sweep"))
    result = sweep("SASRecCE", "random", space=str(tmp_path / "space.yaml"), config_dict=keys)
    assert result["trials"]["finished"] == 2
    assert all("device: foreign" in log.read_text() for log in (tmp_path / "sweep").rglob("run.log"))


def test_item_features_are_read_on_the_device(data: Path, tmp_path: Path, foreign: torch.device) -> None:
    lines = ["item_id:token\tkind:token\tprice:float", *(f"i{item}\tk{item % 4}\t{item / 7}" for item in range(300))]
    (data / "random" / "random.item").write_text("\n".join(lines) + "\n")
    columns = {"inter": ["user_id", "item_id", "timestamp"], "item": ["item_id", "kind", "price"]}
    keys = {"load_col": columns, "selected_features": ["kind", "price"]}
    assert result_of("SASRecCE", data, tmp_path / "run", **keys)["test"]["ndcg@10"] > 0


def test_a_loss_that_is_not_finite_names_its_step(data, tmp_path, foreign, monkeypatch) -> None:
    """The losses are read together, and the first that is not finite is named all the same."""
    from recbole_hyper.training.progress import DivergedError

    forward, calls = CrossEntropy.forward, []

    def broken(*arguments: Any, weights: Any = None) -> torch.Tensor:
        calls.append(1)
        loss = forward(*arguments, weights=weights)
        return loss * float("nan") if len(calls) == 3 else loss

    def tried(*arguments: Any) -> int:
        # the steps of the training are counted from here
        monkeypatch.setattr(CrossEntropy, "forward", broken)
        return Trial(0, 0.0)

    monkeypatch.setattr("recbole_hyper.runs.run.try_step", tried)
    with refused(DivergedError, "epoch", "step"):
        result_of("SASRecCE", data, tmp_path / "run", train_batch_size=8)
    assert len(calls) > 3


def test_the_log_and_comparisons_name_the_device(data: Path, tmp_path: Path, foreign: torch.device) -> None:
    result = result_of("Pop", data, tmp_path / "run")
    words = "foreign (Foreign test device, 4 GiB)"
    assert f"device: {words}" in (tmp_path / "run" / "run.log").read_text()
    assert json.loads((tmp_path / "run" / "result.json").read_text())["device"] == result["device"]
    rows = [{"model": "A", "device": words}, {"model": "B", "device": words}]
    assert measured_on(rows) == f" Seconds and memory: {words}."
    rows[1]["device"] = "cpu (x)"
    assert measured_on(rows) == f" Seconds and memory cannot be compared: A on {words}, B on cpu (x)."
    assert measured_on([{"model": "A", "device": None}]) == ""


def test_use_gpu_without_a_gpu_warns(data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = result_of("Pop", data, tmp_path / "run")
    assert result["device"]["type"] == "cpu"
    assert result["device"]["cores"] >= 1
    assert "use_gpu=True: this run uses the CPU; torch" in caplog.text
    caplog.clear()
    keys = small_keys("Pop", data, output_dir=str(tmp_path / "other"))
    del keys["use_gpu"]
    run("Pop", "random", config_dict=keys)
    load(tmp_path / "other")
    assert "this run uses the CPU" not in caplog.text


def test_the_precision_of_products_is_that_of_a_run(data, tmp_path, foreign, monkeypatch) -> None:
    """In training, in ranking and where a finished run recommends; not outside of them."""
    seen: dict[str, set[str]] = {"loss": set(), "scores": set()}
    loss, scores = CrossEntropy.forward, FrozenHead.scores

    def noted(name: str, function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            seen[name].add(torch.get_float32_matmul_precision())
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(CrossEntropy, "forward", noted("loss", loss))
    monkeypatch.setattr(FrozenHead, "scores", noted("scores", scores))
    result_of("HSASRecCE", data, tmp_path / "run", matmul_precision="high")
    assert seen == {"loss": {"high"}, "scores": {"high"}}
    seen["scores"].clear()
    load(tmp_path / "run").recommend(["u1"], k=3)
    evaluate(tmp_path / "run")
    assert seen["scores"] == {"high"}
    assert torch.get_float32_matmul_precision() == "highest"
