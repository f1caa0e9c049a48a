"""Errors are checked by their type and by what they name: a file, a line, a key, the way out."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refused(kind: type[BaseException], *named: str) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Check that the body raises this error and that its text names each of these; yield it as pytest.raises does."""
    with pytest.raises(kind) as caught:
        yield caught
    text = str(caught.value)
    missing = [name for name in named if name not in text]
    assert not missing, f"{missing} not named in: {text}"
