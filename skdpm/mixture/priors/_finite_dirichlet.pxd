# SPDX-License-Identifier: BSD-3-Clause
from skdpm.mixture.priors._two_parameter cimport TwoParameterPrior


cdef class FiniteDirichletPrior(TwoParameterPrior):
    """Finite symmetric Dirichlet: sigma = -a, a = concentration / n_components."""
    cdef readonly Py_ssize_t n_components
