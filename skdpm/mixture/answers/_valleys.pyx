# SPDX-License-Identifier: BSD-3-Clause
"""Evidence of rows for a valley of the density between two components.

On the line that separates the components a and b best, their rows have a density

    f(t) = p N(t; t_a, s_a^2) + (1 - p) N(t; t_b, s_b^2),    p = n_a / (n_a + n_b).

Let g be the unimodal density with the mode of f that is closest to f (least Kullback-Leibler
divergence from f to g). It is constant where f has its valley and on the adjoining slopes, and
equals f elsewhere. The evidence is the log of the likelihood ratio of f and g,

    sum over the rows of a and b of log f(t_i) / g(t_i).
"""
from libc.math cimport INFINITY, exp, log

from skdpm._core._memory cimport expect_shape

cdef enum:
    N_POINTS = 49           # at which the density of each component is evaluated
    N_NODES = 2 * N_POINTS

# Standard deviations of a component that its points cover.
cdef double REACH = 3.0

# Valleys that are not deeper than this (natural logarithm) are rounding.
cdef double SHALLOWEST = 1e-3


cdef void antitonic(
    const double* f, const double* widths, double* g, Py_ssize_t first, Py_ssize_t step,
    Py_ssize_t n
) noexcept nogil:
    """The decreasing sequence closest to f[first], f[first + step], ..., n values with weights
    `widths`: adjacent violators are pooled."""
    cdef double[N_NODES] values, weights
    cdef Py_ssize_t[N_NODES] counts
    cdef double total
    cdef Py_ssize_t i, j, _k
    cdef Py_ssize_t m = 0
    for i in range(n):
        values[m] = f[first + i * step]
        weights[m] = widths[first + i * step]
        counts[m] = 1
        m += 1
        while m > 1 and values[m - 1] > values[m - 2]:
            total = weights[m - 2] + weights[m - 1]
            values[m - 2] = (
                values[m - 2] * weights[m - 2] + values[m - 1] * weights[m - 1]
            ) / total
            weights[m - 2] = total
            counts[m - 2] += counts[m - 1]
            m -= 1
    i = 0
    for j in range(m):
        for _k in range(counts[j]):
            g[first + i * step] = values[j]
            i += 1


cdef class Line:
    """Two normal densities on a line, t_a <= t_b, at the nodes of a grid.

    The grid is fine near the narrower one, however much the widths differ.
    """
    cdef double[N_NODES] nodes, ratio
    cdef double depth

    cdef void place(
        self, double t_a, double s_a, double t_b, double s_b, double p
    ) noexcept nogil:
        """Compute the depth of the valley, and log f / g at the nodes if there is one."""
        cdef double[N_NODES] f, g, widths
        cdef double u, v, x, y
        cdef Py_ssize_t i = 0
        cdef Py_ssize_t j = 0
        cdef Py_ssize_t k, low, top
        cdef Py_ssize_t first = -1      # nodes within t_a, ..., t_b
        cdef Py_ssize_t last = -1
        cdef double step = 2.0 * REACH / (N_POINTS - 1)
        for k in range(N_NODES):
            x = t_a + s_a * (i * step - REACH) if i < N_POINTS else INFINITY
            y = t_b + s_b * (j * step - REACH) if j < N_POINTS else INFINITY
            if x <= y:
                i += 1
            else:
                x = y
                j += 1
            self.nodes[k] = x
            u = (x - t_a) / s_a
            v = (x - t_b) / s_b
            f[k] = p / s_a * exp(-0.5 * u * u) + (1.0 - p) / s_b * exp(-0.5 * v * v)
            if first < 0 and x >= t_a:
                first = k
            if x <= t_b:
                last = k
        low, top = first, 0
        for k in range(first, last + 1):
            if f[k] < f[low]:
                low = k
        x = f[0]
        for k in range(low + 1):
            x = max(x, f[k])
        y = f[N_NODES - 1]
        for k in range(low, N_NODES):
            y = max(y, f[k])
        self.depth = log(min(x, y) / f[low])
        if not self.depth > SHALLOWEST:
            self.depth = 0.0
            return
        for k in range(N_NODES):
            x = self.nodes[k - 1] if k > 0 else self.nodes[k]
            y = self.nodes[k + 1] if k < N_NODES - 1 else self.nodes[k]
            widths[k] = max(0.5 * (y - x), 1e-300)
            if f[k] > f[top]:
                top = k
        antitonic(f, widths, g, top, 1, N_NODES - top)
        antitonic(f, widths, g, top, -1, top + 1)
        for k in range(N_NODES):
            self.ratio[k] = log(f[k] / g[k])

    cdef double evidence_of(
        self, const double[:, ::1] rows, Py_ssize_t first, Py_ssize_t stop,
        const double* direction
    ) noexcept nogil:
        """Sum of log f / g over rows, linear between the nodes, 0 beyond them."""
        cdef Py_ssize_t d, i, low, middle, high
        cdef double t, share
        cdef double total = 0.0
        for i in range(first, stop):
            t = 0.0
            for d in range(rows.shape[1]):
                t += rows[i, d] * direction[d]
            if not self.nodes[0] < t < self.nodes[N_NODES - 1]:
                continue
            low, high = 0, N_NODES - 1
            while high - low > 1:
                middle = (low + high) // 2
                if self.nodes[middle] <= t:
                    low = middle
                else:
                    high = middle
            share = (t - self.nodes[low]) / (self.nodes[high] - self.nodes[low])
            total += (1.0 - share) * self.ratio[low] + share * self.ratio[high]
        return total


def valleys(
    const double[:, ::1] rows,
    const Py_ssize_t[::1] bounds,
    const Py_ssize_t[:, ::1] pairs,
    const double[:, ::1] directions,
    const double[:, ::1] places,
    const double[:, ::1] deviations,
    double[::1] depth,
    double[::1] evidence,
):
    """Fill depth and evidence of the valleys between pairs of components.

    - `rows`: (n_rows, n_features). Rows by component.
    - `bounds`: (n_components + 1,). Position of the first row of each component, and the number of
      rows.
    - `pairs`: (n_pairs, 2). Two components.
    - `directions`: (n_pairs, n_features). Directions of the lines, on which the first component is
      left of the second.
    - `places`, `deviations`: (n_pairs, 2). Means and standard deviations of the two components on
      the line.
    - `depth`: (n_pairs,). Output: log of the ratio of the lower peak to the bottom of the valley;
      0 without one.
    - `evidence`: (n_pairs,). Output: evidence in nats; 0 without a valley.
    """
    cdef Line line = Line()
    cdef Py_ssize_t a, b, m
    cdef Py_ssize_t n_pairs = pairs.shape[0]
    cdef double n_a, n_b
    expect_shape("pairs", pairs, (n_pairs, 2))
    expect_shape("directions", directions, (n_pairs, rows.shape[1]))
    expect_shape("places", places, (n_pairs, 2))
    expect_shape("deviations", deviations, (n_pairs, 2))
    expect_shape("depth", depth, (n_pairs,))
    expect_shape("evidence", evidence, (n_pairs,))
    with nogil:
        for m in range(n_pairs):
            a, b = pairs[m, 0], pairs[m, 1]
            n_a, n_b = bounds[a + 1] - bounds[a], bounds[b + 1] - bounds[b]
            line.place(
                places[m, 0], deviations[m, 0], places[m, 1], deviations[m, 1], n_a / (n_a + n_b)
            )
            depth[m] = line.depth
            evidence[m] = 0.0
            if line.depth > 0.0:
                evidence[m] = line.evidence_of(rows, bounds[a], bounds[a + 1], &directions[m, 0])
                evidence[m] += line.evidence_of(rows, bounds[b], bounds[b + 1], &directions[m, 0])
