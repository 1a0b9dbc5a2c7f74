# SPDX-License-Identifier: BSD-3-Clause
"""Reports of a fit to callbacks of scikit-learn (1.9 or later).

The tasks of a fit are its chains, and the tasks of a chain are hundredths of its iterations.
Callbacks are called while all chains wait for each other (`skdpm.chains.Halts`), by the thread
that called `fit`. So they need not be thread-safe, and all chains have the same number of draws.
"""

import functools

from skdpm._typing import F

try:
    from sklearn.callback import CallbackSupportMixin as CallbackSupport
    from sklearn.callback import with_callbacks as _with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupport:
        """Empty base class: this version of scikit-learn has no callbacks."""

    def _with_callbacks(method):
        return method


__all__ = ["CallbackSupport", "FitReports", "with_callbacks"]


def with_callbacks(method: F) -> F:
    """Decorate `fit` as scikit-learn does, if it has callbacks."""
    return _with_callbacks(method)


# Number of reports during a fit.
N_REPORTS = 100


class FitReports:
    """Reports of one fit of X and y to callbacks. `fitted` is a function of a number of draws per
    chain: the fitted attributes of an estimator whose fit ended there, a dict."""

    def __init__(self, estimator, program, X, y, fitted):
        self.estimator = estimator
        self.program = program
        self.given = {"X": X, "y": y}
        self.fitted = fitted
        total = program.n_iterations
        # After warm-up at a draw, so that all chains have the same number of draws.
        parts = {-(-total * part // N_REPORTS) for part in range(1, N_REPORTS + 1)}
        self.points = sorted({self._with_draw(point) for point in parts})
        if not program.halts:
            self.points = [total]

    @classmethod
    def of(cls, estimator, program, X, y, fitted):
        """The reports of a fit, or None if there are no callbacks."""
        if not getattr(estimator, "_skl_callbacks", None):
            return None
        return cls(estimator, program, X, y, fitted)

    def _with_draw(self, point):
        program = self.program
        if not program.halts or point <= program.n_warmup:
            return point
        return program.iteration_of(-(-(point - program.n_warmup) // program.thin))

    def begin(self, chains):
        """Report that the fit begins or continues."""
        n_done = min(chain["iteration"] for chain in chains)
        self.points = [point for point in self.points if point > n_done]
        root = self.estimator._init_callback_context(
            max_subtasks=len(chains), sequential_subtasks=False
        )
        self.root = root.call_on_fit_task_begin(estimator=self.estimator, **self.given)
        self.contexts = []
        for chain in chains:
            context = root.subcontext(
                task_name="chain", task_id=chain["index"], max_subtasks=len(self.points)
            )
            context.call_on_fit_task_begin(estimator=self.estimator, **self.given)
            self.contexts.append(context)

    def next_after(self, n_done):
        """The iteration of the next report after n_done iterations."""
        # Aligned anew, because the end of the warm-up may have been found since.
        return next(point for point in map(self._with_draw, self.points) if point > n_done)

    def tell(self, n_done):
        """Report that all chains have done n_done iterations; return whether a callback wants to
        end the fit."""
        ended = False
        while self.points and self._with_draw(self.points[0]) <= n_done:
            self.points.pop(0)
            for context in self.contexts:
                task = context.subcontext(task_name="iterations")
                task.call_on_fit_task_begin(estimator=self.estimator, **self.given)
                # The attributes of a fit that ends here need all chains, and draws. Few callbacks
                # make them.
                n_draws = self.program.n_draws_after(n_done) if self.program.halts else 0
                is_last = context is self.contexts[-1]
                fitted = functools.partial(self.fitted, n_draws) if is_last and n_draws else None
                ended |= task.call_on_fit_task_end(
                    estimator=self.estimator, reconstruction_attributes=fitted, **self.given
                )
        return ended

    def end(self, chains):
        """Report that the fit is complete."""
        if not self.program.halts:
            self.tell(self.program.n_iterations)
        for context in self.contexts:
            context.call_on_fit_task_end(estimator=self.estimator, **self.given)
        self.root.call_on_fit_task_end(
            estimator=self.estimator, reconstruction_attributes={}, **self.given
        )
