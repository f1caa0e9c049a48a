"""This package's models inside RecBole's own functions: what :mod:`recbole_hyper.bridge.patches.names` leads to."""
