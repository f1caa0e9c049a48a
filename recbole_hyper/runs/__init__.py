"""Runs and their folders: train and test, load, recommend, evaluate, resume and warm start."""
