"""Expected losses of candidate partitions, by rows and pairs of rows: no contingency table.

Two rows are together in a partition or not; the errors of a candidate a against a draw b are

    "vi":     join = mean over rows i of log |a(i)| - log |a(i) & b(i)|, where a(i) is the cluster
              that has row i; split likewise with |b(i)| (Meila 2007, eq. 13, summed over rows);
    "binder": join, split = the shares of the pairs of rows that a alone, b alone, has together.
"""

import numpy as np


def together(labels):
    """Whether two rows share a cluster: (..., n, n)."""
    return labels[..., :, None] == labels[..., None, :]


def expected_losses(draws, candidates, loss):
    """Mean over the draws of the loss of each candidate.

    Parameters
    ----------
    draws : ndarray of int of shape (n_draws, n)
    candidates : ndarray of int of shape (n_candidates, n)
    loss : {"vi", "binder"} or tuple (name, split_cost)
        (2 - split_cost) join + split_cost split; 1 where it is not given (Dahl, Johnson & Mueller
        2022, section 2.2).

    Returns
    -------
    losses : ndarray of shape (n_candidates,)
    """
    name, split_cost = loss if isinstance(loss, tuple) else (loss, 1.0)
    n = draws.shape[1]
    i, j = np.triu_indices(n, 1)
    b = together(draws)
    losses = []
    for a in together(candidates):
        if name == "vi":
            both = np.log((a & b).sum(axis=2))
            join = np.log(a.sum(axis=1)) - both
            split = np.log(b.sum(axis=2)) - both
        else:
            join, split = (a & ~b)[:, i, j], (b & ~a)[:, i, j]
            if n == 1:
                join = split = np.zeros(1)
        losses.append((2.0 - split_cost) * join.mean() + split_cost * split.mean())
    return np.array(losses)
