# SPDX-License-Identifier: BSD-3-Clause
from libc.limits cimport UINT_MAX, USHRT_MAX

cdef enum:
    MOST_NARROW = 65535     # largest number of clusters for 16 bits
    OUTSIDE = -1            # label of a row that is noise, kept as the largest number


cdef class KeptLabels:
    """Labels of n_kept rows for each particle, of 16 or 32 bits."""
    cdef readonly Py_ssize_t n_kept
    cdef readonly bint wide
    cdef Py_ssize_t n_particles, capacity
    cdef Py_ssize_t width               # number of bytes of a label
    cdef unsigned char[:, ::1] memory   # (n_particles, capacity * width)

    cdef int reserve(self, Py_ssize_t n_more, bint wide) except -1
    cdef void copy(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil

    cdef inline bint has_room(self, Py_ssize_t n_more, Py_ssize_t k) noexcept nogil:
        """Whether there is room for n_more further rows in k clusters."""
        return self.n_kept + n_more <= self.capacity and (self.wide or k < MOST_NARROW)

    cdef inline Py_ssize_t at(self, Py_ssize_t p, Py_ssize_t m) noexcept nogil:
        """Label of kept row m."""
        cdef unsigned char* labels = &self.memory[p, 0]
        cdef Py_ssize_t k
        if self.wide:
            k = (<unsigned int*>labels)[m]
            return <Py_ssize_t>OUTSIDE if k == UINT_MAX else k
        k = (<unsigned short*>labels)[m]
        return <Py_ssize_t>OUTSIDE if k == USHRT_MAX else k

    cdef inline void set(self, Py_ssize_t p, Py_ssize_t m, Py_ssize_t k) noexcept nogil:
        cdef unsigned char* labels = &self.memory[p, 0]
        if self.wide:
            (<unsigned int*>labels)[m] = <unsigned int>k
        else:
            (<unsigned short*>labels)[m] = <unsigned short>k
