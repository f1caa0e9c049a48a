"""Reports over runs and sweeps: tables, figures, one HTML page, and the reproduction of published tables."""
