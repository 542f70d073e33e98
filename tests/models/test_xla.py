"""Models that own their data inside `tf.function(jit_compile=True)`."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled.likelihoods import BernoulliLogit
from gpflow_decoupled.models import CVIGP, LCLGP

N = 12
X = np.linspace(0.0, 3.0, N)[:, None]
Y = np.sin(3.0 * X) + 0.3 * np.cos(40.0 * X)
CLASSES = 1.0 * (Y > 0.0)
CASES = {
    "Gaussian": (gl.Gaussian, Y),
    "StudentT": (lambda: gl.StudentT(scale=0.5), Y),
    "logit": (BernoulliLogit, CLASSES),
    "Poisson": (gl.Poisson, 2.0 + CLASSES),
}


def _sites(rng: np.random.Generator, negative: int) -> tuple[np.ndarray, np.ndarray]:
    """nu and tau [N, 1] with a few negative precisions and one of zero."""
    tau = rng.uniform(0.3, 2.0, size=(N, 1))
    tau[:negative] = -0.02
    tau[-1] = 0.0
    return rng.normal(size=(N, 1)), tau


def _loss_and_gradients(model: CVIGP | LCLGP) -> tuple[tf.Tensor, ...]:
    moved = model.trainable_variables
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(moved)
        loss = model.training_loss()
    return (loss, *tape.gradient(loss, moved))


@pytest.mark.exhaustive
@pytest.mark.parametrize("negative", [0, 3])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", [CVIGP, LCLGP])
def test_training_loss_and_gradient_compile(kind, name, negative, rng):
    make, labels = CASES[name]
    model = kind((X, labels), gpflow.kernels.Matern32(), make())
    nu, tau = _sites(rng, negative)
    if kind is CVIGP:
        model.basis.nu.assign(nu)
        model.basis.tau.assign(tau)
    else:
        model.basis.alpha.assign(0.1 * nu)
        model.basis.lam.assign(tau)
    compiled = tf.function(lambda: _loss_and_gradients(model), jit_compile=True, autograph=False)()
    for left, right in zip(compiled, _loss_and_gradients(model)):
        assert np.all(np.isfinite(right))
        assert_allclose(left, right, rtol=1e-9, atol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [CVIGP, LCLGP])
def test_predictions_compile(kind, rng):
    model = kind((X, Y), gpflow.kernels.Matern32(), gl.StudentT())
    (model.basis.tau if kind is CVIGP else model.basis.lam).assign(_sites(rng, 3)[1])
    new = tf.constant(X[:4] + 0.1)
    compiled = tf.function(model.predict_f, jit_compile=True, autograph=False)(new)
    for left, right in zip(compiled, model.predict_f(new)):
        assert_allclose(left, right, rtol=1e-9, atol=1e-12)
