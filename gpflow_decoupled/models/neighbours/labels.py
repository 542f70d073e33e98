"""Classes: least squares on their indicators, as sure as left-out labels bear out."""

from __future__ import annotations

__all__ = ["LabelNNGP"]

from typing import Any, ClassVar

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.utilities import positive

from ...bases.parts.atomic import all_or_nothing, one_at_a_time
from ...likelihoods import CategoricalLogit
from ..checks import as_observations
from .factors import Factors, scaled
from .gaussian import GaussianNNGP
from .label_densities import log_densities_of_labels
from .latent import LatentNNGP
from .row_checks import arrays_of

_NOISE, _LEAST_NOISE = 0.1, 0.001
"""Variances of the targets, whose own is about one: at the start, and at least. Labels that follow
a rule show no noise, and a smooth kernel that interpolated 26 classes lost all digits."""
_STEEP = 8.0
"""Of f over the indicator of a class, at the start."""


class LabelNNGP(LatentNNGP):
    """An `NNGP` for classes: least-squares classification (Rasmussen & Williams 2006, section 6.5).

    Targets t stand for the labels, and a `GaussianNNGP` (`gaussian`) predicts them. Its mean m and
    variance v given the nearest rows become moments of f by two factors:

        t_ic = ([y_i = c] - 1 / C) C / sqrt(C - 1),     t_ic = g_c(x_i) + e_ic
        p(y | x) = int softmax_y(f) N(f; a m, b v) df

    A softmax takes little from each label, least squares nearly all. The C functions g_c have one
    covariance matrix, so a row costs one factorisation whatever C is, and is left out exactly.
    Kernel, noise, a (`mean_factor`) and b (`variance_factor`) predict left-out rows best:
    `training_loss` is minus the sum of their log densities, so that wrong noise of labels costs
    little. It is no bound of the evidence. For sites make a `SiteNNGP`.

    Parameters as in `NNGP`; Y is [N, 1], the mean function is added to g. Cost: N (m^3 / 3 + m^2 D)
    for all rows once. Example::

        likelihood = gpflow_decoupled.likelihoods.CategoricalLogit(10)
        model = NNGP((X, Y), kernel, likelihood, num_neighbours=40)
        gpflow_decoupled.fit(model)
        probabilities, _ = model.predict_y(Xnew)
    """

    of_gaussian_noise: ClassVar[bool] = False
    route: ClassVar[str] = "neighbour_labels"
    """Of `fit`."""

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        *,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(data, kernel, likelihood, seed=seed, **options)
        steep = _STEEP * np.sqrt(likelihood.num_classes - 1) / likelihood.num_classes
        self.mean_factor = gpflow.Parameter(steep, transform=positive())
        self.variance_factor = gpflow.Parameter(steep**2, transform=positive())
        X = self.data[0]
        # replaced at once, but a class that is missing would be warned of
        values = tf.cast(tf.range(tf.shape(X)[0])[:, None] % 2, X.dtype)
        self.gaussian = GaussianNNGP(
            (X, tf.repeat(values, self.num_latent_gps, axis=1)),
            self.kernel,
            Gaussian(_NOISE, variance_lower_bound=_LEAST_NOISE),
            num_neighbours=self.num_neighbours,
            prediction_neighbours=self.prediction_neighbours,
            mean_function=self.mean_function,
            seed=seed,
        )
        self.gaussian.data = X, self._targets(self.data[1])

    @classmethod
    def serves(cls, likelihood: Likelihood | None) -> bool:
        """True for classes by a softmax."""
        return isinstance(likelihood, CategoricalLogit)

    @property
    def factors(self) -> Factors:
        """`mean_factor` and `variance_factor`."""
        return self.mean_factor, self.variance_factor

    def log_likelihood(self, rows: tf.Tensor, neighbours: tf.Tensor) -> tf.Tensor:
        """Log densities of left-out labels: a pure function of the Parameters.

        Their sum over B random rows, times N / B, is an unbiased estimate of the objective.

        :param rows: row numbers [B].
        :param neighbours: row numbers [G, B, m] from `neighbours_of`.
        :return: [B], in nats, by 32 fixed draws of f. Cost: B (m^3 / 3 + m^2 D).
        """
        X, Y = (tf.gather(part, rows) for part in self.data)
        moments = scaled(self.factors, *self.cavities(rows, neighbours)[:2])
        return log_densities_of_labels(self.likelihood, (X, Y), *moments)

    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """The sum of the log densities of all rows, each left out, in nats; no bound.

        Cost: N (m^3 / 3 + m^2 D), and a search for the neighbours of all rows.
        """
        with tf.init_scope():
            numbers = np.arange(int(self.data[0].shape[0]))
            around = self.neighbours_of(numbers)
        return tf.reduce_sum(self.log_likelihood(tf.constant(numbers, tf.int32), around))

    @one_at_a_time
    def update(self, new_data: RegressionData) -> None:
        """Add observations X [N*, D] and Y [N*, 1]; the Parameters stay.

        Compile functions again.

        :raises DataError: for unusable data, with nothing changed.
        """
        X, Y = arrays_of(new_data, self.float_type)
        self.check_rows(X, Y, self.num_dims)
        new = tf.convert_to_tensor(X), as_observations(Y, self.likelihood, self.float_type)
        data = tuple(tf.concat(pair, axis=0) for pair in zip(self.data, new))
        with all_or_nothing([], [self, self.gaussian]):
            self.gaussian.update((X, self._targets(new[1])))
            self.data = data

    def _targets(self, Y: tf.Tensor) -> tf.Tensor:
        """t [N, C] of labels [N, 1], of variance one where classes are as frequent."""
        C = self.likelihood.num_classes
        indicators = tf.one_hot(tf.cast(Y[:, 0], tf.int32), C, dtype=self.float_type)
        return (indicators - 1.0 / C) * (C / np.sqrt(C - 1))
