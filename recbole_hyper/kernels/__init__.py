"""Everything compiled by numba; each file names its plain twin and the gain it is kept for."""
