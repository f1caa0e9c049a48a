"""From a split to batches: windows and RecBole's rows for training, histories for ranking."""
