"""Stochastic gradient variational Bayes: the sampled data term is unbiased, repeats itself, and
trains.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.bases import CoupledBasis
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.models import DVGP, HDVGP, ODVGP, SOLVEGP, BasisGP, MonteCarlo, SparseCVIGP
from gpflow_decoupled.optimizers import ConjugateComputation, NaturalGradient
from gpflow_decoupled.optimizers.natural_steps import local_gradient
from tests.reference.conjugate import block_expectation, softmax_classes

RNG = np.random.default_rng(0)
X = np.linspace(-2.0, 2.0, 30)[:, None]
REAL = np.sin(2.0 * X) + 0.3 * RNG.normal(size=X.shape)
COUNTS = RNG.poisson(np.exp(np.sin(2.0 * X))).astype(float)
CLASSES = RNG.integers(0, 3, X.shape).astype(float)
Z = np.linspace(-2.0, 2.0, 5)[:, None]
EVALUATIONS = 300


def coupled(
    likelihood, samples: int | None, L: int = 1, kernel=None, mean=None, num_data: int = len(X)
) -> BasisGP:
    source = None if samples is None else MonteCarlo(samples, seed=1)
    basis = CoupledBasis(gpflow.inducing_variables.InducingPoints(Z.copy()), L)
    kernel = gpflow.kernels.SquaredExponential() if kernel is None else kernel
    return BasisGP(
        kernel, likelihood, basis, mean_function=mean, num_data=num_data, expectations=source
    )


def heteroskedastic() -> gpflow.likelihoods.Likelihood:
    return gpflow.likelihoods.HeteroskedasticTFPConditional()


def moments(L: int) -> tuple[tf.Tensor, tf.Tensor]:
    rng = np.random.default_rng(2)
    return tf.constant(rng.normal(size=(5, L))), tf.constant(rng.uniform(0.05, 0.2, size=(5, L)))


def estimates(model: BasisGP, mean: tf.Tensor, variance: tf.Tensor, data) -> np.ndarray:
    """E, g and h [EVALUATIONS, N, 1 + 2 L] of so many calls."""

    @tf.function(autograph=False)
    def once() -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch([mean, variance])
            value = model.variational_expectations(mean, variance, data)
        return tf.concat([value[:, None], *tape.gradient(value, [mean, variance])], axis=1)

    return np.array([once() for _ in range(EVALUATIONS)])


def assert_mean(draws: np.ndarray, expected: np.ndarray) -> None:
    """Within 4.5 standard errors everywhere: by chance wrong less than once in 1000 of these
    tests.
    """
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - expected) <= 4.5 * error + 1e-12)
    assert np.all(error < 0.25 * (1.0 + np.abs(expected)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("samples", [1, 5])
def test_two_latents_agree_with_quadrature(samples):
    """Mean and log scale of the noise: 400 quadrature nodes, or a few draws."""
    mean, variance = moments(2)
    data = tf.constant(X[:5]), tf.constant(REAL[:5])
    model = coupled(heteroskedastic(), samples, 2)
    with tf.GradientTape() as tape:
        tape.watch([mean, variance])
        value = model.likelihood.variational_expectations(data[0], mean, variance, data[1])
    expected = tf.concat([value[:, None], *tape.gradient(value, [mean, variance])], axis=1)
    assert_mean(estimates(model, mean, variance, data), expected)


def test_softmax_agrees_with_numpy():
    mean, variance = moments(3)
    model = coupled(gpflow.likelihoods.Softmax(3), 4, 3)
    labels = np.array([[0], [1], [2], [1], [0]])
    found = estimates(model, mean, variance, (tf.constant(X[:5]), tf.constant(labels, tf.int32)))
    covariance = variance.numpy()[:, :, None] * np.eye(3)
    value, g, H = block_expectation(softmax_classes(3), labels[:, 0], mean.numpy(), covariance)
    assert_mean(found, np.concatenate([value[:, None], g, np.einsum("nll->nl", H)], axis=1))


@pytest.mark.exhaustive
def test_bound_and_gradients_of_a_minibatch_are_unbiased():
    """Through the model: a mean function, the scale of a minibatch, and the gradients in kernel
    parameters and q_mu.
    """
    mean = gpflow.functions.Constant(0.4)
    exact, sampled = (
        coupled(gpflow.likelihoods.Poisson(), samples, mean=mean) for samples in (None, 20)
    )
    batch = tf.constant(X[:10]), tf.constant(COUNTS[:10])

    def value_and_slope(model: BasisGP) -> tf.Tensor:
        variables = model.kernel.trainable_variables + model.basis.trainable_variables[:1]
        with tf.GradientTape() as tape:
            value = model.elbo(batch)
        return tf.concat(
            [[value], *(tf.reshape(g, [-1]) for g in tape.gradient(value, variables))], axis=0
        )

    assert_mean(np.array([value_and_slope(sampled) for _ in range(40)]), value_and_slope(exact))


def test_shared_latents_are_drawn_together():
    """Two outputs of one latent: the estimate is that of the outputs' own moments, where these are
    all that counts.
    """
    kernel = gpflow.kernels.LinearCoregionalization(
        [gpflow.kernels.SquaredExponential()], W=[[1.0], [-0.5]]
    )
    likelihood = gpflow.likelihoods.Gaussian(0.3)
    exact, sampled = (coupled(likelihood, samples, 1, kernel) for samples in (None, 3))
    mean, variance = moments(1)
    data = tf.constant(X[:5]), tf.constant(RNG.normal(size=(5, 2)))
    g, h = local_gradient(exact, mean, variance, data)
    scale = exact.scale(data[0])
    expected = tf.concat(
        [exact.variational_expectations(mean, variance, data)[:, None], g / scale, h / scale],
        axis=1,
    )
    assert_mean(estimates(sampled, mean, variance, data), expected)


def test_opposite_draws_remove_the_noise_of_the_mean():
    model = coupled(gpflow.likelihoods.Gaussian(0.3), 2)
    mean, variance = moments(1)
    data = tf.constant(X[:5]), tf.constant(REAL[:5])
    g, _ = local_gradient(model, mean, variance, data)
    assert_allclose(g / model.scale(data[0]), (data[1] - mean) / 0.3, rtol=1e-12)
    draws = MonteCarlo(5).draw(mean)
    assert draws.shape == [5, 5, 1]
    assert_allclose(tf.reduce_sum(draws, 0), draws[2])


@pytest.mark.exhaustive
def test_same_seed_same_draws():
    def bounds(model: BasisGP, compile: bool) -> list[float]:
        bound = tf.function(model.elbo, autograph=False) if compile else model.elbo
        return [float(bound((tf.constant(X), tf.constant(COUNTS)))) for _ in range(3)]

    first = coupled(gpflow.likelihoods.Poisson(), 3)
    eager = bounds(first, False)
    assert_allclose(bounds(coupled(gpflow.likelihoods.Poisson(), 3), True), eager, rtol=1e-12)
    assert len(set(eager)) == 3 and int(first.expectations.calls) == 3
    first.expectations.calls.assign(0)
    assert_allclose(bounds(gpflow.utilities.deepcopy(first), False), eager, rtol=1e-12)
    first.expectations = MonteCarlo(3, seed=2)
    assert not np.any(np.isclose(bounds(first, False), eager, rtol=1e-9))
    first.expectations = None
    assert len(set(bounds(first, False))) == 1


BUILDERS = {
    "ODVGP": lambda k, y, **o: ODVGP(k, y, Z + 0.3, Z, **o),
    "HDVGP": lambda k, y, **o: HDVGP(k, y, Z + 0.3, Z, **o),
    "DVGP": lambda k, y, **o: DVGP(k, y, Z + 0.3, Z, **o),
    "SOLVEGP": lambda k, y, **o: SOLVEGP(k, y, Z + 0.3, Z, **o),
    "SparseCVIGP": lambda k, y, **o: SparseCVIGP(k, y, Z, **o),
}


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("name", BUILDERS)
def test_every_model_takes_it(name):
    options = {"num_data": len(X), "expectations": MonteCarlo(4000)}
    model = BUILDERS[name](
        gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Poisson(), **options
    )
    data = tf.constant(X), tf.constant(COUNTS)
    sampled = model.elbo(data)
    model.expectations = None
    assert sampled != model.elbo(data)
    assert_allclose(sampled, model.elbo(data), rtol=0.02)


@pytest.mark.exhaustive
def test_natural_gradients_reach_the_optimum():
    """The bound at the q that draws lead to is that of the optimum, to a tenth of a nat."""
    data = tf.constant(X), tf.constant(COUNTS)
    exact, sampled = (coupled(gpflow.likelihoods.Poisson(), samples) for samples in (None, 10))
    for model, sizes in ((exact, [0.7] * 12), (sampled, [0.3] * 20 + [0.05] * 20)):
        for size in sizes:
            assert NaturalGradient(size).minimize(model, data).ok
    sampled.expectations = None
    assert 0.0 <= exact.elbo(data) - sampled.elbo(data) < 0.1


@pytest.mark.exhaustive
def test_fit_trains_from_draws_on_minibatches_and_repeats_itself():
    """Softmax on three classes that do not overlap much: the compiled fit learns them, and begins
    as an eager one.
    """
    Y = np.digitize(X, [-0.7, 0.7]).astype(float)
    build = lambda: coupled(gpflow.likelihoods.Softmax(3), 4, 3)  # noqa: E731
    options = {"batch_size": 10, "progress": False, "seed": 4}
    short = gd.fit(build(), (X, Y), steps=3, compile=False, **options).history["elbo"]
    model = build()
    result = gd.fit(model, (X, Y), steps=50, **options)
    assert_allclose(result.history["elbo"][:3], short, rtol=1e-6)
    assert np.mean(result.history["elbo"][-10:]) > np.mean(result.history["elbo"][:10]) + 5.0
    assert np.mean(np.argmax(model.predict_f(X)[0], axis=1) == Y[:, 0]) > 0.9


@pytest.mark.exhaustive
def test_a_resumed_fit_goes_on_to_the_same_trace(tmp_path):
    options = {
        "batch_size": 10,
        "progress": False,
        "compile": False,
        "schedule": gd.training.Schedule(anneal=0.0),
    }
    build = lambda: coupled(gpflow.likelihoods.Poisson(), 3)  # noqa: E731
    whole = gd.fit(build(), (X, COUNTS), steps=4, **options).history["elbo"]
    gd.fit(build(), (X, COUNTS), steps=2, checkpoint=tmp_path, **options)
    resumed = gd.fit(build(), (X, COUNTS), steps=4, checkpoint=tmp_path, **options)
    assert_allclose(resumed.history["elbo"], whole, rtol=1e-12)
    with pytest.raises(DataError, match="written with num_samples=3, and this run has 4"):
        gd.fit(
            coupled(gpflow.likelihoods.Poisson(), 4),
            (X, COUNTS),
            steps=5,
            checkpoint=tmp_path,
            **options,
        )


class NoDensity(gpflow.likelihoods.Likelihood):
    """A likelihood that can be integrated and not evaluated."""

    def __init__(self):
        super().__init__(input_dim=1, latent_dim=1, observation_dim=1)

    def _log_prob(self, X, F, Y):
        raise NotImplementedError

    _conditional_mean = _conditional_variance = _predict_mean_and_var = _predict_log_density = (
        _log_prob
    )

    def _variational_expectations(self, X, Fmu, Fvar, Y):
        return tf.reduce_sum(Fmu, -1)


def test_bad_input_is_refused():
    for bad in (0, -3, 2.5, True):
        with pytest.raises(DataError, match="num_samples=.* must be a whole number, at least 1"):
            MonteCarlo(bad)
    with pytest.raises(DataError, match="log density of MultiClass is made of steps"):
        coupled(gpflow.likelihoods.MultiClass(3), 5, 3)
    cvi = gd.models.CVIGP(
        (X, CLASSES), gpflow.kernels.SquaredExponential(), gpflow.likelihoods.MultiClass(3)
    )
    with pytest.raises(DataError, match="log density of MultiClass is made of steps"):
        ConjugateComputation(samples=5).minimize(cvi)
    model = coupled(NoDensity(), 5)
    before = model.basis.q_mu.numpy()
    with pytest.raises(
        DataError, match="NoDensity has no log density to be sampled: define its _log_prob"
    ):
        gd.fit(model, (X, REAL), steps=1, progress=False, compile=False)
    assert_allclose(model.basis.q_mu, before)


@pytest.mark.parametrize("seed", [1.5, None, -1])
def test_seeds_are_whole_numbers(seed):
    with pytest.raises(DataError, match=r"seed=.* must be a whole number of at least 0"):
        MonteCarlo(4, seed=seed)
