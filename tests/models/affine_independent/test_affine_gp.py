"""Affine-independent GPs: full and on inducing points, predictions against sampling, and what is
refused.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose
from scipy import stats

from gpflow_decoupled.errors import DataError, UnknownOptionError
from gpflow_decoupled.likelihoods import BernoulliLogit, Laplace
from gpflow_decoupled.models import AffineIndependentGLM, AffineIndependentGP, weights_posterior
from tests.models.affine_independent.affine_problems import randomize

tfd = tfp.distributions
X = np.sort(np.random.default_rng(2).uniform(-2.0, 2.0, size=(6, 1)), axis=0)
Y = (np.sin(2.0 * X) > 0.0).astype(float)
XNEW = np.linspace(-3.0, 3.0, 5)[:, None]
MEAN = gpflow.functions.Linear([[0.4]], [0.2])
DRAWS = 40_000


def matern():
    return gpflow.kernels.Matern32(variance=2.0, lengthscales=0.7)


def gp(likelihood=None, inducing=None, **options):
    likelihood = BernoulliLogit() if likelihood is None else likelihood
    labels = Y if likelihood.__class__.__name__.startswith("Bernoulli") else 3.0 * Y
    model = AffineIndependentGP(
        (X, labels), matern(), likelihood, mean_function=MEAN, inducing_variable=inducing, **options
    )
    randomize(model, np.random.default_rng(1))
    return model


def glm(**options):
    rng = np.random.default_rng(3)
    inputs = rng.normal(size=(8, 2))
    model = AffineIndependentGLM(
        (inputs, (inputs[:, :1] > 0.0).astype(float)), BernoulliLogit(), **options
    )
    model.basis.map.assign_matrix(0.2 * np.eye(3) + 0.05 * rng.normal(size=(3, 3)))
    return model


@pytest.mark.exhaustive
def test_inducing_points_at_the_data_are_the_full_gp():
    full, sparse = gp(), gp(inducing=X.copy())
    assert_allclose(
        sparse.elbo(), full.elbo(), atol=2e-5
    )  # the jitter of the inducing points is their only difference
    for left, right in zip(sparse.predict_f(XNEW), full.predict_f(XNEW)):
        assert_allclose(left, right, atol=1e-10)


def test_bound_of_inducing_points_by_sampling():
    """E_q log p(y | f) - KL: draws of u, conditional variance by hand."""
    model = gp(inducing=X[::2].copy())
    basis, kernel = model.basis, model.kernel
    Z = X[::2]
    L = np.linalg.cholesky(kernel(Z).numpy() + 1e-6 * np.eye(3))
    phi = np.linalg.solve(L, kernel(Z, X).numpy()).T
    rest = np.diag(kernel(X).numpy()) - np.sum(phi**2, axis=1)
    rng = np.random.default_rng(0)
    w = (
        basis.base.sample(DRAWS, basis.shapes, seed=1).numpy() @ basis.matrix().numpy().T
        + basis.b.numpy()
    )
    f = MEAN(X).numpy()[:, 0] + w @ phi.T + np.sqrt(rest) * rng.normal(size=(DRAWS, 6))
    terms = np.sum(-np.logaddexp(0.0, -(2.0 * Y[:, 0] - 1.0) * f), axis=1)
    found = model.elbo() + basis.divergence()
    assert abs(np.mean(terms) - found) < 4.5 * np.std(terms) / np.sqrt(
        DRAWS
    )  # fails once in 10^5 seeds


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "make", [gp, lambda: gp(inducing=X[::2].copy()), glm], ids=["full", "inducing", "linear"]
)
@pytest.mark.parametrize("full_cov", [False, True])
def test_predictions_are_those_of_samples(make, full_cov):
    model = make()
    inputs = XNEW if model.data[0].shape[1] == 1 else np.random.default_rng(5).normal(size=(5, 2))
    tf.random.set_seed(1)
    f = model.predict_f_samples(inputs, DRAWS, full_cov=full_cov).numpy()
    assert f.shape == (DRAWS, 5, 1) and model.predict_f_samples(inputs).shape == (5, 1)
    mean, variance = model.predict_f(inputs)
    error = np.sqrt(variance.numpy() / DRAWS)
    assert np.all(np.abs(f.mean(axis=0) - mean) < 5.0 * error)
    assert_allclose(f.var(axis=0), variance, rtol=0.06)
    if full_cov:
        covariance = model.predict_f(inputs, full_cov=True)[1][0].numpy()
        assert_allclose(np.cov(f[:, :, 0].T), covariance, atol=0.06 * np.max(covariance))
    probability, spread = model.predict_y(inputs)
    draws = 1.0 / (1.0 + np.exp(-f))
    assert_allclose(draws.mean(axis=0), probability, atol=5.0 * 0.5 / np.sqrt(DRAWS))
    assert_allclose(spread, probability * (1.0 - probability), rtol=1e-9)
    labels = np.array([[0.0], [1.0], [1.0], [0.0], [1.0]])
    expected = np.log(np.where(labels == 1.0, probability, 1.0 - probability))[:, 0]
    assert_allclose(model.predict_log_density((inputs, labels)), expected, atol=1e-8)
    levels = [0.01, 0.2, 0.5, 0.9]
    found = model.predict_f_quantiles(inputs, levels)
    below = np.mean(f[:, :, 0][:, :, None] < found, axis=0)
    assert np.all(np.abs(below - levels) < 5.0 * 0.5 / np.sqrt(DRAWS))


def test_densities_and_quantiles_agree():
    model = gp(inducing=X[::2].copy())
    grid = np.linspace(-14.0, 14.0, 2801)
    q = model.predict_f_density(XNEW, grid).numpy()
    mean, variance = model.predict_f(XNEW)
    step = grid[1] - grid[0]
    assert_allclose(np.sum(q, axis=1) * step, 1.0, atol=1e-7)
    assert_allclose(np.sum(q * grid, axis=1) * step, mean[:, 0], atol=1e-6)
    assert_allclose(np.sum(q * grid**2, axis=1) * step - mean[:, 0] ** 2, variance[:, 0], rtol=1e-5)
    cdf = np.cumsum(q, axis=1) * step
    found = model.predict_f_quantiles(XNEW, [0.1, 0.75])
    for row, quantile in zip(cdf, found):
        assert_allclose(np.interp(quantile - 0.5 * step, grid, row), [0.1, 0.75], atol=1e-5)
    own = model.predict_f_density(XNEW, found)
    assert own.shape == (5, 2)
    assert_allclose(
        [np.interp(quantile, grid, row) for quantile, row in zip(found, q)], own, rtol=1e-4
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("memory", [2.0**19, 2.0**22])
def test_densities_at_many_values_are_computed_in_blocks(memory):
    """Each of 2801 values takes as much as a site: together they are far above the limit."""
    model, grid = gp(inducing=X[::2].copy()), np.linspace(-14.0, 14.0, 2801)
    expected = model.predict_f_density(XNEW, grid)
    model._asked = model._asked._replace(memory=memory)
    assert_allclose(model.predict_f_density(XNEW, grid), expected, atol=1e-13)
    assert_allclose(model.predict_f_density(XNEW, np.tile(grid, (5, 1))), expected, atol=1e-13)


def test_a_normal_base_predicts_what_gaussians_predict():
    model = gp(base="normal")
    mean, variance = (part.numpy()[:, 0] for part in model.predict_f(XNEW))
    grid = np.linspace(-6.0, 6.0, 13)
    expected = stats.norm.pdf(grid, mean[:, None], np.sqrt(variance)[:, None])
    assert_allclose(model.predict_f_density(XNEW, grid), expected, atol=1e-9)
    expected = stats.norm.ppf([0.05, 0.5, 0.99], mean[:, None], np.sqrt(variance)[:, None])
    assert_allclose(model.predict_f_quantiles(XNEW, [0.05, 0.5, 0.99]), expected, atol=1e-5)
    labels = np.ones((5, 1))
    assert_allclose(
        model.predict_log_density((XNEW, labels)),
        model.likelihood.predict_log_density(XNEW, mean[:, None], variance[:, None], labels),
        atol=1e-8,
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "likelihood", [Laplace(0.5), gpflow.likelihoods.StudentT(0.4), gpflow.likelihoods.Gaussian(0.2)]
)
def test_predictive_densities_integrate_to_one(likelihood):
    model = gp(likelihood)
    y = np.linspace(-40.0, 40.0, 2001)
    q = np.exp(model.predict_log_density((np.full((2001, 1), 0.3), y[:, None])))
    assert_allclose(np.sum(q) * (y[1] - y[0]), 1.0, atol=2e-3)
    mean, variance = model.predict_y(np.array([[0.3]]))
    assert_allclose(np.sum(q * y) * (y[1] - y[0]), mean[0, 0], atol=1e-3)
    if not isinstance(likelihood, gpflow.likelihoods.StudentT):
        assert_allclose(
            np.sum(q * y**2) * (y[1] - y[0]) - mean[0, 0] ** 2, variance[0, 0], rtol=1e-3
        )


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("inducing", [None, X[::2].copy()], ids=["full", "inducing"])
def test_gradient_in_the_kernel_is_that_of_finite_differences(inducing):
    model = gp(inducing=inducing)
    variable = model.kernel.lengthscales.unconstrained_variable
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    gradient, held, values = tape.gradient(loss, variable).numpy(), variable.numpy(), []
    for step in (-1e-4, 1e-4):
        variable.assign(held + step)
        values.append(model.training_loss().numpy())
    assert_allclose(gradient, (values[1] - values[0]) / 2e-4, rtol=1e-6)


def test_data_may_have_rows_twice():
    """At the data the jitter is part of the prior, as in `gpflow.models.VGP`; points that are
    chosen must be distinct.
    """
    twice = np.concatenate([X, X[:2]]), np.concatenate([Y, Y[:2]])
    model = AffineIndependentGP(twice, matern(), BernoulliLogit())
    mean, variance = model.predict_f(X[:2])
    assert np.isfinite(model.elbo()) and np.all(np.isfinite(mean)) and np.all(variance > 0.0)
    with pytest.raises(DataError, match="same|distinct|duplicate|equal"):
        AffineIndependentGP(twice, matern(), BernoulliLogit(), inducing_variable=twice[0])


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")  # of TensorFlow's own exporter
@pytest.mark.parametrize(
    "make", [glm, lambda: gp(inducing=X[::2].copy())], ids=["linear", "inducing"]
)
def test_exported_models_predict(make, tmp_path):
    """For any number of inputs: moments, class probabilities and log densities."""
    model = make()
    columns = model.data[0].shape[1]
    inputs, labels = model.data[0][:3], model.data[1][:3]
    given = [tf.TensorSpec([None, columns], tf.float64), tf.TensorSpec([None, 1], tf.float64)]

    def predict(X, Y):
        return *model.predict_f(X), *model.predict_y(X), model.predict_log_density((X, Y))

    model.predict_compiled = tf.function(predict, input_signature=given, autograph=False)
    expected = predict(inputs, labels)
    tf.saved_model.save(model, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for left, right in zip(loaded.predict_compiled(inputs, labels), expected):
        assert_allclose(left, right, rtol=1e-10)


def test_weights_are_read_off():
    model = glm()
    mean, covariance = weights_posterior(model)
    A, b = model.basis.matrix().numpy(), model.basis.b.numpy()
    scale = np.array([1.0, 1.0, 100.0])
    assert_allclose(mean, scale * b, atol=1e-9)
    assert_allclose(covariance, scale[:, None] * (A @ A.T) * scale, atol=1e-7)


@pytest.mark.exhaustive
def test_priors_of_weights_in_their_own_units():
    """log p(w) at a q so narrow that it is a point, for each kind of prior."""
    inputs = np.random.default_rng(0).normal(size=(4, 2))
    labels = np.array([[0.0], [0.0], [1.0], [0.0]])
    w = np.array([0.7, -0.4])
    for prior in (
        tfd.Laplace(0.2, 0.5),
        tfd.StudentT(np.array([3.0, 5.0]), np.array([0.0, 0.3]), np.array([1.0, 2.0])),
        tfd.Independent(tfd.Laplace(np.array([0.2, 0.1]), np.array([0.5, 0.6])), 1),
        tfd.Normal(0.1, 0.5),
        tfd.Logistic(np.float64(0.1), np.float64(0.5)),
    ):
        model = AffineIndependentGLM(
            (inputs, labels), BernoulliLogit(), prior=prior, intercept=False
        )
        phi = model.basis.whitened_features(
            model.basis.factor(model.kernel), model.kernel, tf.eye(2, dtype=tf.float64)
        )
        scale = np.diag(phi.numpy())
        mean = model.mean_function(np.eye(2)).numpy()[:, 0]
        model.basis.b.assign((w - mean) / scale)
        model.basis.map.assign_matrix(1e-5 * np.eye(2))
        log_prior = np.sum(prior.log_prob(w.astype(prior.dtype.as_numpy_dtype)))
        log_likelihood = np.sum(-np.logaddexp(0.0, (1.0 - 2.0 * labels[:, 0]) * (inputs @ w)))
        entropy = np.sum(model.basis.base.entropy(model.basis.shapes)) + np.sum(
            np.log(1e-5 * scale)
        )
        assert_allclose(model.elbo(), log_prior + log_likelihood + entropy, atol=1e-5)


DATA = (X, Y)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: AffineIndependentGP((X, np.c_[Y, Y]), matern(), BernoulliLogit()),
            "one model per column",
        ),
        (
            lambda: AffineIndependentGP(DATA, matern(), gpflow.likelihoods.Softmax(3)),
            "Softmax has 3 latent functions.*CVIGP",
        ),
        (
            lambda: AffineIndependentGP((X, Y + 0.5), matern(), BernoulliLogit()),
            "outside the support",
        ),
        (lambda: AffineIndependentGP((X[:, 0], Y), matern(), BernoulliLogit()), r"X\[:, None\]"),
        (
            lambda: AffineIndependentGP(DATA, matern(), BernoulliLogit(), memory=1000.0),
            "D = 6 .* memory limit",
        ),
        (lambda: AffineIndependentGP(DATA, matern(), BernoulliLogit(), memory=-1.0), "memory"),
        (
            lambda: AffineIndependentGP(DATA, matern(), BernoulliLogit(), points=1000),
            "power of two",
        ),
        (
            lambda: AffineIndependentGP(DATA, matern(), BernoulliLogit(), frequencies=1),
            "frequencies",
        ),
        (
            lambda: AffineIndependentGP(
                DATA, matern(), BernoulliLogit(), base=tfd.Gumbel(0.0, 1.0), route="lattice"
            ),
            "no cdf",
        ),
        (
            lambda: AffineIndependentGP(
                DATA, gpflow.kernels.SharedIndependent(matern(), 2), BernoulliLogit()
            ),
            "model per column",
        ),
        (
            lambda: AffineIndependentGLM(
                DATA, BernoulliLogit(), prior=tfd.Laplace(np.zeros(2), 1.0)
            ),
            "batch shape",
        ),
        (
            lambda: AffineIndependentGLM(DATA, BernoulliLogit(), prior=tfd.Laplace(0.0, -1.0)),
            "repair",
        ),
        (lambda: AffineIndependentGLM((0.0 * X, Y), BernoulliLogit(), intercept=False), "all zero"),
        (lambda: gp().predict_f_quantiles(XNEW, [0.0]), "between 0 and 1"),
        (lambda: gp().predict_f_density(XNEW, 1.0), "grid has shape"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(DataError, match=message):
        make()


@pytest.mark.parametrize(
    "options", [{"route": "fft"}, {"structure": "diagonal"}, {"base": "gauss"}]
)
def test_unknown_options(options):
    with pytest.raises(UnknownOptionError, match="use one of"):
        gp(**options)


def test_what_is_not_offered_says_so():
    model = gp()
    for call in (
        lambda: model.predict_y(XNEW, full_cov=True),
        lambda: model.predict_log_density((X, Y), full_cov=True),
        lambda: model.predict_f_samples(XNEW, full_output_cov=True),
    ):
        with pytest.raises(NotImplementedError, match="leave out"):
            call()


def test_inputs_and_grids_of_other_shapes_are_refused():
    model = gp()
    for ask in (model.predict_y, model.predict_f_quantiles):
        for shape in ((0, 1), (2, 3, 1)):
            with pytest.raises(DataError, match=r"Xnew has shape .* must be \[N, D\] here"):
                ask(np.zeros(shape))
    for full_cov in (True, False):
        with pytest.raises(
            DataError, match=r"Xnew has shape \(2, 3, 1\); it must be \[N, D\] here"
        ):
            model.predict_f_samples(np.zeros((2, 3, 1)), 4, full_cov=full_cov)
    for grid, message in (
        (np.zeros((3, 4)), r"must be \[G\], or \[N, G\]"),
        (np.zeros(0), r"must be \[G\], or"),
        (np.array([0.0, np.nan]), r"grid\[1\] is nan"),
    ):
        with pytest.raises(DataError, match=message):
            model.predict_f_density(XNEW[:2], grid)


def test_a_likelihood_without_moments_is_refused_when_the_model_is_built():
    with pytest.raises(DataError, match="Ordinal"):
        AffineIndependentGP(
            (X, np.round(Y)), matern(), gpflow.likelihoods.Ordinal(np.array([0.5, 1.5]))
        )
