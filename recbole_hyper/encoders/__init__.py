"""Encoders: a history becomes a state per position. ``MoebiusGRU`` is the layer behind the encoder moebius_gru."""

from typing import Any

__all__ = ["MoebiusGRU"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from recbole_hyper.encoders.moebius_gru import MoebiusGRU

        return MoebiusGRU
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
