"""What a trained model becomes outside this package: graphs, item vectors and indexes of the items."""
