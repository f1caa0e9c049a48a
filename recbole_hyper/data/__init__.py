"""Atomic files to sequences, batches and negatives."""
