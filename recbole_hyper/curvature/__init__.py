"""The Gromov delta of data, and the curvature that it implies."""
