"""A device that is not the CPU, on a machine that has none: torch's Python backend, counted.

A tensor on "foreign" wraps a CPU tensor, and every operator runs on the CPU. As on a GPU, an operator that mixes a
foreign tensor with a CPU tensor fails, ``.numpy()`` fails and ``tensor.device.type == "cpu"`` is False, so that no
compiled CPU kernel is taken. What makes a GPU and its host wait for each other is counted (:class:`Transfers`).

Says nothing about speed, memory or rounding on a real GPU. Random numbers are those of the CPU's generator, whose state
is also the device's. :func:`registered` comes once per process, before its first backward; ``is_available`` is False
outside :func:`foreign_device`, so that other tests of the process do not see the device.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import geoopt  # noqa: F401  compiles functions with TorchScript, which reads the source of torch.tensor
import torch
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "foreign"
#: bytes that the device says it has, and has free
MEMORY = 4 << 30

# CUDA takes CPU tensors here too
MAY_MIX = {
    "aten::_to_copy",
    "aten::copy_",
    "aten::_local_scalar_dense",
    "aten::index",
    "aten::index_put",
    "aten::index_put_",
    "aten::_index_put_impl_",
    "aten::set_data",
}
# the host waits for the size of their results
SIZED_BY_DATA = {
    "aten::nonzero",
    "aten::masked_select",
    "aten::unique_dim",
    "aten::unique_consecutive",
    "aten::_unique2",
    "aten::bincount",
    "aten::repeat_interleave",
}
#: name of the slow backward pass of ``table[index]``, which sorts and adds
INDEX_BACKWARD = "index backward"
aten = torch.ops.aten
SHAPE_QUESTIONS = {
    aten.sym_size.default: lambda raw: raw.size(),
    aten.sym_size.int: lambda raw, dim: raw.size(dim),
    aten.size.default: lambda raw: raw.size(),
    aten.sym_stride.default: lambda raw: raw.stride(),
    aten.stride.default: lambda raw: raw.stride(),
    aten.sym_storage_offset.default: lambda raw: raw.storage_offset(),
    aten.storage_offset.default: lambda raw: raw.storage_offset(),
    aten.sym_numel.default: lambda raw: raw.numel(),
    aten.numel.default: lambda raw: raw.numel(),
    aten.dim.default: lambda raw: raw.dim(),
    aten.is_contiguous.default: lambda raw: raw.is_contiguous(),
    aten.is_contiguous.memory_format: lambda raw, form: raw.is_contiguous(memory_format=form),
    aten.is_non_overlapping_and_dense.default: lambda raw: aten.is_non_overlapping_and_dense.default(raw),
    aten.is_strides_like_format.default: lambda raw, form: aten.is_strides_like_format.default(raw, form),
}


class Transfers(collections.Counter):
    """How often host and device met: "to device", "to host", "number" (``.item()``) and "size".

    "size" counts results whose size depends on data: nonzero, unique, a mask as an index. All but "to device" wait.
    """

    #: the counter of the innermost :func:`counted`
    current: Transfers | None = None

    def __init__(self) -> None:
        super().__init__()
        #: which line of the package caused which kind, and how often
        self.places: collections.Counter[str] = collections.Counter()
        #: how often each operator ran that starts a kernel on a GPU: not views, not memory without values
        self.operations: collections.Counter[str] = collections.Counter()

    @property
    def waits(self) -> int:
        """How often the host waited for the device."""
        return self.total() - self["to device"]


def _note(kind: str) -> None:
    if Transfers.current is not None:
        Transfers.current[kind] += 1
        frames = (frame for frame in reversed(traceback.extract_stack()) if "recbole_hyper" in frame.filename)
        place = next((f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames), "elsewhere")
        Transfers.current.places[f"{kind} at {place}"] += 1


@contextlib.contextmanager
def counted() -> Iterator[Transfers]:
    """Count the transfers of a block."""
    before, Transfers.current = Transfers.current, Transfers()
    try:
        yield Transfers.current
    finally:
        Transfers.current = before


class Recording:
    """A CUDA graph for this device: the operators of a function, run again on the same tensors.

    As there, numbers of the host are those of the recording, and so are the values of a tensor that came from the host.
    What the host reads in a recording is an error.
    """

    current: Recording | None = None

    def __init__(self) -> None:
        self.operators: list[tuple[Any, Any, Any, Any]] = []

    def add(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        self.operators.append((func, args, kwargs, result))

    def replay(self) -> None:
        for func, args, kwargs, result in self.operators:
            for old, new in zip(pytree.tree_leaves(result), pytree.tree_leaves(func(*args, **kwargs)), strict=True):
                # a view of a tensor, or a tensor that was changed in place, is up to date
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)

    @classmethod
    def capture(cls, function: Any) -> tuple[Any, Any]:
        """Run ``function`` and return how to run it again, and its result."""
        recording, cls.current = cls(), None
        cls.current = recording
        try:
            with counted() as transfers:
                result = function()
        finally:
            cls.current = None
        assert not transfers, transfers.places
        return recording.replay, result


class ForeignModule(_DummyBackendModule):
    """What torch.foreign is: the functions that torch.accelerator and this package call on a device's module."""

    active = False

    def is_available(self) -> bool:
        return self.active

    has_bfloat16 = True

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        return self.has_bfloat16

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def get_device_name(self, device: Any = None) -> str:
        return "Foreign test device"

    def get_rng_state_all(self) -> list[torch.Tensor]:
        return [torch.get_rng_state()]

    def set_rng_state_all(self, states: list[torch.Tensor]) -> None:
        torch.set_rng_state(states[0])

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return MEMORY // 2, MEMORY

    def memory_allocated(self, device: Any = None) -> int:
        return 1 << 20

    def max_memory_allocated(self, device: Any = None) -> int:
        return 3 << 20

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def synchronize(self, device: Any = None) -> None:
        pass


class Foreign(torch.Tensor):
    """A tensor on the device; ``raw`` is the CPU tensor."""

    raw: torch.Tensor

    @staticmethod
    def __new__(cls, raw: torch.Tensor) -> Foreign:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            raw.size(),
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=torch.device(NAME, 0),
            # operators that resize their result resize ``raw`` only: sizes are looked up there
            dispatch_sizes_strides_policy="sizes",
            requires_grad=False,
        )
        made.raw = raw
        return made

    def tolist(self) -> Any:
        _note("to host")
        return self.raw.detach().tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:
        _note("to host")
        return self.raw.detach().__reduce_ex__(protocol)

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("can't convert foreign:0 device type tensor to numpy. Use Tensor.cpu() first")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in SHAPE_QUESTIONS:
            return SHAPE_QUESTIONS[func](args[0].raw, *args[1:])
        return on_cpu(func, args, kwargs or {})


@functools.cache
def _starts_a_kernel(func: Any) -> bool:
    """Return whether an operator computes: it is no view, and does not only make memory."""
    views = any(value.alias_info is not None and not value.alias_info.is_write for value in func._schema.returns)
    if func._schema.name == "aten::_conj":
        return True
    return not views and not func._schema.name.startswith(
        ("aten::empty", "aten::new_empty", "aten::set_data", "aten::_unsafe_view")
    )


def on_cpu(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operator on the wrapped tensors, refusing what a GPU would refuse."""
    flat, spec = pytree.tree_flatten((args, kwargs))
    name = func._schema.name
    if Transfers.current is not None and _starts_a_kernel(func):
        slow = name == "aten::_index_put_impl_" and len(args) > 3 and args[3]
        Transfers.current.operations[INDEX_BACKWARD if slow else name] += 1
    tensors = [value for value in flat if isinstance(value, torch.Tensor)]
    for value in tensors:
        if not isinstance(value, Foreign) and value.dim() > 0 and name not in MAY_MIX:
            raise RuntimeError(f"{name}: a tensor on cpu among tensors on foreign")
    to_host = _meeting(name, args, kwargs, tensors)
    plain = [
        v.raw if isinstance(v, Foreign) else torch.device("cpu") if isinstance(v, torch.device) else v for v in flat
    ]
    own_args, own_kwargs = pytree.tree_unflatten(plain, spec)
    result = ON_DEVICES_ALONE.get(name, func)(*own_args, **own_kwargs)
    if Recording.current is not None and _starts_a_kernel(func):
        Recording.current.add(ON_DEVICES_ALONE.get(name, func), own_args, own_kwargs, result)
    if name == "aten::copy_":
        return args[0]
    if to_host:
        return result

    def wrapped(out: Any) -> Any:
        if not isinstance(out, torch.Tensor):
            return out
        own = next((v for v in tensors if isinstance(v, Foreign) and v.raw is out), None)
        return Foreign(out) if own is None else own

    return pytree.tree_map(wrapped, result)


def _gru_cell(inputs: Any, states: Any, before: Any, bias: Any = None, own_bias: Any = None) -> Any:
    """A step of a GRU: the operator that torch runs on every device but the CPU."""
    inputs, states = (g if b is None else g + b for g, b in ((inputs, bias), (states, own_bias)))
    (reset_in, keep_in, new_in), (reset_own, keep_own, own) = inputs.chunk(3, 1), states.chunk(3, 1)
    reset, keep = torch.sigmoid(reset_in + reset_own), torch.sigmoid(keep_in + keep_own)
    new = torch.tanh(new_in + reset * own)
    return new + keep * (before - new), torch.cat((reset, keep, new, before, own), 1)


def _gru_cell_backward(gradient: Any, saved: Any, has_bias: bool) -> Any:
    reset, keep, new, before, own = saved.chunk(5, 1)
    to_new = gradient * (1 - keep) * (1 - new * new)
    to_keep, to_reset = gradient * (before - new) * keep * (1 - keep), to_new * own * reset * (1 - reset)
    inputs = torch.cat((to_reset, to_keep, to_new), 1)
    states = torch.cat((to_reset, to_keep, to_new * reset), 1)
    sums = (inputs.sum(0), states.sum(0)) if has_bias else (None, None)
    return inputs, states, gradient * keep, *sums


ON_DEVICES_ALONE = {
    "aten::_thnn_fused_gru_cell": _gru_cell,
    "aten::_thnn_fused_gru_cell_backward": _gru_cell_backward,
    # a lazy conjugate would be forgotten below the dispatcher
    "aten::_conj": aten.conj_physical.default,
}


def _meeting(name: str, args: Any, kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> bool:
    """Count what an operator makes host and device wait for; return whether its result is on the host."""
    source = args[0] if args and isinstance(args[0], torch.Tensor) else None
    if name == "aten::_to_copy" and kwargs.get("device") is not None:
        host = torch.device(kwargs["device"]).type == "cpu"
        if host == isinstance(source, Foreign):
            _note("to host" if host else "to device")
        return host
    if name == "aten::copy_" and isinstance(args[0], Foreign) != isinstance(args[1], Foreign):
        _note("to device" if isinstance(args[0], Foreign) else "to host")
    elif name == "aten::_local_scalar_dense":
        _note("number")
    elif name in SIZED_BY_DATA and kwargs.get("output_size") is None:
        _note("size")
    elif name.startswith(("aten::index", "aten::_index")) and len(args) > 1 and isinstance(args[1], list | tuple):
        for index in args[1]:
            if isinstance(index, torch.Tensor) and not isinstance(index, Foreign):
                _note("to device")
            if isinstance(index, torch.Tensor) and index.dtype == torch.bool:
                _note("size")
    return False


_MODULE = ForeignModule()
_plain_tensor = torch.tensor


def _tensor(data: Any, *args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
    if device is not None and torch.device(device).type == NAME:
        return _plain_tensor(data, *args, **kwargs).to(device)
    return _plain_tensor(data, *args, device=device, **kwargs)


def _copying(loading: Any) -> Any:
    def load(*args: Any, **kwargs: Any) -> Any:
        torch.__future__.set_swap_module_params_on_conversion(False)
        try:
            return loading(*args, **kwargs)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(True)

    return load


@contextlib.contextmanager
def _as_one(name: str) -> Iterator[None]:
    """Count the operators of a block as one with this name."""
    transfers = Transfers.current
    if transfers is None:
        yield
        return
    before, transfers.operations = transfers.operations, collections.Counter()
    try:
        yield
    finally:
        transfers.operations = before
        before[name] += 1


class _Attention(torch.autograd.Function):
    """Attention as an operator with its backward pass, as on a GPU."""

    @staticmethod
    def forward(ctx: Any, attention: Any, *inputs: Any) -> Any:
        with torch.enable_grad(), _as_one("attention"):
            ctx.leaves = [one.detach().requires_grad_(one.requires_grad) for one in inputs]
            ctx.out = attention(*ctx.leaves)
        return ctx.out.detach()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Any) -> Any:
        wanted = [one for one in ctx.leaves if one.requires_grad]
        with _as_one("backward of attention"):
            found = list(torch.autograd.grad(ctx.out, wanted, gradient))
        return None, *(found.pop(0) if one.requires_grad else None for one in ctx.leaves)


def _as_one_operator(attention: Any) -> Any:
    def counted_once(query: Any, key: Any, value: Any, attn_mask: Any = None, **options: Any) -> Any:
        inputs = (query, key, value) if attn_mask is None else (query, key, value, attn_mask)
        if not isinstance(query, Foreign) or torch.is_autocast_enabled(NAME):
            return attention(*inputs, **options)
        return _Attention.apply(functools.partial(attention, **options), *inputs)

    return counted_once


# what autocast rounds, of the operators that the models use
IN_HALF_PRECISION = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm")


def _in_half_precision(operator: Any) -> Any:
    def rounded(*args: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)):
            half = torch.get_autocast_dtype(NAME)
            is_float = [isinstance(a, torch.Tensor) and a.is_floating_point() for a in args]
            return operator(*(a.to(half) if own else a for a, own in zip(args, is_float, strict=True)))

    return rounded


@functools.cache
def registered() -> tuple[torch.library.Library, torch.library.Library]:
    """Register the device with torch, once per process; what is returned must live as long."""
    _setup_privateuseone_for_python_backend(NAME, backend_module=_MODULE)
    library = torch.library.Library("_", "IMPL")
    library.fallback(lambda func, *args, **kwargs: on_cpu(func, args, kwargs), "PrivateUse1")
    library.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    rounded = torch.library.Library("aten", "IMPL")
    for name in IN_HALF_PRECISION:
        rounded.impl(name, _in_half_precision(getattr(aten, name)), "AutocastPrivateUse1")
    return library, rounded


@contextlib.contextmanager
def foreign_device() -> Iterator[torch.device]:
    """Make the device available to a block.

    Within it ``torch.tensor`` knows the device, and parameters keep their identity under ``.to(device)``, for which
    torch swaps tensors; loading copies into them, as on a GPU.
    """
    registered()
    swapping = torch.__future__.get_swap_module_params_on_conversion()
    loading, pinning = torch.nn.Module.load_state_dict, torch.Tensor.pin_memory
    attention = torch.nn.functional.scaled_dot_product_attention
    torch.__future__.set_swap_module_params_on_conversion(True)
    torch.tensor, _MODULE.active = _tensor, True
    torch.nn.Module.load_state_dict = _copying(loading)
    torch.Tensor.pin_memory = lambda tensor: tensor  # the memory of the host is that of the device
    torch.nn.functional.scaled_dot_product_attention = _as_one_operator(attention)
    try:
        yield torch.device(NAME, 0)
    finally:
        torch.tensor, _MODULE.active = _plain_tensor, False
        torch.nn.Module.load_state_dict, torch.Tensor.pin_memory = loading, pinning
        torch.nn.functional.scaled_dot_product_attention = attention
        torch.__future__.set_swap_module_params_on_conversion(swapping)
