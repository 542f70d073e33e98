"""A GP on one input by filter and smoother: the dense model, and every verb."""

from __future__ import annotations

import copy
import functools

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels as k
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood, Poisson, StudentT
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, ModelError
from gpflow_decoupled.likelihoods import BernoulliLogit, CategoricalLogit
from gpflow_decoupled.models import CVIGP, StateSpaceGP
from gpflow_decoupled.models.neighbours.evidence import log_evidence_of
from gpflow_decoupled.optimizers import (
    ConjugateComputation,
    ExpectationPropagation,
    JaakkolaJordan,
    LaplaceApproximation,
)

RNG = np.random.default_rng(1)
N = 50
STEP = 2.0**-20
X = STEP * np.round(RNG.uniform(0.0, 8.0, (N, 1)) / STEP)  # squares and products are exact
X[3], X[10] = X[4], X[11] + STEP
F = np.sin(2.0 * X)
Y = F + 0.1 * RNG.normal(size=F.shape)
LABELS = (F + RNG.normal(size=F.shape) > 0.0).astype(float)
CASES = {
    "Gaussian": (lambda: Gaussian(0.02), Y),
    "Bernoulli": (Bernoulli, LABELS),
    "Poisson": (Poisson, RNG.poisson(np.exp(F)).astype(float)),
    "StudentT": (lambda: StudentT(0.1), Y),
    "CategoricalLogit": (lambda: CategoricalLogit(3), np.digitize(F, [-0.5, 0.5]).astype(float)),
}
XNEW = np.concatenate([RNG.uniform(-3.0, 11.0, (9, 1)), X[:2], X[3:4], [[30.0], [-20.0]]])
XNEW[1] = XNEW[2]


def kernel() -> k.Kernel:
    # lengthscales too are powers of two: dense matrices square distances by |x|^2 - 2 x z + |z|^2
    return k.Matern12(1.3, 0.5) + k.Matern32(0.6, 2.0) * k.Constant(0.4)


def model(likelihood: Likelihood | None = None, Y: np.ndarray = LABELS) -> StateSpaceGP:
    return StateSpaceGP((X, Y), kernel(), Bernoulli() if likelihood is None else likelihood)


@functools.cache
def _solved() -> StateSpaceGP:
    one = model()
    ConjugateComputation().run(one)
    return one


def solved() -> StateSpaceGP:
    """A model at its best sites, which the test may change."""
    return copy.deepcopy(_solved())


def dense_of(ours: StateSpaceGP) -> CVIGP:
    """The dense model with the same parts and sites."""
    dense = CVIGP(
        ours.data, ours.kernel, ours.likelihood, mean_function=ours.mean_function,
        num_latent_gps=ours.num_latent_gps,
    )  # fmt: skip
    dense.basis.nu.assign(ours.basis.nu)
    dense.basis.tau.assign(ours.basis.tau)
    return dense


def gradients(one: CVIGP) -> list[np.ndarray]:
    with tf.GradientTape() as tape:
        loss = one.training_loss()
    return [np.asarray(part) for part in tape.gradient(loss, one.trainable_variables)]


def assert_equal_models(ours: StateSpaceGP, dense: CVIGP, Xnew: np.ndarray, atol: float) -> None:
    assert_allclose(ours.elbo(), dense.elbo(), rtol=atol, atol=atol)
    assert_allclose(ours.elbo_of_sites(), dense.elbo_of_sites(), rtol=atol, atol=atol)
    for full_cov in (False, True):
        for left, right in zip(*(one.predict_f(Xnew, full_cov) for one in (ours, dense))):
            assert_allclose(left, right, atol=atol)
    for left, right in zip(ours.moments()[:2], dense.moments()[:2]):
        assert_allclose(left, right, atol=atol)
    for left, right in zip(gradients(ours), gradients(dense)):
        assert_allclose(left, right, rtol=10.0 * atol, atol=10.0 * atol)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", ["Gaussian", "Bernoulli", "Poisson", "StudentT"])
def test_it_is_the_dense_model(name):
    make, labels = CASES[name]
    trend = gpflow.functions.Constant(np.full(1, 0.2))
    ours = StateSpaceGP((X, labels), kernel(), make(), mean_function=trend)
    result = ConjugateComputation().run(ours)
    dense = dense_of(ours)
    assert result.converged
    assert ConjugateComputation().run(dense, steps=3).elbo == pytest.approx(result.elbo, abs=1e-7)
    assert_equal_models(ours, dense_of(ours), XNEW, 1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Gaussian", "Bernoulli", "Poisson"])
def test_two_thousand_rows(name):
    rng = np.random.default_rng(0)
    inputs = rng.uniform(0.0, 100.0, (2000, 1))
    latent = np.sin(inputs)
    make = CASES[name][0]
    labels = {
        "Gaussian": latent + 0.1 * rng.normal(size=latent.shape),
        "Bernoulli": (latent + rng.normal(size=latent.shape) > 0.0).astype(float),
        "Poisson": rng.poisson(np.exp(latent)).astype(float),
    }[name]
    ours = StateSpaceGP((inputs, labels), k.Matern52(), make())
    ConjugateComputation().run(ours)
    forecasts = rng.uniform(-5.0, 110.0, (50, 1))
    assert_equal_models(ours, dense_of(ours), forecasts, 1e-8)


@pytest.mark.exhaustive
def test_several_latents_of_a_label():
    likelihood, labels = CASES["CategoricalLogit"]
    ours = StateSpaceGP((X, labels), kernel(), likelihood())
    ConjugateComputation().run(ours)
    assert_equal_models(ours, dense_of(ours), XNEW, 1e-9)


@pytest.mark.exhaustive
def test_separate_kernels_and_several_columns():
    both = k.SeparateIndependent([k.Matern12(0.9, 1.5), k.Matern52()])
    ours = StateSpaceGP((X, np.hstack([Y, -Y])), both, Gaussian(0.1))
    ConjugateComputation().run(ours)
    assert_equal_models(ours, dense_of(ours), XNEW, 1e-9)


@pytest.mark.exhaustive
def test_quasi_periodic():
    wave = k.Periodic(k.SquaredExponential(lengthscales=1.2), period=1.7)
    ours = StateSpaceGP((X, Y), k.Matern32(lengthscales=5.0) * wave, Gaussian(0.1), harmonics=10)
    assert ours.series_error < 1e-13
    ConjugateComputation().run(ours)
    assert_equal_models(ours, dense_of(ours), XNEW, 1e-8)


@pytest.mark.exhaustive
def test_log_evidence():
    ours, dense = model(Gaussian(0.1), Y), CVIGP((X, Y), kernel(), Gaussian(0.1))
    found = ours.evidence()
    assert found.upper - found.lower < 1e-9
    assert found.lower == pytest.approx(dense.evidence().lower, abs=1e-6)
    values = []
    for one, density in ((ours, ours.log_evidence), (dense, log_evidence_of(dense, dense.data))):
        with tf.GradientTape() as tape:
            nats = density()
        values.append(tape.gradient(nats, one.trainable_variables))
    for left, right in zip(*values):
        assert_allclose(left, right, rtol=1e-5, atol=1e-6)
    with pytest.raises(ModelError, match="Gaussian noise"):
        model().evidence()


@pytest.mark.exhaustive
def test_order_of_rows_does_not_matter():
    ours = model(Gaussian(0.1), Y)
    order = RNG.permutation(N)
    turned = StateSpaceGP((X[order], Y[order]), kernel(), Gaussian(0.1))
    for one in (ours, turned):
        ConjugateComputation().run(one)
    assert_allclose(ours.moments().mean.numpy()[order], turned.moments().mean, atol=1e-10)
    assert_allclose(ours.basis.nu.numpy()[order], turned.basis.nu, atol=1e-8)


def test_predictions_of_a_row_depend_on_it_alone():
    ours = solved()
    mean, variance = ours.predict_f(XNEW)
    for row in (0, 1, len(XNEW) - 1):
        one_mean, one_variance = ours.predict_f(XNEW[row : row + 1])
        assert_allclose(one_mean[0], mean[row], rtol=1e-12)
        assert_allclose(one_variance[0], variance[row], rtol=1e-12)


@pytest.mark.exhaustive
def test_far_from_the_data_the_prior_returns():
    mean, variance = solved().predict_f([[1e4], [-1e4]])
    assert_allclose(mean, 0.0, atol=1e-12)
    assert_allclose(variance, kernel()(np.zeros((1, 1)), full_cov=False)[0], rtol=1e-12)


@pytest.mark.exhaustive
def test_batches_of_inputs_and_samples():
    ours, batch = solved(), np.stack([XNEW[:4], XNEW[4:8]])
    together = ours.predict_f(batch, full_cov=True)
    for number, inputs in enumerate(batch):
        for left, right in zip(together, ours.predict_f(inputs, full_cov=True)):
            assert_allclose(left[number], right, atol=1e-12)
    samples = ours.predict_f_samples(XNEW[:3], 5000)
    covariance = ours.predict_f(XNEW[:3], full_cov=True)[1][0]
    assert_allclose(np.cov(samples[..., 0].numpy().T), covariance, atol=0.1)


@pytest.mark.exhaustive
def test_gradients_of_predictions():
    ours, dense = solved(), dense_of(_solved())
    found = []
    for one in (ours, dense):
        inputs = tf.constant(XNEW[4:9])
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            mean, variance = one.predict_f(inputs)
            total = tf.reduce_sum(3.0 * mean + variance)
        moved = [inputs, *one.trainable_variables]
        found.append([np.asarray(tf.convert_to_tensor(g)) for g in tape.gradient(total, moved)])
    for left, right in zip(*found):
        assert_allclose(left, right, rtol=1e-8, atol=1e-8)


@pytest.mark.exhaustive
@pytest.mark.parametrize("what", ["loss", "predictions"])
def test_inside_a_graph_of_the_user(what):
    ours = solved()
    call = ours.training_loss if what == "loss" else lambda: ours.predict_f(XNEW)
    compiled = tf.function(call, autograph=False)()
    for left, right in zip(tf.nest.flatten(compiled), tf.nest.flatten(call())):
        assert_allclose(left, right, rtol=1e-12)


@pytest.mark.exhaustive
def test_update():
    ours = solved()
    nu = ours.basis.nu.numpy()
    ours.update((np.array([[2.5], [-1.0]]), np.array([[1.0], [0.0]])))
    assert_allclose(ours.basis.nu, np.concatenate([nu, np.zeros((2, 1))]))
    assert ours.basis.harmonics == 7
    ConjugateComputation().run(ours)
    again = StateSpaceGP(ours.data, kernel(), Bernoulli())
    ConjugateComputation().run(again)
    for left, right in zip(ours.predict_f(XNEW), again.predict_f(XNEW)):
        assert_allclose(left, right, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("noise", [Gaussian, Bernoulli])
def test_fit_climbs_as_the_dense_model_does(noise):
    found = []
    for kind in (StateSpaceGP, CVIGP):
        one = kind((X, Y if noise is Gaussian else LABELS), k.Matern32(), noise())
        options = {} if kind is StateSpaceGP else {"optimizer": "lbfgs"}
        found.append(gd.fit(one, progress=False, **options))
    assert found[0].steps == found[1].steps == 1
    assert found[0].reason == "converged"
    assert found[0].elbo == pytest.approx(found[1].elbo, abs=1e-3)


@pytest.mark.exhaustive
def test_fit_takes_options_of_steps():
    found = []
    for kind in (StateSpaceGP, CVIGP):
        one = kind((X, LABELS), k.Matern32(), Bernoulli())
        found.append(gd.fit(one, steps=3, learning_rate=0.1, hold="moments", progress=False))
    assert found[0].steps == 3
    assert found[0].elbo == pytest.approx(found[1].elbo, abs=1e-9)


@pytest.mark.exhaustive
def test_other_optimizers_of_sites():
    ours, dense = model(), CVIGP((X, LABELS), kernel(), Bernoulli())
    found = [ExpectationPropagation().run(one).evidence_estimate for one in (ours, dense)]
    assert found[0] == pytest.approx(found[1], abs=1e-6)
    ours, dense = (kind((X, LABELS), kernel(), BernoulliLogit()) for kind in (StateSpaceGP, CVIGP))
    found = [JaakkolaJordan().run(one).elbo for one in (ours, dense)]
    assert found[0] == pytest.approx(found[1], abs=1e-6)
    with pytest.raises(ModelError, match="StateSpaceGP has no K"):
        LaplaceApproximation().run(ours)


@pytest.mark.exhaustive
def test_minibatches_of_sites():
    ours, dense = model(), CVIGP((X, LABELS), kernel(), Bernoulli())
    for one in (ours, dense):
        ConjugateComputation(0.5).run(one, steps=3, batch_size=20)
    assert_allclose(ours.basis.nu, dense.basis.nu, atol=1e-9)


@pytest.mark.exhaustive
def test_single_precision():
    old = gpflow.config.default_float()
    try:
        gpflow.config.set_default_float(np.float32)
        data = X.astype(np.float32), LABELS.astype(np.float32)
        ours = StateSpaceGP(data, kernel(), Bernoulli())
        ConjugateComputation().run(ours, tolerance=1e-6)
        mean, _ = ours.predict_f(XNEW.astype(np.float32))
    finally:
        gpflow.config.set_default_float(old)
    assert mean.dtype == tf.float32
    assert_allclose(mean, _solved().predict_f(XNEW)[0], atol=1e-3)


def test_unusable_data_and_kernels():
    with pytest.raises(DataError, match="one input"):
        StateSpaceGP((np.hstack([X, X]), Y), kernel(), Gaussian())
    with pytest.raises(DataError, match="SquaredExponential has no state space"):
        StateSpaceGP((X, Y), k.SquaredExponential(), Gaussian())
    with pytest.raises(DataError, match="NaN|finite"):
        StateSpaceGP((X, np.where(Y > 1.0, np.nan, Y)), kernel(), Gaussian())
    with pytest.raises(DataError, match="harmonics"):
        StateSpaceGP((X, Y), kernel(), Gaussian(), harmonics=0)
    with pytest.warns(UserWarning, match="harmonics=6"):
        wave = k.Periodic(k.SquaredExponential(lengthscales=0.2))
        StateSpaceGP((X, Y), wave, Gaussian(), harmonics=3)
    with pytest.raises(ModelError, match="no features"):
        ours = _solved()
        ours.basis.features(ours.basis.factor(ours.kernel), ours.kernel, ours.data[0])
