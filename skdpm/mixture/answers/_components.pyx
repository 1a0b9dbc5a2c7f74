# SPDX-License-Identifier: BSD-3-Clause
"""Normal laws of components: the most probable one of a point, and valleys between two of them.

On the line that separates the components a and b best, their rows have a density

    f(t) = p N(t; t_a, s_a^2) + (1 - p) N(t; t_b, s_b^2),    p = n_a / (n_a + n_b).

Let g be the unimodal density with the mode of f that is closest to f (least Kullback-Leibler
divergence from f to g). It is constant where f has its valley and on the adjoining slopes, and
equals f elsewhere. The evidence is the log of the likelihood ratio of f and g,

    sum over the rows of a and b of log f(t_i) / g(t_i).
"""
from libc.math cimport INFINITY, exp, log, sqrt

import numpy as np

from skdpm._core._cholesky cimport cholesky, dot, draw_normal, solve_squared
from skdpm._core._memory cimport expect_shape

cdef enum:
    N_POINTS = 49           # at which the density of each component is evaluated
    N_NODES = 2 * N_POINTS

# Standard deviations of a component that its points cover.
cdef double REACH = 3.0

# Valleys that are not deeper than this (natural logarithm) are rounding.
cdef double SHALLOWEST = 1e-3

# Nats below the largest density from which another one does not count in a sum.
cdef double NEGLIGIBLE = 36.0


cdef void antitonic(
    const double* f, const double* widths, double* g, Py_ssize_t first, Py_ssize_t step,
    Py_ssize_t n
) noexcept nogil:
    """The decreasing sequence closest to f[first], f[first + step], ..., n values with weights
    `widths`: adjacent violators are pooled."""
    cdef double[N_NODES] values, weights
    cdef Py_ssize_t[N_NODES] counts
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

    cdef void place(self, double t_a, double s_a, double t_b, double s_b, double p) noexcept nogil:
        """Compute the depth of the valley, and log f / g at the nodes if there is one."""
        cdef double[N_NODES] f, g, widths
        cdef Py_ssize_t i = 0, j = 0
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
        self, const double[:, ::1] rows, Py_ssize_t first, Py_ssize_t stop, const double* direction
    ) noexcept nogil:
        """Sum of log f / g over rows, linear between the nodes, 0 beyond them."""
        cdef Py_ssize_t middle
        cdef double t
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


cdef double variance(const double[:, ::1] covariance, const double[::1] w) noexcept nogil:
    """Variance on the line with direction w."""
    cdef double total = 0.0
    for i in range(w.shape[0]):
        for k in range(w.shape[0]):
            total += w[i] * covariance[i, k] * w[k]
    return total


def valleys(
    const double[:, ::1] rows,
    const Py_ssize_t[::1] bounds,
    const Py_ssize_t[::1] large,
    const double[:, ::1] means,
    const double[:, :, ::1] covariances,
    Py_ssize_t first,
    double farthest,
    double deepest,
    double[:, ::1] depth,
    double[:, ::1] evidence,
    unsigned char[:, ::1] faces,
):
    """Fill depth and evidence of the valleys between pairs of large components.

    - `rows`: (n_rows, n_columns). Rows by component.
    - `bounds`: (n_components + 1,). Position of the first row of each component, and the number of
      rows.
    - `large`: (n_large,). Large components.
    - `means`, `covariances`: (n_components, n_columns), (n_components, n_columns, n_columns).
    - `first`: int. Position in `large` of the first component of the first pair.
    - `farthest`: float. Multiple of the sum of the standard deviations on the line up to which
      means are near each other.
    - `deepest`: float. Depth up to which a valley is shallow.
    - `depth`: (n_first, n_large). Output: log of the ratio of the lower peak to the bottom of the
      valley between a component, from `first` on, and a later one; 0 without a valley. Infinite of
      other pairs, and if the two are far apart.
    - `evidence`: of the same shape. Output: evidence in nats; 0 without a valley.
    - `faces`: of the same shape. Output: whether the valley is shallow, and no third mean of a
      large component is in the ball with the two means as poles, in the metric of the line.
    """
    cdef Line line = Line()
    cdef Py_ssize_t n_columns = rows.shape[1]
    cdef Py_ssize_t n_first = depth.shape[0]
    cdef Py_ssize_t n_large = large.shape[0]
    cdef Py_ssize_t n_components = bounds.shape[0] - 1
    cdef Py_ssize_t p
    cdef double n_a, n_b, log_det
    expect_shape("means", means, (n_components, n_columns))
    expect_shape("covariances", covariances, (n_components, n_columns, n_columns))
    expect_shape("depth", depth, (min(n_first, n_large - first), n_large))
    expect_shape("evidence", evidence, (n_first, n_large))
    expect_shape("faces", faces, (n_first, n_large))
    cdef double[::1] packed = np.empty(n_columns * (n_columns + 1) // 2)
    cdef double[::1] w = np.empty(n_columns)
    cdef double[::1] gap = np.empty(n_columns)
    depth[:] = INFINITY
    evidence[:] = INFINITY
    faces[:] = 0
    with nogil:
        for i in range(n_first):
            a = large[first + i]
            n_a = bounds[a + 1] - bounds[a]
            for j in range(first + i + 1, n_large):
                b = large[j]
                n_b = bounds[b + 1] - bounds[b]
                share = n_b / (n_a + n_b)
                p = 0
                for k in range(n_columns):
                    w[k] = means[b, k] - means[a, k]
                    for c in range(k, n_columns):
                        packed[p] = (1.0 - share) * covariances[a, k, c]
                        packed[p] += share * covariances[b, k, c]
                        p += 1
                if not cholesky(&packed[0], n_columns, &log_det):
                    continue
                draw_normal(&packed[0], n_columns, &w[0], NULL)
                t_a = dot(&means[a, 0], &w[0], n_columns)
                t_b = dot(&means[b, 0], &w[0], n_columns)
                s_a, s_b = sqrt(variance(covariances[a], w)), sqrt(variance(covariances[b], w))
                if not (t_b - t_a <= farthest * (s_a + s_b) and s_a > 0.0 and s_b > 0.0):
                    continue
                line.place(t_a, s_a, t_b, s_b, n_a / (n_a + n_b))
                depth[i, j] = line.depth
                evidence[i, j] = 0.0
                if line.depth > 0.0:
                    evidence[i, j] = line.evidence_of(rows, bounds[a], bounds[a + 1], &w[0])
                    evidence[i, j] += line.evidence_of(rows, bounds[b], bounds[b + 1], &w[0])
                if not 0.0 < line.depth <= deepest:
                    continue
                faces[i, j] = 1
                for k in range(n_large):
                    if large[k] == a or large[k] == b:
                        continue
                    for c in range(n_columns):
                        gap[c] = means[large[k], c] - means[a, c]
                    # Negative if the mean is inside the ball.
                    t_a = -dot(&gap[0], &w[0], n_columns)
                    if t_a + solve_squared(&packed[0], n_columns, &gap[0]) < 0.0:
                        faces[i, j] = 0
                        break


cdef inline double squared_distance(
    const double[:, ::1] points,
    const double[:, ::1] means,
    const double[:, :, ::1] whiteners,
    Py_ssize_t i,
    Py_ssize_t k,
    double room,
) noexcept nogil:
    """Squared Mahalanobis distance of point i, whose missing entries count as 0, from component k,
    or a part of it that is more than `room`."""
    cdef double total = 0.0
    cdef double y
    for j in range(points.shape[1]):
        y = 0.0
        for c in range(j + 1):
            x = points[i, c] if points[i, c] == points[i, c] else 0.0
            y += whiteners[k, j, c] * (x - means[k, c])
        total += y * y
        if not total <= room:
            break
    return total


def most_probable(
    const double[:, ::1] points,
    const double[:, ::1] means,
    const double[:, :, ::1] whiteners,
    const double[::1] heights,
    Py_ssize_t[::1] out,
):
    """Fill the most probable component at each point, the first one of several.

    - `points`: (n_points, n_columns). A missing entry, NaN, counts as 0.
    - `means`, `whiteners`: (n_components, n_columns), (n_components, n_columns, n_columns).
      Whiteners are lower triangular.
    - `heights`: (n_components,). Logs of the weighted densities at the means.
    - `out`: (n_points,). Input and output. The component that is tried first.
    """
    cdef Py_ssize_t n_columns = points.shape[1], n_components = heights.shape[0]
    expect_shape("means", means, (n_components, n_columns))
    expect_shape("whiteners", whiteners, (n_components, n_columns, n_columns))
    expect_shape("out", out, (points.shape[0],))
    with nogil:
        for i in range(points.shape[0]):
            best = -INFINITY
            for trial in range(-1, n_components):
                k = out[i] if trial < 0 else trial
                room = 2.0 * (heights[k] - best)
                total = squared_distance(points, means, whiteners, i, k, room)
                if total <= room:
                    level = heights[k] - 0.5 * total
                    if level > best or (level == best and k < out[i]):
                        best = level
                        out[i] = k


def log_densities(
    const double[:, ::1] points,
    const double[:, ::1] means,
    const double[:, :, ::1] whiteners,
    const double[::1] heights,
):
    """Logs of the weighted sums of the densities at points, (n_points,), up to the term that
    `heights` leave out.

    Arguments are those of `most_probable`. Densities below exp(-NEGLIGIBLE) of the largest one
    before them count as 0.
    """
    cdef Py_ssize_t n_columns = points.shape[1], n_components = heights.shape[0]
    expect_shape("means", means, (n_components, n_columns))
    expect_shape("whiteners", whiteners, (n_components, n_columns, n_columns))
    cdef double[::1] out = np.empty(points.shape[0])
    with nogil:
        for i in range(points.shape[0]):
            best, total = -INFINITY, 0.0
            for k in range(n_components):
                room = 2.0 * (heights[k] - best + NEGLIGIBLE)
                distance = squared_distance(points, means, whiteners, i, k, room)
                if distance <= room:
                    level = heights[k] - 0.5 * distance
                    if level > best:
                        total *= exp(best - level)
                        best = level
                    total += exp(level - best)
            out[i] = best + log(total)
    return np.asarray(out)
