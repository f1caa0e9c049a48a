"""Peak memory of the sampled losses: the copies in the backward pass of a piece."""

from recbole_hyper.geometry.head import rows_of_a_piece, scores_all
from recbole_hyper.losses.base import Problem

INDEX = 8


def piece_bytes(problem: Problem, logits: int, gathered: int) -> int:
    """Return the bytes of one piece of ``logits`` logits and ``gathered`` numbers of items and states.

    Logits: product, softmax or sigmoid, gradient; with a link also its value and slope. Gathered numbers: the gathered
    ones and the operands of the product, with the gradients of both; with a link also the lifts and their gradient;
    lifts without a link also have the gradient of the length.
    """
    of_logit, of_vector = (5, 6) if problem.linked else (3, 5 if problem.lifts else 4)
    return problem.itemsize * (of_logit * logits + of_vector * gathered)


def candidates_bytes(problem: Problem, k: int) -> int:
    """Return the bytes of the largest piece where each row has k separate candidates (see ``pair_pieces``)."""
    rows = min(problem.rows, rows_of_a_piece(problem.n_items, k, problem.width))
    if scores_all(problem.n_items, k):
        return piece_bytes(problem, rows * problem.n_items, problem.n_items * (problem.width + 1))
    return piece_bytes(problem, rows * k, rows * k * (problem.width + 1))


def pair_bytes(problem: Problem, k: int) -> int:
    """Return the peak of losses with k negatives for each row: the draws, or the logits with one piece."""
    cells = problem.rows * (k + 1)
    logits = cells * (INDEX + 2 * problem.itemsize) + candidates_bytes(problem, k + 1)
    return max(3 * cells * INDEX, logits) + problem.state_bytes
