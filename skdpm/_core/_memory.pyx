# SPDX-License-Identifier: BSD-3-Clause
from libc.stdlib cimport free, realloc

from skdpm._core._check cimport SKDPM_CHECK


cdef class MemoryOwner:

    def __dealloc__(self):
        for m in range(self._n_owned):
            free(self._owned[m])
        free(self._owned)

    cdef void* resized(self, void* memory, Py_ssize_t n, size_t size) except NULL:
        """`memory` of this object (NULL: new) with room for n entries. It keeps what fits."""
        cdef Py_ssize_t m = 0
        while m < self._n_owned and self._owned[m] != memory:
            m += 1
        if m == self._n_owned:
            SKDPM_CHECK(memory == NULL, "memory of another object")
            larger = realloc(self._owned, (m + 1) * sizeof(void*))
            if larger == NULL:
                raise MemoryError
            self._owned = <void**>larger
            self._owned[m] = NULL
            self._n_owned += 1
        larger = realloc(self._owned[m], max(n * size, 1))
        if larger == NULL:
            raise MemoryError(f"no memory for {n} numbers of {size} bytes")
        self._owned[m] = larger
        return larger

    cdef void* freed(self, void* memory) noexcept:
        """Free memory of this object. Returns NULL."""
        for m in range(self._n_owned):
            if self._owned[m] == memory:
                free(memory)
                self._owned[m] = NULL
        return NULL
