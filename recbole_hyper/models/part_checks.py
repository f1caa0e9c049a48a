"""Checks of plugins on small batches before training, for mistakes that no loss curve shows."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from recbole_hyper.errors import ConfigError
from recbole_hyper.plugin_files import at_line
from recbole_hyper.random_numbers import seeded

# rounding differs between batches of different shapes
TOLERANCE = 1e-3
ROWS, LENGTH = 3, 6  # of a batch


def is_ours(cls: type) -> bool:
    """Return whether a class belongs to this package."""
    return cls.__module__.startswith("recbole_hyper.")


@contextlib.contextmanager
def blamed(cls: type, method: str) -> Iterator[None]:
    """Turn an exception in a plugin's ``method`` into a ConfigError that names the method."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        if is_ours(cls):
            raise
        advice = "; call super().__init__() first" if "__init__() call" in str(error) else ""
        text = " ".join(str(error).split()) or "no message"
        raise ConfigError(
            f"{cls.__name__}.{method} failed{at_line(error)}: {type(error).__name__}: {text}{advice}; "
            "--traceback shows more"
        ) from error


def check_parts(model: Any, max_length: int) -> None:
    """Check the parts of ``model`` that come from plugins, without changing weights or random generators.

    ConfigError, which names the method, for states that depend on later items (unless the encoder has
    ``causal = False``), on other rows or on padding; for a loss without a finite value and gradient; for a geometry
    whose logits are not finite.
    """
    with seeded(0):
        if not is_ours(type(model.encoder)):
            _check_encoder(model, max_length)
        if not is_ours(type(model.head.geometry)):
            _check_geometry(model)
        if not is_ours(type(model.loss)):
            _check_loss(model)


def _check_encoder(model: Any, max_length: int) -> None:
    encoder, name = model.encoder, f"{type(model.encoder).__name__}.forward"
    length = max(1, min(LENGTH, max_length - 2))
    items = torch.randint(1, model.n_items, (ROWS, length), device=model.device)
    lengths = torch.full((ROWS,), length, device=model.device)

    def states(items: Tensor) -> Tensor:
        times = torch.arange(items.shape[1], dtype=torch.float64, device=items.device).expand(items.shape)
        more = (times * (items > 0),) if encoder.reads_times else ()
        with blamed(type(encoder), "forward"):
            output = encoder(items, lengths[: len(items)], *more)
        expected = (*items.shape, encoder.item_embedding.weight.shape[1])
        if not isinstance(output, Tensor) or output.shape != expected:
            what = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
            raise ConfigError(f"{name} returned {what}; it must return states (B, L, d) = {expected}")
        return output

    training = model.training
    if not states(items).requires_grad:
        raise ConfigError(f"{name} returned states without a gradient, so the encoder would not learn")
    model.eval()
    with torch.no_grad():
        first = states(items)
        if type(encoder).causal:
            later, half = items.clone(), length // 2
            later[:, half:] = later[:, half:] % (model.n_items - 1) + 1
            _require_equal(
                first[:, :half],
                states(later)[:, :half],
                f"{name}: a state changes with later items, so training would see what it predicts; fix this, or set "
                "causal = False in the class",
            )
        _require_equal(first[:1], states(items[:1]), f"{name}: a state changes with the other rows of the batch")
        if length + 2 <= max_length:
            padded = states(torch.nn.functional.pad(items, (0, 2)))[:, :length]
            _require_equal(first, padded, f"{name}: a state changes with the padding after the history")
    model.train(training)


def _check_geometry(model: Any) -> None:
    kind = type(model.head.geometry)
    states = torch.randn(ROWS, model.item_embedding.weight.shape[1], device=model.device)
    with blamed(kind, "lift_states, lift_items or link"), torch.no_grad():
        logits = model.head.logits(states)
    if logits.shape != (ROWS, model.head.n_items) or not bool(torch.isfinite(logits).all()):
        raise ConfigError(f"{kind.__name__}: the logits must be finite, of shape {(ROWS, model.head.n_items)}")


def _check_loss(model: Any) -> None:
    kind, count = type(model.loss), ROWS * 2
    states = torch.randn(count, model.item_embedding.weight.shape[1], device=model.device, requires_grad=True)
    targets = torch.randint(1, model.n_items, (count,), device=model.device)
    users = torch.ones(ROWS, dtype=torch.long, device=model.device)
    with blamed(kind, "forward"):
        rows = torch.arange(count, device=model.device) // 2
        loss = model._loss(states, targets, users, rows, model.head.step_head())
    require_loss(loss, f"{kind.__name__}.forward")
    with blamed(kind, "backward"):
        (gradient,) = torch.autograd.grad(loss, states, allow_unused=True)
    if gradient is None or not bool(torch.isfinite(gradient).all()):
        raise ConfigError(f"{kind.__name__}.forward: the gradient of the states is missing or not finite")


def require_loss(loss: Any, name: str) -> None:
    """Raise ConfigError unless ``name`` returned a finite 0-d tensor with a gradient."""
    if not isinstance(loss, Tensor):
        wrong = "None" if loss is None else f"a {type(loss).__name__}"
    elif loss.dim():
        wrong = f"a tensor of shape {tuple(loss.shape)}"
    elif not loss.requires_grad:
        wrong = "a tensor without a gradient (detached)"
    else:
        wrong = "" if bool(torch.isfinite(loss)) else f"{float(loss.detach())}"
    if wrong:
        raise ConfigError(f"{name} returned {wrong}: a loss is one finite number, a 0-d tensor with a gradient")


def _require_equal(one: Tensor, other: Tensor, message: str) -> None:
    if not torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE * float(one.abs().max() if one.numel() else 1)):
        raise ConfigError(message)
