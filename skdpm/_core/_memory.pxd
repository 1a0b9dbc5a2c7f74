# SPDX-License-Identifier: BSD-3-Clause
"""Memory of kernels, which own it: `free` it in `__dealloc__`."""
from libc.stdlib cimport realloc


cdef inline void* resized(void* memory, Py_ssize_t n, size_t size) except NULL:
    """`memory`, NULL for none yet, with room for n entries; what fits of its contents stays."""
    cdef void* larger = realloc(memory, max(n * size, 1))
    if larger == NULL:
        raise MemoryError
    return larger
