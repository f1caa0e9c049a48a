"""What a finished run does for a service: recommendations from its folder, graphs, item vectors, indexes."""
