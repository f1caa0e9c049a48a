"""Training: the loop, optimizers, checkpoints and loggers."""
