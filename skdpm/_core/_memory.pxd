# SPDX-License-Identifier: BSD-3-Clause
"""Memory of kernels. The kernel owns it and must `free` it in `__dealloc__`. Arrays from Python
are read without checks of bounds: kernels check their shapes first."""
from libc.stdlib cimport realloc


cdef inline void* resized(void* memory, Py_ssize_t n, size_t size) except NULL:
    """`memory` (or NULL) with room for n entries. Its contents stay as far as they fit."""
    cdef void* larger = realloc(memory, max(n * size, 1))
    if larger == NULL:
        raise MemoryError
    return larger


cdef inline int expect_shape(str name, array, tuple shape) except -1:
    """Raise ValueError if an array has another shape than a kernel reads."""
    if tuple(array.shape) != shape:
        raise ValueError(f"{name} has the shape {tuple(array.shape)}, expected {shape}")
    return 0
