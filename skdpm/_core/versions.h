/* SPDX-License-Identifier: BSD-3-Clause
 * SKDPM_KERNEL begins a function with versions by instruction set, among which the loader chooses;
 * they need glibc's. Without fused operations and sums along registers, all give the same bits. */
#ifndef SKDPM_VERSIONS_H
#define SKDPM_VERSIONS_H

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) \
    && !defined(__SANITIZE_ADDRESS__)
#define SKDPM_VERSIONS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SKDPM_VERSIONS
#endif
#if defined(__GNUC__)
#define SKDPM_UNUSED __attribute__((unused))
#define SKDPM_INLINE static inline __attribute__((always_inline))
#else
#define SKDPM_UNUSED
#define SKDPM_INLINE static inline
#endif
#define SKDPM_KERNEL SKDPM_VERSIONS SKDPM_UNUSED static

#endif
