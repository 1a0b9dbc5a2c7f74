# SPDX-License-Identifier: BSD-3-Clause
"""Memory of kernels. Arrays from Python are read without checks of bounds: kernels check their
shapes first."""


cdef class MemoryOwner:
    """Base class of what has raw memory, which is freed with the object."""
    cdef void** _owned
    cdef Py_ssize_t _n_owned

    cdef void* resized(self, void* memory, Py_ssize_t n, size_t size) except NULL
    cdef void* freed(self, void* memory) noexcept


cdef struct Indices:
    # Some items, slots or clusters, which the caller owns.
    const Py_ssize_t* at
    Py_ssize_t n


cdef inline Indices as_indices(const Py_ssize_t* at, Py_ssize_t n) noexcept nogil:
    # `Indices(array, n)` would copy the numbers of an array to where `at` happens to point.
    cdef Indices out
    out.at = at
    out.n = n
    return out


cdef inline int expect_shape(str name, array, tuple shape) except -1:
    """Raise ValueError if an array has another shape than a kernel reads."""
    if tuple(array.shape) != shape:
        raise ValueError(f"{name} has the shape {tuple(array.shape)}, expected {shape}")
