# SPDX-License-Identifier: BSD-3-Clause
# cython: infer_types=True

cdef inline void select(
    const double* x, Py_ssize_t stride, Py_ssize_t* order, Py_ssize_t n, Py_ssize_t middle
) noexcept nogil:
    """Arrange row numbers so that the value at `middle` is the one of the sorted values there, and
    no value before it is above a later one: Hoare's quickselect."""
    cdef Py_ssize_t low = 0, high = n - 1
    while low < high:
        a = x[order[low] * stride]
        b = x[order[(low + high) // 2] * stride]
        c = x[order[high] * stride]
        pivot = max(min(a, b), min(max(a, b), c))
        i = low
        j = high
        while i <= j:
            while x[order[i] * stride] < pivot:
                i += 1
            while x[order[j] * stride] > pivot:
                j -= 1
            if i <= j:
                t = order[i]
                order[i] = order[j]
                order[j] = t
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return
