# SPDX-License-Identifier: BSD-3-Clause
"""The state of a chain of a feature allocation model."""

from skdpm._core._rng cimport bit_generator_pointer, bitgen_t
from skdpm.features.likelihoods._allocations cimport Allocations


# Log odds, 3 to 2, up to which two answers count as about equally probable.
cdef double INDIFFERENCE = 0.405


cdef class FeatureState:
    """State of one chain.

    - `model`: FeatureModel. Model of the rows, with parameters of features; it is bound to Z here.
    - `Z`: (n_samples, n_latent). 0 or 1; no column of zeros under the Indian buffet process.
    - `collapses`: bool, default=True. Whether the parameters of singletons are integrated out if
      the model can do so. If not, singletons are proposed from the prior.
    """

    def __init__(self, FeatureModel model, FeaturePrior prior, Z, bint collapses=True):
        self.model = model
        if isinstance(model, CollapsedFeatureModel):
            self.collapsed = model
        if isinstance(model, InterceptFeatureModel):
            if (<InterceptFeatureModel>model).has_intercept:
                self.intercepted = model
        self.collapses = collapses and self.collapsed is not None
        self.prior = prior
        self.n_samples = model.n_samples
        self.Z = Allocations(Z)
        if self.Z.n_samples != self.n_samples or self.Z.n_latent != model.n_latent:
            raise ValueError(
                f"Z has shape ({self.Z.n_samples}, {self.Z.n_latent}), not "
                f"({self.n_samples}, {model.n_latent})"
            )
        model.reserve(self.Z.stride)
        model.bind_allocations(self.Z)

    cdef int reserve(self, Py_ssize_t n_latent) except -1:
        """Allocate memory for `n_latent` features, here and in the model."""
        cdef Py_ssize_t stride = max(n_latent, 2 * self.Z.stride)
        if n_latent <= self.Z.stride:
            return 0
        self.model.reserve(stride)
        self.Z.reserve(stride)
        self.model.bind_allocations(self.Z)

    cdef int add_feature(self, Py_ssize_t i, bitgen_t* rng) except -1 nogil:
        """Add a feature that row i alone has, its parameters from their prior."""
        if self.Z.n_latent == self.Z.stride:
            with gil:
                self.reserve(self.Z.n_latent + 1)
        self.model.add_feature(rng)
        self.Z.append()
        self.Z.set(i, self.Z.n_latent - 1, True)

    cdef int remove_feature(self, Py_ssize_t k) except -1 nogil:
        """Remove feature k; the last one takes its place."""
        self.Z.remove(k)
        self.model.remove_feature(k)

    cdef int complement(self, Py_ssize_t k) except -1 nogil:
        """Exchange feature k for its complement. No row's law changes."""
        self.intercepted.complement(k)
        for i in range(self.n_samples):
            self.Z.set(i, k, not self.Z.row(i)[k])

    # The Python boundary.

    def allocations(self):
        """Copy Z into an ndarray of shape (n_samples, n_latent), uint8."""
        return self.Z.to_array()

    def column_sums(self):
        """Numbers of rows that have each feature: ndarray of shape (n_latent,), intp."""
        return self.Z.sums()

    def compute_log_joint(self):
        """log p(Z | concentration) + log p(X | Z, parameters) + log p(parameters)."""
        return self.log_prior() + self.model.log_likelihood() + self.model.log_prior()

    def compute_log_marginal(self):
        """log p(Z | concentration) + log p(X | Z, hyperparameters), parameters integrated out."""
        return self.log_prior() + self.model.log_marginal()

    def log_prior(self):
        """log p(Z | concentration)."""
        return self.prior.log_probability_at(
            self.prior.concentration, self.Z.col_sums, self.Z.n_latent
        )

    def update_params(self, bit_generator, bint adapting=False):
        """Do one step of the parameters and hyperparameters given Z."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        with bit_generator.lock, nogil:
            self.model.update_params(adapting, rng)

    def choose_complements(self):
        """Exchange features for their complements, one by one, as long as that raises the log
        marginal. If both are about equally probable, prefer the one that adds to a row. Without
        an intercept, do nothing."""
        cdef double value, best
        cdef bint improves = True
        if self.intercepted is None:
            return
        best = self.compute_log_marginal()
        while improves:     # ends: the log marginal rises every time by more than rounding
            improves = False
            for k in range(self.Z.n_latent):
                if self.Z.col_sums[k] == self.n_samples and self.prior.grows:
                    continue    # its complement would be a feature of no row
                self.complement(k)
                value = self.compute_log_marginal()
                if value > best + 1e-6:
                    best = value
                    improves = True
                else:
                    self.complement(k)
        self.mean_params()
        for k in range(self.Z.n_latent):
            if self.intercepted.takes_away(k) and (
                self.Z.col_sums[k] < self.n_samples or not self.prior.grows
            ):
                self.complement(k)
                value = self.compute_log_marginal()
                if value > best - INDIFFERENCE:
                    best = value
                else:
                    self.complement(k)

    def mean_params(self):
        """Set the parameters to their means given Z and X."""
        with nogil:
            self.model.mean_params()
