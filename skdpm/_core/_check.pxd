# SPDX-License-Identifier: BSD-3-Clause
cdef extern from "check.h" nogil:
    void SKDPM_CHECK(bint condition, const char* message)
