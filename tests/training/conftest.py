"""Fixtures of these tests."""

from tests.sweep.conftest import data, keys  # noqa: F401  fixtures here too
