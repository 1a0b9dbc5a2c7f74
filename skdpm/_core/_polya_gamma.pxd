# SPDX-License-Identifier: BSD-3-Clause
"""Polya-Gamma variates PG(1, z), which make a logistic likelihood conditionally Gaussian.

PG(1, z) is J / 4, with J of density cosh(c) exp(-c^2 x / 2) sum_n (-1)^n a_n(x), c = |z| / 2.
Terms fall, so that partial sums bound the density from both sides (Devroye 2009; Polson, Scott &
Windle 2013, section 4). The envelope is the first term, an inverse Gaussian density up to T and
an exponential one beyond; only ratios a_n / a_0 are computed, and none of them overflows.
"""
from libc.math cimport NAN, erfc, exp, fabs, sqrt
from numpy.random cimport bitgen_t
from numpy.random.c_distributions cimport (
    random_standard_exponential,
    random_standard_normal,
)

from skdpm._core._rng cimport uniform


cdef inline double below_cut(double c, double cut, bitgen_t* rng) noexcept nogil:
    """An inverse Gaussian variate of mean 1 / c and shape 1, given that it is at most `cut`."""
    cdef double e, y, x, mean
    # Either loop ends with probability 1: a turn succeeds with more than a fixed chance.
    if c * cut < 1.0:
        while True:
            e = random_standard_exponential(rng)
            if e * e > 2.0 * random_standard_exponential(rng) / cut:
                continue
            x = 1.0 + cut * e
            x = cut / (x * x)
            if uniform(rng) < exp(-0.5 * c * c * x):
                return x
    mean = 1.0 / c
    while True:
        y = random_standard_normal(rng)
        y = mean * y * y
        x = mean * (1.0 + 0.5 * (y - sqrt(y * (4.0 + y))))
        if uniform(rng) * (mean + x) > mean:
            x = mean * (mean / x)
        if x <= cut:
            return x


cdef inline double polya_gamma(double z, bitgen_t* rng) noexcept nogil:
    """Draw from PG(1, z); NaN where |z| is not below 1e100."""
    cdef double cut = 0.64
    cdef double squared_pi = 9.869604401089358
    cdef double c = 0.5 * fabs(z)
    cdef double rate = 0.125 * squared_pi + 0.5 * c * c
    cdef double beyond = 0.0    # of the envelope, the share beyond the cut
    cdef double mass, x, level, decay, total
    cdef Py_ssize_t n
    cdef bint accepted
    if not fabs(z) < 1e100:
        return NAN
    if c < 20.0:    # beyond 20 the share is below 1e-40
        mass = erfc((1.0 - cut * c) / sqrt(2.0 * cut)) + exp(2.0 * c) * erfc(
            (1.0 + cut * c) / sqrt(2.0 * cut)
        )
        beyond = 0.5 * sqrt(squared_pi) / rate * exp(c - rate * cut)
        beyond /= beyond + mass
    while True:     # ends with probability 1: the density is over 0.9 of the envelope
        if uniform(rng) < beyond:
            x = cut + random_standard_exponential(rng) / rate
            decay = 0.5 * squared_pi * x
        else:
            x = below_cut(c, cut, rng)
            decay = 2.0 / x
        level = uniform(rng)
        total = 1.0
        n = 0
        accepted = False
        # Ends: terms fall to 0, with which the sum stays on one side of the level.
        while True:
            n += 1
            total -= (2 * n + 1) * exp(-decay * n * (n + 1))
            if level <= total:
                accepted = True
                break
            n += 1
            total += (2 * n + 1) * exp(-decay * n * (n + 1))
            if level >= total:
                break
        if accepted:
            return 0.25 * x
