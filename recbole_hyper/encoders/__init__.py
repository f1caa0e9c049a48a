"""Encoders: a history becomes a state per position. ``MoebiusGRU`` is the layer behind the encoder moebius_gru."""

from importlib import import_module
from typing import Any

_HOMES = {
    "DualEncoder": "dual",
    "GRUEncoder": "gru",
    "MoebiusGRU": "moebius_gru",
    "MoebiusGRUCell": "moebius_gru",
    "MoebiusGRUEncoder": "moebius_gru",
    "TransformerEncoder": "transformer",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"recbole_hyper.encoders.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
