"""From atomic files and frames to sequences: the store, its cache, features of items, counts of pairs."""
