"""A small finished run."""

from tests.serving.conftest import folder  # noqa: F401  it is a fixture here too
