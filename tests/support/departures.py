"""Rows of `Subspace` that do not depart from its axes."""

import numpy as np

from skdpm.mixture.likelihoods.subspace import subspace_laws


def leave_out_departures(monkeypatch):
    """Let no row depart: departures have mass far beyond grids, and answers leave them out."""
    shares = np.append(0.0, np.full(len(subspace_laws.SPREADS) - 1, -np.inf))
    monkeypatch.setattr(subspace_laws, "log_shares", lambda n_rows: shares)
