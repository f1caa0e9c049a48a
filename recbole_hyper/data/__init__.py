"""From atomic files and frames to sequences: the store, features of items, counts of pairs."""
