"""Encoders turn a history into a state per position, one file for each."""
