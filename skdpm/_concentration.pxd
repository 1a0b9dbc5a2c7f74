# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._rng cimport bitgen_t
from skdpm._core._slice cimport SliceSampled
from skdpm._hyperpriors cimport LogDensity


cdef class ConcentrationSampled(SliceSampled):
    """A prior with a concentration, which is updated given counts under a hyperprior.

    The counts are the sizes of clusters, or the column sums of features.
    """
    cdef readonly Py_ssize_t n_samples
    cdef readonly double concentration
    cdef bint conjugate     # whether a prior overrides `draw_under_gamma`
    # What a slice step is conditioned on while it runs.
    cdef const Py_ssize_t* given_counts
    cdef Py_ssize_t n_given
    cdef LogDensity given_density

    # A family of priors overrides this ...
    cdef double log_probability_at(
        self, double concentration, const Py_ssize_t* counts, Py_ssize_t n_counts    # IN
    ) noexcept nogil
    # ... and a prior this, if a draw under a Gamma hyperprior has a closed form.
    cdef double draw_under_gamma(
        self, const Py_ssize_t* counts, Py_ssize_t n_counts, double shape, double rate,
        bitgen_t* rng
    ) noexcept nogil
