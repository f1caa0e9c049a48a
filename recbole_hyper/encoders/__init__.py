"""Encoders: a history becomes a state per position."""
