"""Losses, one file for each."""
