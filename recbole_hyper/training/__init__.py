"""The trainer, its optimizers and its checkpoints."""
