"""This package's models in RecBole's own functions: its ``Config``, ``create_dataset``, trainers and checkpoints."""
