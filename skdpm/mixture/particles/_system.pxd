# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._memory cimport MemoryOwner
from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.likelihoods.contract._base cimport log_constant
from skdpm.mixture.particles._labels cimport KeptLabels
from skdpm.mixture.particles._nodes cimport ConcentrationNodes
from skdpm.mixture.particles._slots cimport Family
from skdpm.mixture.particles._weights cimport Weights
from skdpm.mixture.state._state cimport Noise

cdef class ParticleSystem(MemoryOwner):
    """See `_system.pyx`. A placement reserves its memory first; the rest runs without the GIL."""
    cdef readonly Py_ssize_t n_rows, row_at_hand
    cdef readonly double sum_constants      # `log_constants` of the rows so far, unless they vary
    cdef readonly list families             # of Family
    cdef void** family_at                   # (n_families,): the same objects
    cdef Py_ssize_t n_families
    cdef void** kin                         # (n_particles,): Family of each particle
    cdef readonly Weights weights
    cdef readonly ConcentrationNodes nodes
    cdef readonly KeptLabels labels
    # Missing entries that each particle has drawn: (n_particles, n_gap_values), or (_, 0).
    cdef double[:, ::1] completions
    # Rows that are noise, of each particle: number and log density, less their `log_constants`.
    cdef readonly Noise noise               # None: there is none
    cdef Py_ssize_t[::1] n_noise            # (n_particles,)
    cdef double[::1] log_outside            # (n_particles,)
    cdef Py_ssize_t[::1] n_clusters         # (n_particles,)
    cdef int[:, ::1] slots                  # (n_particles, k_capacity): clusters in order
    cdef Py_ssize_t k_capacity, k_most
    # The current row.
    cdef Py_ssize_t tick                    # number of its placement
    cdef double top                         # its largest log density
    cdef double[::1] tops                   # (n_particles,): log scale of a particle's terms
    cdef double[::1] totals                 # (n_particles,): sum of its terms on that scale
    # (n_particles,): its cluster; n_clusters: a new one; OUTSIDE: noise
    cdef Py_ssize_t[::1] choices
    cdef double[::1] terms                  # (k_capacity + 2,): scratch

    cdef int reserve_clusters(self, Py_ssize_t k) except -1
    cdef int make_room(self, Py_ssize_t n_new) except -1
    cdef Py_ssize_t most_children(self) noexcept nogil
    cdef bint has_room(self, Py_ssize_t n_new) noexcept nogil
    cdef void drop(self, Py_ssize_t p) noexcept nogil
    cdef void branch(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil
    cdef void evaluate(self, Py_ssize_t i) noexcept nogil
    cdef Py_ssize_t pick(self, const double* terms, Py_ssize_t k, double u) noexcept nogil
    cdef void leave_out(self, Py_ssize_t p, Py_ssize_t i, Py_ssize_t sign) noexcept nogil
    cdef double list_terms(self, Py_ssize_t p, double top, double* terms) noexcept nogil
    cdef double top_of(self, Py_ssize_t p) noexcept nogil
    cdef bint weigh(self, Py_ssize_t p, double sign) noexcept nogil
    cdef int weigh_all(self, Py_ssize_t i, double sign) except -1 nogil
    cdef Py_ssize_t draw(self, Py_ssize_t p, bitgen_t* rng) noexcept nogil
    cdef int step(self, Py_ssize_t i, bitgen_t* rng) except -1 nogil
    cdef int place(self, Py_ssize_t i, bitgen_t* rng, bint is_new) except -1 nogil
    cdef void resample(self, bitgen_t* rng) noexcept nogil
    cdef void draw_all(self, bitgen_t* rng) noexcept nogil
    cdef bint follow_children(self, bitgen_t* rng) noexcept nogil
    cdef void count_constant(self, Py_ssize_t i, double sign) noexcept nogil
    cdef bint grow(self, Py_ssize_t i, Py_ssize_t m, bitgen_t* rng) noexcept nogil
    cdef void enter(self, Py_ssize_t p, Py_ssize_t j, Py_ssize_t i, bitgen_t* rng) noexcept nogil
    cdef void close(self, Py_ssize_t p, Py_ssize_t place) noexcept nogil
    cdef void take_away(self, Py_ssize_t i) noexcept nogil
    cdef void count(self) noexcept nogil
    cdef void renew_own_law(self, Py_ssize_t p) noexcept nogil

    cdef inline Py_ssize_t n_inside(self, Py_ssize_t p) noexcept nogil:
        """Number of rows in the clusters of a particle."""
        return self.n_rows - self.n_noise[p]

    cdef inline double log_as_noise(self, Py_ssize_t p, Py_ssize_t i) noexcept nogil:
        """log density of row i as noise, less its `log_constants` in the family of a particle."""
        return self.noise.log_density[i] - log_constant((<Family>self.kin[p]).model, i)
