"""The error that data preparation raises for everything a user can put right."""

from __future__ import annotations


class PrepareError(ValueError):
    """What came, what is allowed, what to do; the command prints it without a traceback."""
