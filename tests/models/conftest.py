"""Linear models of one test do not take the fit of another."""

import pytest

from recbole_hyper.models import _linear


@pytest.fixture(autouse=True)
def _no_shared_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_linear, "_recent", {})
