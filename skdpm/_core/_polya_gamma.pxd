# SPDX-License-Identifier: BSD-3-Clause
# cython: infer_types=True
"""Polya-Gamma variates PG(1, z), which make a logistic likelihood conditionally Gaussian.

PG(1, z) is the law of J / 4, where J has the density cosh(c) exp(-c^2 x / 2) sum_n (-1)^n a_n(x)
with c = |z| / 2. The terms decrease, so partial sums bound the density from both sides (Devroye
2009; Polson, Scott & Windle 2013, section 4). The envelope is the first term: an inverse Gaussian
density up to T and an exponential one beyond. Only ratios a_n / a_0 are computed; none overflows.
"""
from libc.math cimport NAN, erfc, exp, fabs, sqrt

from skdpm._core._rng cimport (
    bitgen_t, random_standard_exponential, random_standard_normal, uniform,
)

cdef enum:
    N_SHARES = 162
    PER_UNIT = 8    # entries per unit of c; the table goes from 0 to 20


cdef extern from *:
    """
    #define SKDPM_POLYA_GAMMA_CUT 0.64
    """
    double CUT "SKDPM_POLYA_GAMMA_CUT"  # T


cdef inline double below_cut(double c, bitgen_t* rng) noexcept nogil:
    """An inverse Gaussian variate of mean 1 / c and shape 1, given that it is at most CUT."""
    # Both loops end with probability 1: the probability of success in a turn has a lower bound.
    if c * CUT < 1.0:
        while True:
            e = random_standard_exponential(rng)
            if e * e > 2.0 * random_standard_exponential(rng) / CUT:
                continue
            x = 1.0 + CUT * e
            x = CUT / (x * x)
            if uniform(rng) < exp(-0.5 * c * c * x):
                return x
    mean = 1.0 / c
    while True:
        y = random_standard_normal(rng)
        y = mean * y * y
        x = mean * (1.0 + 0.5 * (y - sqrt(y * (4.0 + y))))
        if uniform(rng) * (mean + x) > mean:
            x = mean * (mean / x)
        if x <= CUT:
            return x


cdef inline double share_beyond(double c) noexcept nogil:
    """Share of the envelope beyond the cut."""
    cdef double squared_pi = 9.869604401089358
    cdef double rate = 0.125 * squared_pi + 0.5 * c * c
    cdef double beyond = 0.5 * sqrt(squared_pi) / rate * exp(c - rate * CUT)
    return beyond / (
        beyond + erfc((1.0 - CUT * c) / sqrt(2.0 * CUT))
        + exp(2.0 * c) * erfc((1.0 + CUT * c) / sqrt(2.0 * CUT))
    )


cdef inline void tabulate_shares(double* shares) noexcept nogil:
    """Fill the table of N_SHARES numbers for `polya_gamma`."""
    cdef Py_ssize_t j
    for j in range(N_SHARES):
        shares[j] = share_beyond(<double>j / PER_UNIT)
    shares[N_SHARES - 1] = 0.0      # shares for larger c are below 1e-40


cdef inline bint below_density(double level, double decay) noexcept nogil:
    """Whether a level, in units of the first term, is below the sum of all terms."""
    cdef double total = 1.0
    cdef Py_ssize_t n = 0
    # Ends: terms decrease to 0, so the partial sums converge to one side of the level.
    while True:
        n += 1
        total -= (2 * n + 1) * exp(-decay * n * (n + 1))
        if level <= total:
            return True
        n += 1
        total += (2 * n + 1) * exp(-decay * n * (n + 1))
        if level >= total:
            return False


cdef inline double polya_gamma(double z, const double* shares, bitgen_t* rng) noexcept nogil:
    """Draw from PG(1, z); NaN unless |z| is below 1e100.

    Shares decrease with c, so the two nearest entries of the table mostly determine on which side
    of the cut the draw is. Most levels are below the smallest sum of two terms.
    """
    cdef double squared_pi = 9.869604401089358
    cdef double c = 0.5 * fabs(z)
    if not fabs(z) < 1e100:
        return NAN
    n = <Py_ssize_t>(c * PER_UNIT) if c * PER_UNIT < N_SHARES - 2 else N_SHARES - 2
    while True:     # ends with probability 1: the density is over 0.9 of the envelope
        u = uniform(rng)
        if u < shares[n + 1] or (u < shares[n] and u < share_beyond(c)):
            x = CUT + random_standard_exponential(rng) / (0.125 * squared_pi + 0.5 * c * c)
            decay = 0.5 * squared_pi * x
        else:
            x = below_cut(c, rng)
            decay = 2.0 / x
        level = uniform(rng)
        # 3 exp(-2 decay) is at most 0.0058, at the cut.
        if level <= 0.994 or below_density(level, decay):
            return 0.25 * x
