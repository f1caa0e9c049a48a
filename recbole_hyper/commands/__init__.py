"""Subcommands of recbole-hyper, one module each."""
