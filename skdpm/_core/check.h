/* SPDX-License-Identifier: BSD-3-Clause
 * SKDPM_CHECK(condition, message): an internal assertion of the kernels. It costs nothing unless the
 * package was built with -Ddebug_checks=true; there a violated invariant ends the process at once,
 * before a bad index can turn into a wrong number. */
#ifndef SKDPM_CHECK_H
#define SKDPM_CHECK_H

#ifdef SKDPM_DEBUG_CHECKS
#include <stdio.h>
#include <stdlib.h>
#define SKDPM_CHECK(condition, message)                                                  \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "skdpm: %s (%s:%d)\n", message, __FILE__, __LINE__);         \
            abort();                                                                     \
        }                                                                                \
    } while (0)
#else
#define SKDPM_CHECK(condition, message) ((void)0)
#endif

#endif
