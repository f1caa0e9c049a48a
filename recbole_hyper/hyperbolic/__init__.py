"""Moebius operations, the recurrence of the Moebius GRU, and the layers of the noisy-prefix classifier."""
