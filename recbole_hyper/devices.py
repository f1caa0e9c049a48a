"""The device of a run, its name and its memory, through torch.accelerator: CUDA and ROCm work alike."""

import functools
import platform
from pathlib import Path
from typing import Any

import psutil
import torch

CPU = torch.device("cpu")
# these have no float64, which evaluation and curvatures need
WITHOUT_FLOAT64 = ("mps",)
DEFAULT_BUDGET = 256 << 20


def usable_accelerator() -> torch.device | None:
    """Return the accelerator that this process can use, None if there is none."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return None if accelerator is None or accelerator.type in WITHOUT_FLOAT64 else torch.device(accelerator.type)


def why_no_accelerator(gpu_id: str) -> str:
    """Return the reason why :func:`usable_accelerator` is None, for a warning."""
    if not gpu_id:
        return "gpu_id is empty"
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return f"torch {torch.__version__} is built without one: install torch for your GPU, see docs/gpu.md"
    if accelerator.type in WITHOUT_FLOAT64:
        return f"torch's {accelerator.type} device has no float64"
    return f"torch {torch.__version__} finds no {accelerator.type} device: check the driver and gpu_id={gpu_id}"


def module_of(device: torch.device) -> Any:
    """Return torch's module for an accelerator, such as torch.cuda."""
    return torch.get_device_module(device)


def total_memory(device: torch.device) -> int:
    """Return the bytes of memory of the device; for the CPU, of this machine."""
    return psutil.virtual_memory().total if device.type == "cpu" else module_of(device).mem_get_info(device)[1]


def free_memory(device: torch.device) -> int:
    """Return the bytes that are free on the device now; for the CPU, on this machine."""
    return psutil.virtual_memory().available if device.type == "cpu" else module_of(device).mem_get_info(device)[0]


@functools.cache
def default_budget(device: torch.device) -> int:
    """Return the bytes that the tiles of a loss may take by default.

    On a CPU: 256 MiB, or 1/32 of its memory if that is less. It does not depend on the free memory, so that equal runs
    have equal tiles and numbers. On a GPU: 1/16 of its memory, or 1/4 of the memory free at the first call if less.
    """
    if device.type == "cpu":
        return min(DEFAULT_BUDGET, total_memory(device) // 32)
    # cached, because later the losses' tiles would count as used memory
    return min(total_memory(device) // 16, free_memory(device) // 4)


def synchronize(device: torch.device) -> None:
    """Wait until an accelerator has done what it was given; a CPU has."""
    if device.type != "cpu":
        module_of(device).synchronize(device)


def half_precision(device: torch.device) -> torch.dtype:
    """Return the precision of ``enable_amp``: bfloat16 if the device has it, else float16."""
    if device.type == "cpu" or module_of(device).is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    return torch.float16


def moved(batch: Any, device: torch.device) -> Any:
    """Move a batch to the device; RecBole's Interaction to a GPU from pinned memory, without waiting for the copies."""
    if device.type == "cpu" or not hasattr(batch, "interaction"):
        return batch.to(device)
    columns = batch.interaction.items()
    return type(batch)({name: column.pin_memory().to(device, non_blocking=True) for name, column in columns})


def describe(device: torch.device) -> dict[str, Any]:
    """Return type, name and memory in bytes of the device, and "cores" for the CPU."""
    if device.type == "cpu":
        from joblib import cpu_count  # takes a third of a second to import

        return {"type": "cpu", "name": _processor(), "memory": total_memory(device), "cores": int(cpu_count())}
    name = str(module_of(device).get_device_name(device))
    return {"type": device.type, "name": name, "memory": total_memory(device)}


def in_words(description: dict[str, Any]) -> str:
    """Return the result of :func:`describe` as text: 'cuda (NVIDIA H100, 80 GiB)'."""
    cores = f", {description['cores']} cores" if "cores" in description else ""
    return f"{description['type']} ({description['name']}{cores}, {description['memory'] / 2**30:.0f} GiB)"


@functools.cache
def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
