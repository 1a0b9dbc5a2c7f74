# SPDX-License-Identifier: BSD-3-Clause
"""Callbacks of scikit-learn, from 1.9 on: what a fit tells them.

The tasks of a fit are its chains, and those of a chain the hundredths of its iterations. Callbacks
are called while all chains wait for each other (`skdpm.chains.Halts`), from the thread that called
`fit`: they need not be safe in threads, and see chains that have equally many draws.
"""

try:
    from sklearn.callback import CallbackSupportMixin as CallbackSupport
    from sklearn.callback import with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupport:
        """Nothing: this version of scikit-learn has no callbacks."""

    def with_callbacks(method):
        """Leave a method as it is."""
        return method


__all__ = ["CallbackSupport", "FitReports", "with_callbacks"]

# Parts of a chain's iterations after which callbacks are called.
N_REPORTS = 100


class FitReports:
    """What callbacks are told of one fit.

    Parameters
    ----------
    estimator : ChainEstimator
    program : ChainProgram
    X, y : object
        As they were given to `fit`.
    fitted : callable
        Of a number of draws of each chain, gives the attributes of an estimator whose fit ended
        there, as a dict.
    """

    def __init__(self, estimator, program, X, y, fitted):
        self.estimator = estimator
        self.program = program
        self.given = {"X": X, "y": y}
        self.fitted = fitted
        total = program.n_iterations
        # After warm-up, with a draw, so that chains which end there have equally many.
        parts = {-(-total * part // N_REPORTS) for part in range(1, N_REPORTS + 1)}
        self.points = sorted({self._with_draw(point) for point in parts})
        if not program.halts:
            self.points = [total]

    @classmethod
    def of(cls, estimator, program, X, y, fitted):
        """The reports of a fit, or None where there is no callback to tell."""
        if not getattr(estimator, "_skl_callbacks", None):
            return None
        return cls(estimator, program, X, y, fitted)

    def _with_draw(self, point):
        program = self.program
        if not program.halts or point <= program.n_warmup:
            return point
        return program.iteration_of(-(-(point - program.n_warmup) // program.thin))

    def begin(self, chains):
        """The fit begins, or goes on."""
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
        """The iteration of the next report, after those that are done."""
        return next(point for point in self.points if point > n_done)

    def tell(self, n_done):
        """All chains have done so many iterations; whether a callback asks for an end."""
        ended = False
        while self.points and self.points[0] <= n_done:
            self.points.pop(0)
            for context in self.contexts:
                task = context.subcontext(task_name="iterations")
                task.call_on_fit_task_begin(estimator=self.estimator, **self.given)
                # Only with the last chain is there a fit that could have ended here.
                fitted = None
                if context is self.contexts[-1]:
                    fitted = self._fitted_after(n_done)
                ended |= task.call_on_fit_task_end(
                    estimator=self.estimator, reconstruction_attributes=fitted, **self.given
                )
        return ended

    def _fitted_after(self, n_done):
        """What makes a fitted estimator, where there are draws to make it from: called by those
        callbacks alone that ask for one."""
        n_draws = self.program.n_draws_after(n_done)
        if not self.program.halts or n_draws == 0:
            return None
        return lambda: self.fitted(n_draws)

    def end(self, chains):
        """The fit is done, and its estimator fitted."""
        if not self.program.halts:
            self.tell(self.program.n_iterations)
        for context in self.contexts:
            context.call_on_fit_task_end(estimator=self.estimator, **self.given)
        self.root.call_on_fit_task_end(
            estimator=self.estimator, reconstruction_attributes={}, **self.given
        )
