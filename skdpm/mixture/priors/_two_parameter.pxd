# SPDX-License-Identifier: BSD-3-Clause
from skdpm.mixture.priors._base cimport PartitionPrior


cdef class TwoParameterPrior(PartitionPrior):
    """Pitman's two-parameter family, V_{n,k+1} / V_{n,k} = A + k sigma whatever n."""


cdef class FiniteDirichletPrior(TwoParameterPrior):
    """Finite symmetric Dirichlet: sigma = -a, a = concentration / n_components."""
    cdef readonly Py_ssize_t n_components
