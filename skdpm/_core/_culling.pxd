# SPDX-License-Identifier: BSD-3-Clause
# cython: infer_types=True
"""Culling: skip clusters that are too far from a box of rows to matter.

Three loops evaluate only near clusters: Gibbs sweeps (`samplers/_gibbs`), draws of the labels of a
block (`blocks/_visit`) and densities of rows (`state/_scoring`). They share this file.

A box is 2 D doubles: the coordinates of its centre, then half its widths, rounded up. For all rows
in a box, a kernel bounds the log weight of each cluster from above (`log_predictive_bound_many`,
`log_density_bound_many`). `part_near` separates clusters that may matter from those that cannot,
and `log_sum_far` bounds the sum of the weights of the latter.

**Bounds may be loose, but never wrong.** Let C be the sum of a row's weights over the clusters
that are evaluated, and R at least the sum over all others. Clusters have an order. A uniform u
draws cluster j if the sum of the weights before j is at most u times the sum of all, and with the
weight of j added is above it. The sum of all is between C and C + R, and clusters not evaluated
add between 0 and R to the sum before any cluster. So u draws j, whatever the others weigh, if

    C_1 + ... + C_{j-1} + R <= u C    and    u (C + R) < C_1 + ... + C_j,

where the first cluster of the order needs only the second condition. If no cluster satisfies
these, more clusters are evaluated, in the end all, with the same u. So every draw is the one that
all weights give. A sum of densities leaves out terms below a limit that depends only on the row;
a cluster whose bound is below the limit has such a term. A loose bound therefore costs time but
changes no result. A bound that does not hold makes results wrong without a message.
"""
from libc.math cimport INFINITY, exp, fabs, log

cdef extern from *:
    """
    /* Allowances for rounding in a bound, much larger than rounding errors and too small to cost
     * time: factors for the parts of a distance, and a share of the terms of a logarithm. */
    #define SKDPM_BELOW (1.0 - 1e-9)
    #define SKDPM_ABOVE (1.0 + 1e-9)
    #define SKDPM_SLACK 1e-11
    """
    const double BELOW "SKDPM_BELOW"
    const double ABOVE "SKDPM_ABOVE"
    const double SLACK "SKDPM_SLACK"


cdef enum:
    MOST_PAUSE = 63


cdef struct Backoff:
    # If bounds do not pay, the next 1, 3, 7, ... MOST_PAUSE visits do without.
    unsigned char pause     # remaining visits without bounds
    unsigned char last      # length of the last pause; 0 after a visit whose bounds paid


cdef inline bint skips_bounds(Backoff* backoff) noexcept nogil:
    """Count a visit; return whether it does without bounds."""
    if backoff.pause == 0:
        return False
    backoff.pause -= 1
    return True


cdef inline bint bounds_pay(Backoff* backoff, long long work, long long plain) noexcept nogil:
    """Return whether bounds saved a quarter of the work. If not, pause."""
    if 4 * work <= 3 * plain:
        backoff.last = 0
        return True
    backoff.last = min(2 * backoff.last + 1, MOST_PAUSE)
    backoff.pause = backoff.last
    return False


cdef inline Py_ssize_t part_near(
    const double* upper, Py_ssize_t n, double limit,    # IN (n,)
    Py_ssize_t* order                                   # OUT (n,)
) noexcept nogil:
    """Order the positions of bounds: first, ascending, those not below the limit; their number is
    returned. NaN is not below it, so its cluster is evaluated and rejected."""
    cdef Py_ssize_t n_near = 0, n_far = 0
    for k in range(n):
        if upper[k] < limit:
            n_far += 1
            order[n - n_far] = k
        else:
            order[n_near] = k
            n_near += 1
    return n_near


cdef inline double log_sum_far(
    const double* upper, const Py_ssize_t* far, Py_ssize_t n_far,   # IN (n_far,): places
    double log_rest
) noexcept nogil:
    """log(exp(log_rest) + sum over far places of exp(upper)), rounded up."""
    cdef double top = log_rest
    for j in range(n_far):
        top = max(top, upper[far[j]])
    if n_far == 0 or fabs(top) == INFINITY:
        return top
    total = exp(log_rest - top)
    for j in range(n_far):
        # Terms below e^-60 = 8.8e-27 count as 1e-26, which bounds them.
        total += exp(upper[far[j]] - top) if upper[far[j]] > top - 60.0 else 1e-26
    return top + log(total) + SLACK * (1.0 + fabs(top))


cdef inline void join_boxes(
    const double* boxes, Py_ssize_t n_boxes, Py_ssize_t n_features,     # IN (n_boxes, 2, D)
    double* out                                                         # OUT (2 D,)
) noexcept nogil:
    """The smallest box around some boxes, rounded up."""
    cdef const double* box
    for d in range(n_features):
        low = INFINITY
        high = -INFINITY
        for t in range(n_boxes):
            box = boxes + t * 2 * n_features
            low = min(low, box[d] - box[n_features + d])
            high = max(high, box[d] + box[n_features + d])
        middle = 0.5 * low + 0.5 * high
        out[d] = middle
        out[n_features + d] = (high - middle) + 1e-14 * (fabs(high) + fabs(low))
