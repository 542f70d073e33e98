"""Variances from neighbours for a model with a mean on all data."""

from __future__ import annotations

__all__ = ["with_neighbours"]

import gpflow
import tensorflow as tf
from gpflow.base import RegressionData

from ..errors import DataError, ModelError
from ..likelihoods.facts import is_gaussian
from .basis_gp import BasisGP
from .families import data_mean_of
from .neighbours import NNGP, GaussianNNGP, SiteNNGP

_LEFT, _LEFT_PER_ROW = 1.0, 1e-3
"""Most nats, and nats per row if more, of the mean that q(u) may have beside the coefficients."""


def with_neighbours(
    model: BasisGP,
    data: RegressionData,
    *,
    num_neighbours: int = 30,
    prediction_neighbours: int | str = 128,
    seed: int = 0,
) -> NNGP:
    """Make an `NNGP(mean="data")` with this mean on all data and variances from neighbours.

    Kernel, likelihood, mean function and coefficients are copies, and nothing is solved for. For
    other likelihoods than Gaussian noise the model is a `SiteNNGP` at the sites of this q(f), which
    `optimizers.SiteSweeps` moves on. What the solve left to q(u), at most its gap in nats, is
    dropped.

    :param model: a model with `gamma="data"`, after `fit` or `ConjugateGradients`.
    :param data: X [N, D] and Y [N, P] that it was trained on.
    :param num_neighbours: m of the likelihood of neighbours, if it is trained on.
    :param prediction_neighbours: m of predictions; "auto" as in `NNGP`.
    :param seed: of the random order of the rows.
    :return: a `GaussianNNGP`, or a `SiteNNGP`; a later solve starts from these coefficients.
    :raises DataError: for other rows X, and kernels that mix latent functions.

    Cost: none; for sites a prediction of all rows, N (N (D + L) + M^2). Example::

        model = ODVGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(), "data", beta)
        gpflow_decoupled.fit(model, (X, Y))
        mean, variance = with_neighbours(model, (X, Y)).predict_y(Xnew)
    """
    mean = data_mean_of(model, "with_neighbours")
    X, Y = model.checked(data)
    if not mean.has_data(X.numpy()):
        raise DataError(
            f"X has {len(X)} rows, which are not the {mean.size} of the model's mean: pass the data"
            " of fit or ConjugateGradients, in their order."
        )
    _check_solved(model, len(X))
    twin = gpflow.utilities.deepcopy(model)
    gaussian = is_gaussian(model.likelihood)
    near = (GaussianNNGP if gaussian else SiteNNGP)(
        (X, Y),
        twin.kernel,
        twin.likelihood,
        num_neighbours=num_neighbours,
        prediction_neighbours=prediction_neighbours,
        mean="data",
        mean_function=twin.mean_function,
        num_latent_gps=model.num_latent_gps,
        expectations=None if gaussian else model.expectations,
        seed=seed,
    )
    a = mean.raw()
    if isinstance(near, SiteNNGP):
        a = _take_sites(near, model, a)
    near.assign_mean(a)
    return near


def _check_solved(model: BasisGP, rows: int) -> None:
    state = model.basis.factor(model.kernel, with_kl=False)
    left = 0.5 * float(tf.reduce_sum(tf.square(model.basis.weights_of_rows(state))))
    if not left <= max(_LEFT, _LEFT_PER_ROW * rows):
        raise ModelError(
            f"q(u) has a part of the mean, of {left:.2g} nats, that no coefficients of the rows"
            " have: solve for them first, optimizers.ConjugateGradients().run(model, (X, Y))."
        )


def _take_sites(near: SiteNNGP, model: BasisGP, a: tf.Tensor) -> tf.Tensor:
    """Set the sites at which a model's q(f) has the coefficients a [N, L]; zero for gaps."""
    X, Y = near.data
    prior = model.mean_function(X)
    f_mean, f_variance = model.predict_f(X)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(f_variance)
        expected = model.variational_expectations(f_mean - prior, f_variance, (X, Y))
    slope = tape.gradient(expected, f_variance)
    rows, zeros = tf.range(len(X)), tf.zeros_like(a)
    near.assign_sites(rows, zeros, -2.0 * slope)  # raises precisions that are too small
    precision = near.sites[1]
    a = tf.where(precision > 0.0, a, zeros)
    # (K + lambda^-1) a = nu / lambda - m_0 at any precisions lambda
    near.assign_sites(rows, a + precision * f_mean, precision)
    return a
