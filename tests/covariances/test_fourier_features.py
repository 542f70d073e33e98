"""GPflow's notebook of variational Fourier features: an inducing variable whose Kuu is a
`LinearOperator`.
"""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorLike
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingVariables
from numpy.testing import assert_allclose

import gpflow_decoupled as gd

LOW, HIGH = -1.0, 2.0


class FourierFeatures(InducingVariables):
    """Projections of f on sines and cosines on an interval."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.omegas = tf.constant(np.arange(count) * 2.0 * np.pi / (HIGH - LOW))

    @property
    def num_inducing(self) -> int:
        """2 count - 1: no sine of frequency 0."""
        return 2 * int(self.omegas.shape[0]) - 1

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of GPflow's inducing points."""
        return self.num_inducing, 1, 1


@Kuu.register(FourierFeatures, gpflow.kernels.Matern12)
def _kuu(features: FourierFeatures, kernel: gpflow.kernels.Matern12, jitter: float = 0.0):
    """The Gram matrix of the RKHS: a diagonal and one rank more, and a diagonal."""
    rate, omegas = 1.0 / kernel.lengthscales, features.omegas
    both = (HIGH - LOW) * (rate**2 + omegas**2) / (4.0 * rate * kernel.variance)
    cosines = tf.concat([2.0 * both[:1], both[1:]], axis=0)
    ones = tf.ones_like(cosines)[:, None] / tf.sqrt(kernel.variance)
    diagonal = tf.linalg.LinearOperatorDiag
    update = tf.linalg.LinearOperatorLowRankUpdate(
        diagonal(cosines, is_positive_definite=True, is_self_adjoint=True), ones
    )
    return tf.linalg.LinearOperatorBlockDiag([update, diagonal(both[1:])])


@Kuf.register(FourierFeatures, gpflow.kernels.Matern12, TensorLike)
def _kuf(features: FourierFeatures, kernel: gpflow.kernels.Matern12, X: tf.Tensor) -> tf.Tensor:
    angles = features.omegas[:, None] * (X[None, :, 0] - LOW)
    return tf.concat([tf.cos(angles), tf.sin(angles[1:])], axis=0)


def test_fourier_features() -> None:
    """Close below the exact evidence, with q at its optimum; and its gradients are finite."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 1.0, (60, 1))
    Y = np.sin(9.0 * X) + 0.3 * rng.normal(size=(60, 1))
    kernel = gpflow.kernels.Matern12(lengthscales=0.5)
    exact = gpflow.models.GPR((X, Y), kernel, noise_variance=0.09)
    model = gd.models.BasisGP(
        kernel,
        gpflow.likelihoods.Gaussian(0.09),
        gd.bases.CoupledBasis(FourierFeatures(60)),
        num_data=60,
    )
    gd.optimizers.NaturalGradient(gamma=1.0).minimize(model, (X, Y))
    evidence = float(exact.log_marginal_likelihood())
    assert evidence - 5.0 < float(model.elbo((X, Y))) < evidence
    new = np.linspace(0.1, 0.9, 5)[:, None]
    assert_allclose(model.predict_f(new)[0], exact.predict_f(new)[0], atol=0.05)
    with tf.GradientTape() as tape:
        loss = model.training_loss((X, Y))
    assert all(np.all(np.isfinite(g)) for g in tape.gradient(loss, kernel.trainable_variables))
