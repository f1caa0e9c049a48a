"""Output geometries: how a state scores an item."""
