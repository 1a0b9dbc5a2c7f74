# SPDX-License-Identifier: BSD-3-Clause
from numpy.random cimport bitgen_t

from skdpm.mixture._state cimport MixtureState


cdef int gibbs_sweep(MixtureState state, bitgen_t* rng) except -1 nogil
