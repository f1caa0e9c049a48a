"""Errors that more than one part raises; a leaf that imports nothing of the package."""

from __future__ import annotations


class ConfigError(ValueError):
    """A configuration that cannot run; the message says which key, what came, what is allowed."""


class NoSpaceError(OSError):
    """The disk is full, or a quota is used up: nothing was half-written, and the same work can go on with space."""


class LockedError(OSError):
    """Another process works on the same folder."""
