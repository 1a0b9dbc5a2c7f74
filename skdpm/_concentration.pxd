# SPDX-License-Identifier: BSD-3-Clause
from numpy.random cimport bitgen_t

from skdpm._core._slice cimport SliceSampled


cdef class ConcentrationSampled(SliceSampled):
    """A prior with a concentration, which is updated given counts under a Gamma prior of its own.

    The counts are the sizes of clusters, or the column sums of features.
    """
    cdef readonly Py_ssize_t n_samples
    cdef readonly double concentration
    # What a slice step is conditioned on while it runs; overrides get it as arguments.
    cdef const Py_ssize_t* given_counts
    cdef Py_ssize_t n_given
    cdef double given_shape, given_rate

    # A family of priors overrides this ...
    cdef double log_probability_at(
        self, double concentration, const Py_ssize_t* counts, Py_ssize_t n_counts    # IN
    ) noexcept nogil
    # ... and a prior this, where it knows better than a slice step.
    cdef double draw_concentration(
        self, const Py_ssize_t* counts, Py_ssize_t n_counts, double shape, double rate,
        bitgen_t* rng
    ) noexcept nogil
