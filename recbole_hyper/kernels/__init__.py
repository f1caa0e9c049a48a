"""Everything that numba compiles. Each file names its plain twin and the gain that justifies it."""
