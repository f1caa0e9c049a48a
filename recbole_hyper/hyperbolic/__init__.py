"""Moebius operations, the recurrence of the Moebius GRU, and the layers of the noisy-prefix classifier."""

# optimizers whose points stay on their manifolds
RIEMANNIAN_LEARNERS = ("riemannian_adam", "riemannian_sgd")
