"""Ranking, metrics, statistics and result files."""
