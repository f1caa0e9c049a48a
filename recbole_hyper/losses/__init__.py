"""Losses: which scores are computed, and what is learned from them."""
