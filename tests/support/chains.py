"""Short chains from many starts, for tests of what their ends follow."""

import numpy as np


def run_chains(starts, n_iterations, *, begin, step, read):
    """The ends of one chain from each start, all on one state.

    Parameters
    ----------
    starts : sequence
    n_iterations : int or sequence of int
        Of each chain, or of all.
    begin : callable
        (start): sets the state.
    step : callable
        (): one iteration.
    read : callable
        (): what to keep of the state.

    Returns
    -------
    ends : ndarray
        What `read` returned at the end of each chain.
    """
    ends = []
    for start, n in zip(starts, np.broadcast_to(n_iterations, len(starts)), strict=True):
        begin(start)
        for _ in range(n):
            step()
        ends.append(read())
    return np.array(ends)
