"""Sequential recommendation for RecBole: hyperbolic heads, losses for large catalogues, honest evaluation."""

__version__ = "0.1.0"
