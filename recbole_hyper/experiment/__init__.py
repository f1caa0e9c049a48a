"""Experiments: lists of runs (model, settings, seed), how they are trained, and what their results become."""
