# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._rng cimport bitgen_t
from skdpm.features.state._state cimport FeatureState
from skdpm.features.samplers._base cimport FeatureKernel


cdef struct Node:
    Py_ssize_t slot     # its candidate, and its line of `histories`
    Py_ssize_t count    # particles with this history
    double log_w        # log weight of each of them
    double log_ratio    # log p(x_i | history, test path) - log p(x_i | test path)


cdef class RowFilterKernel(FeatureKernel):
    cdef Py_ssize_t n_particles
    cdef double annealing_power
    cdef Py_ssize_t n_first         # particles of the first node
    cdef Py_ssize_t least_nodes     # capacity for nodes at the start
    cdef Py_ssize_t n_nodes         # capacity of the arrays below
    cdef Py_ssize_t n_current       # nodes of this generation
    cdef Py_ssize_t retained        # node with the row's present history; -1: none
    cdef Node* nodes                # (n_nodes,)
    cdef Node* next_nodes           # (n_nodes,)
    cdef Py_ssize_t* slots          # (n_nodes,): slots of the nodes
    cdef Py_ssize_t* free_slots     # (n_nodes,)
    cdef Py_ssize_t n_free
    cdef unsigned char* histories   # (n_nodes + 1, n_reserved)
    # Children 2g and 2g + 1 of node g have the test path's value and the other one.
    cdef double* log_w              # (2 n_nodes,)
    cdef double* log_ratios         # (2 n_nodes,)
    cdef double* weights            # (2 n_nodes,): scratch
    cdef Py_ssize_t* counts         # (2 n_nodes,)
    cdef Py_ssize_t[::1] particles  # (n_particles,): scratch
    cdef unsigned char[::1] test    # (n_reserved,): the test path
    cdef unsigned char[::1] base    # (n_reserved,): values of candidate 0

    cdef int choose_test_path(self, FeatureState state, bitgen_t* rng) except? -1 nogil
    cdef int filter(
        self, FeatureState state, bitgen_t* rng, bint conditional,
        unsigned char* drawn    # OUT (n_shared,): may be `test` or, if conditional, `values`
    ) except? -1 nogil
    cdef void resample(self, bitgen_t* rng) noexcept nogil
    cdef bint choose(self, Py_ssize_t t, Py_ssize_t kept, bitgen_t* rng) noexcept nogil
    cdef int branch(self, FeatureState state, Py_ssize_t t) except -1 nogil


cdef class ParticleGibbsKernel(RowFilterKernel):
    cdef double resample_threshold


cdef class DiscreteFilterKernel(RowFilterKernel):
    pass
