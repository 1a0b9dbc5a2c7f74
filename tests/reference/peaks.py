"""Clusters fused to the peaks of a density, by the definition: pairs of rows, way after way."""

import numpy as np


def fused_to_peaks(labels, draws, centres, log_density, valley, n_steps, n_neighbours):
    """The peak of each row, named by the cluster whose centre is there.

    A cluster's neighbours are those with a denser centre of which some row is with one of its own
    in some draw. Of the `n_neighbours` that share most, per pair of rows, it goes to the first to
    which the density at `n_steps` points inside the straight way is never below `valley` times
    that at its own centre; and on from there.
    """
    labels, draws = np.asarray(labels), np.asarray(draws)
    density = [float(np.exp(log_density(centre[None])[0])) for centre in centres]
    goes_to = {}
    for a in range(len(centres)):
        shared = {}
        for b in range(len(centres)):
            if (density[b], -b) > (density[a], -a):
                pairs = [
                    np.mean(draws[:, i] == draws[:, j])
                    for i in np.flatnonzero(labels == a)
                    for j in np.flatnonzero(labels == b)
                ]
                if any(pairs):
                    shared[b] = round(np.mean(pairs), 12)
        goes_to[a] = a
        for b in sorted(shared, key=lambda b: (-shared[b], -density[b], b))[:n_neighbours]:
            way = [
                centres[a] + (centres[b] - centres[a]) * s / (n_steps + 1)
                for s in range(1, n_steps + 1)
            ]
            if min(float(np.exp(log_density(point[None])[0])) for point in way) >= (
                valley * density[a]
            ):
                goes_to[a] = b
                break
    for _ in centres:
        goes_to = {a: goes_to[b] for a, b in goes_to.items()}
    return np.array([goes_to[a] for a in labels])
