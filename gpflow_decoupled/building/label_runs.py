"""Short runs of least squares on labels and counts, for the choice of a kernel."""

# Sites of 3,000 rows take longer to find than a comparison may. Least squares needs none, and a row
# is left out exactly. Its values of f are off by a factor, which the likelihood finds; then kernels
# are compared by its log densities. Classes are trained so in any case.

from __future__ import annotations

__all__ = ["LabelRun", "LabelRuns", "started"]

from collections.abc import Sequence
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from scipy.optimize import minimize

from ..covariances.mixed import kernel_of
from ..diagnostics import lengthscale_factor, values_of
from ..likelihoods.log_densities import observation_log_density
from ..models.neighbours import GaussianNNGP, LabelNNGP
from ..optimizers.neighbours import LabelRounds, NeighbourRounds

_ROWS, _EVALUATIONS, _NEIGHBOURS, _JUDGING_NEIGHBOURS = 2000, 20, 30, 64
_NOISE, _LEAST_NOISE = 0.1, 0.001
"""Variances of the targets, whose own is one: at the start, and at least."""
_LARGEST = 10.0
"""Of the logarithms of a and b."""
_TRIALS = 80
"""Of factor, offset and share of the variances."""
_LOWEST = -10.0
"""Least nats of a row, which would outvote a thousand others."""


class LabelRun(NamedTuple):
    """A kernel that was trained."""

    model: GaussianNNGP | LabelNNGP
    """Of the targets, or of classes."""
    scores: tf.Tensor
    """Log densities of left-out rows [B] by the likelihood, in nats, at least -10 each."""

    @property
    def best(self) -> float:
        """The mean of the scores."""
        return float(np.mean(self.scores))


class LabelRuns:
    """Trains kernels by least squares, and judges them by the likelihood of left-out labels.

        t(y) = g(x) + e,   f(x) = c + a g(x),   p(y | x) = int p(y | f) N(f; c + a m, b v) df

    with m and v of g from the other rows. Targets t are labels of two classes, or log(y + mean(y) /
    2) where no y is negative, standardised; a, b and c are the ones of the best mean log density.
    More classes have a short run of `LabelRounds`.

    :param Y: labels, counts or other observations [N, P] of one latent function each, or of
        classes [N, 1].
    :param likelihood: of Y.
    :param categories: columns of X that are codes.

    Cost of a run: of a short run of `NeighbourRounds`, whatever the number of classes. Example::

        runs = LabelRuns(Y, CategoricalLogit(10))
        print(runs.run(gpflow.kernels.Matern12, X).best)
    """

    def __init__(
        self,
        Y: np.ndarray,
        likelihood: Likelihood,
        seed: int = 0,
        categories: Sequence[int] = (),
    ) -> None:
        self.Y, self.likelihood, self.seed, self.categories = Y, likelihood, seed, categories
        values, self._steep = values_of(Y, likelihood)
        self._mean, deviations = np.mean(values, axis=0), np.std(values, axis=0)
        self._spread = float(max(np.sqrt(np.mean(deviations**2)), np.finfo(float).tiny))
        self.targets = (values - self._mean) / self._spread
        """t, of mean zero, [N, P]."""

    def run(
        self, kind: type[Kernel], inputs: np.ndarray, deadline: float = float("inf")
    ) -> LabelRun:
        """Train a kernel, and judge it.

        :param inputs: X [N, D] standardised, or another form of it.
        :param deadline: a value of `time.perf_counter` after which no iteration begins.
        """
        kernel = started(kind, inputs, self.targets, self.seed, self.categories)
        numbers = {
            "num_neighbours": _NEIGHBOURS, "prediction_neighbours": _JUDGING_NEIGHBOURS,
        }  # fmt: skip
        if LabelNNGP.serves(self.likelihood):
            return self._of_classes(
                LabelNNGP((inputs, self.Y), kernel, self.likelihood, **numbers), deadline
            )
        noise = gpflow.likelihoods.Gaussian(_NOISE, variance_lower_bound=_LEAST_NOISE)
        model = GaussianNNGP((inputs, self.targets), kernel, noise, **numbers)
        rounds = NeighbourRounds(model, rows=_ROWS, evaluations=_EVALUATIONS, seed=self.seed)
        rounds.start(deadline)
        rounds.run(0, deadline)
        return LabelRun(model, self._scores(model, rounds.judges))

    def _of_classes(self, model: LabelNNGP, deadline: float) -> LabelRun:
        rounds = LabelRounds(model, rows=_ROWS, evaluations=_EVALUATIONS, seed=self.seed)
        rounds.start(deadline)
        rounds.run(0, deadline)
        return LabelRun(model, tf.maximum(rounds.scores, _LOWEST))

    def _scores(self, model: GaussianNNGP, rows: np.ndarray) -> tf.Tensor:
        """The log densities [B] of left-out rows at the best a, b and c."""
        found = model.leave_one_out(rows)
        variance = np.maximum(found.variance - model.likelihood.variance.numpy(), 0.0)
        X, Y = tf.gather(model.data[0], rows), tf.constant(self.Y[rows], model.data[0].dtype)

        def scores(x: np.ndarray) -> np.ndarray:
            a, b = np.exp(np.clip(x[:2], -_LARGEST, _LARGEST))
            moments = (x[2:] + a * found.mean, b * variance)
            m, v = (tf.constant(part, X.dtype) for part in moments)
            return np.maximum(observation_log_density(self.likelihood, X, m, v, Y), _LOWEST)

        a = np.log(self._steep * self._spread)
        start = np.array([a, 2.0 * a, *(self._steep * self._mean)])
        best = minimize(
            lambda x: -float(np.mean(scores(x))),
            start,
            method="Nelder-Mead",
            options={
                "maxfev": _TRIALS,
                "initial_simplex": start + np.eye(len(start) + 1, len(start), -1),
                "xatol": 0.02,
                "fatol": 1e-4,
            },
        )
        return tf.constant(scores(best.x))


def started(
    kind: type[Kernel],
    X: np.ndarray,
    values: np.ndarray,
    seed: int = 0,
    categories: Sequence[int] = (),
) -> Kernel:
    """A kernel of standardised X [N, D] at lengthscales to start from: sqrt(D), or less where
    values [N, P] then have more evidence.

    :param categories: columns of codes.
    """
    kernel = kernel_of(kind, np.full(X.shape[1], np.sqrt(X.shape[1])), categories)
    kernel.lengthscales.assign(kernel.lengthscales * lengthscale_factor(kernel, X, values, seed))
    return kernel
