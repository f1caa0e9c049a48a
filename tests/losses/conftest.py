"""Fixtures for losses that score chosen items."""

import pytest

from recbole_hyper.geometry import _gather
from recbole_hyper.geometry import head as head_module


@pytest.fixture(params=[1 << 20, 40], ids=["one piece", "many pieces"])
def _pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the problem into one piece and into pieces of about one row: the result may not change."""
    monkeypatch.setattr(_gather, "PIECE", request.param)
    monkeypatch.setattr(_gather, "LOGITS", request.param)


@pytest.fixture(params=[0, 32], ids=["gathered", "all items"])
def _ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Score the candidates alone, or all items of which they are picked: the result may not change."""
    monkeypatch.setattr(head_module, "_ALL_PER_CANDIDATE", request.param)
