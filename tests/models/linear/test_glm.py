"""Generalised linear models in both forms against the weight-space reference, and what they
refuse.
"""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, ModelError, UnknownOptionError
from gpflow_decoupled.models import (
    CVIGLM,
    CVIGP,
    DTC,
    LCLGLM,
    AffineIndependentGLM,
    SparseCVIGP,
    weights_posterior,
)
from gpflow_decoupled.optimizers import ConjugateComputation, sweep
from tests.reference import conjugate as cvi
from tests.reference import generalised_linear as glm
from tests.reference import likelihoods as lik
from tests.reference import sparse_conjugate as sp
from tests.reference.cases import spd

tfd = tfp.distributions
N, P = 12, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, P))
WIDE = RNG.normal(size=(N, 2 * N)) / np.sqrt(2 * N)
S, MEAN = spd(np.random.default_rng(1), P), np.array([0.4, -0.8, 0.3])
INTERCEPT = 4.0
LIKELIHOODS = {  # GPflow's, the reference, the nodes of GPflow's quadrature
    "gaussian": (lambda: gl.Gaussian(0.3), lik.gaussian(0.3), 20),
    "logit": (lambda: gl.Bernoulli(invlink=tf.sigmoid), lik.bernoulli_logit(), 20),
    "poisson": (gl.Poisson, lik.poisson(), 100),
    "student-t": (lambda: gl.StudentT(scale=0.6, df=4.0), cvi.student_t(4.0, 0.6), 20),
}
PRIORS = {  # the distribution, its mean and covariance
    "default": (lambda: None, np.zeros(P), np.eye(P)),
    "diagonal": (
        lambda: tfd.MultivariateNormalDiag(MEAN, np.array([0.5, 2.0, -1.0])),
        MEAN,
        np.diag([0.25, 4.0, 1.0]),
    ),
    "scalar": (lambda: tfd.Normal(MEAN, 0.5), MEAN, 0.25 * np.eye(P)),
    "factor": (lambda: tfd.MultivariateNormalTriL(MEAN, np.linalg.cholesky(S)), MEAN, S),
    "full": (lambda: tfd.MultivariateNormalFullCovariance(MEAN, S), MEAN, S),
    "low rank": (
        lambda: tfd.MultivariateNormalDiagPlusLowRank(MEAN, np.ones(P), MEAN[:, None]),
        MEAN,
        np.linalg.matrix_power(np.eye(P) + np.outer(MEAN, MEAN), 2),  # its scale is I + u u^T
    ),
    "float32": (
        lambda: tfd.MultivariateNormalDiag([0.5, 0.25, 0.0], [0.5, 2.0, 1.0]),
        np.array([0.5, 0.25, 0.0]),
        np.diag([0.25, 4.0, 1.0]),
    ),
}


def _labels(name: str, latents: int = 1, rows: np.ndarray = X) -> np.ndarray:
    rng = np.random.default_rng(2)
    eta = rows @ rng.normal(size=(rows.shape[1], latents)) + 0.3
    if name == "logit":
        return (rng.uniform(size=eta.shape) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    if name == "poisson":
        return rng.poisson(np.exp(0.5 * eta)).astype(float)
    return eta + 0.5 * rng.normal(size=eta.shape)


def _trained(model: Any, data: tuple) -> float:
    """The bound at the fixed point."""
    if isinstance(model, CVIGP):
        ConjugateComputation().run(model, tolerance=1e-18)
        return float(model.elbo())
    sweep(model, data, tolerance=1e-16, compile=False)
    return float(model.elbo(data))


def _reference(
    name: str, mean: np.ndarray, covariance: np.ndarray, y: np.ndarray, rows: np.ndarray = X
) -> tuple:
    """Mean and covariance of the weights with an intercept, and the bound."""
    columns = np.hstack([rows, np.ones((len(rows), 1))])
    precision = np.linalg.inv(
        np.diag([*np.zeros(len(mean)), INTERCEPT]) + np.pad(covariance, (0, 1))
    )
    prior_mean, (_, likelihood, order) = np.append(mean, 0.0), LIKELIHOODS[name]
    expect = cvi.quadrature(likelihood, y[:, 0], order)
    tied = glm.run(precision, prior_mean, columns, expect)
    return *glm.posterior(precision, prior_mean, tied), glm.bound(
        precision, prior_mean, columns, tied, expect
    )


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("form", ["weight", "function"])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_each_form_has_the_posterior_and_bound_of_weight_space(name, form):
    Y = _labels(name)
    model = CVIGLM(
        (X, Y),
        LIKELIHOODS[name][0](),
        prior=PRIORS["full"][0](),
        intercept_variance=INTERCEPT,
        form=form,
    )
    bound = _trained(model, (X, Y))
    mean, covariance, expected = _reference(name, MEAN, S, Y)
    assert_allclose(bound, expected, rtol=1e-9)
    posterior = weights_posterior(model)
    assert_allclose(posterior.mean, mean, rtol=1e-5, atol=1e-6)
    assert_allclose(posterior.covariance, covariance, rtol=1e-5, atol=1e-6)
    new = np.random.default_rng(4).normal(size=(5, P))
    ones = np.hstack([new, np.ones((5, 1))])
    f, var = model.predict_f(new)
    assert_allclose(f[:, 0], ones @ mean, rtol=1e-5, atol=1e-6)
    assert_allclose(var[:, 0], np.einsum("np,pq,nq->n", ones, covariance, ones), rtol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["weight", "function"])
@pytest.mark.parametrize("prior", [*PRIORS, "wide"])
def test_every_prior_is_the_one_that_is_used(prior, form):
    """And more weights than observations, which go to the data by themselves."""
    wide = prior == "wide"
    if wide:
        rows, name, options, parts = WIDE, "logit", {}, (np.zeros(2 * N), np.eye(2 * N))
    else:
        make, *parts = PRIORS[prior]
        rows, name, options = X, "gaussian", {"prior": make(), "form": form}
    Y = _labels(name, rows=rows)
    likelihood = LIKELIHOODS[name][0]()
    model = CVIGLM((rows, Y), likelihood, intercept_variance=INTERCEPT, **options)
    assert isinstance(model, CVIGP) == (wide or form == "function")
    m, V, evidence = _reference(name, *parts, Y, rows)
    assert_allclose(_trained(model, (rows, Y)), evidence, rtol=1e-9)
    posterior = weights_posterior(model)
    assert_allclose(posterior.mean, m, rtol=1e-5, atol=1e-7)
    assert_allclose(posterior.covariance, V, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("make", [CVIGLM, LCLGLM, AffineIndependentGLM])
def test_the_prior_of_f_is_that_of_the_weights(make):
    options = {"prior": PRIORS["full"][0](), "intercept_variance": INTERCEPT}
    model = make((X, _labels("gaussian")), gl.Gaussian(0.3), **options)
    assert_allclose(model.kernel(X), X @ S @ X.T + INTERCEPT, rtol=1e-10)
    assert_allclose(model.mean_function(X)[:, 0], X @ MEAN, rtol=1e-10)
    assert not model.kernel.trainable_variables and not model.mean_function.trainable_variables


def test_the_form_is_that_of_the_smaller_number():
    square, Y = WIDE[:, : N - 1], _labels("gaussian")
    assert isinstance(
        CVIGLM((square, Y), gl.Gaussian()), SparseCVIGP
    )  # N - 1 columns and the intercept
    assert isinstance(CVIGLM((WIDE[:, :N], Y), gl.Gaussian()), CVIGP)
    assert isinstance(CVIGLM((WIDE[:, :N], Y), gl.Gaussian(), intercept=False), SparseCVIGP)
    assert CVIGLM((square, Y), gl.Gaussian()).num_data == N
    streamed = CVIGLM((WIDE, Y), gl.Gaussian(), num_data=1000)
    assert isinstance(streamed, SparseCVIGP) and streamed.num_data == 1000


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["weight", "function"])
def test_without_an_intercept(form):
    Y = _labels("gaussian")
    model = CVIGLM((X, Y), gl.Gaussian(0.3), intercept=False, form=form)
    evidence = glm.log_evidence(np.eye(P), np.zeros(P), X, Y[:, 0], 0.3)
    assert_allclose(_trained(model, (X, Y)), evidence, rtol=1e-10)
    V = np.linalg.inv(np.eye(P) + X.T @ X / 0.3)
    mean, covariance = weights_posterior(model)
    assert_allclose(mean, V @ X.T @ Y[:, 0] / 0.3, rtol=1e-8)
    assert_allclose(covariance, V, rtol=1e-7, atol=1e-10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["weight", "function"])
def test_several_latents_have_weights_of_their_own(form):
    Y = _labels("gaussian", 2)
    model = CVIGLM(
        (X, Y), gl.Gaussian(0.3), prior=PRIORS["full"][0](), intercept_variance=INTERCEPT, form=form
    )
    bound = _trained(model, (X, Y))
    mean, covariance = weights_posterior(model)
    assert mean.shape == (P + 1, 2) and covariance.shape == (2, P + 1, P + 1)
    expected = [_reference("gaussian", MEAN, S, Y[:, latent : latent + 1]) for latent in range(2)]
    assert_allclose(bound, sum(one[2] for one in expected), rtol=1e-9)
    for latent, (m, V, _) in enumerate(expected):
        assert_allclose(mean[:, latent], m, rtol=1e-6)
        assert_allclose(covariance[latent], V, rtol=1e-6, atol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["weight", "function"])
@pytest.mark.parametrize("name", ["logit", "poisson"])
def test_a_broad_intercept_neither_overflows_nor_costs_precision(name, form):
    """Under the prior the expectations are infinite, or cannot be had by quadrature; both forms
    start from a narrower q.
    """
    rows = 3.0 * X
    Y = _labels(name)
    model = CVIGLM((rows, Y), LIKELIHOODS[name][0](), form=form)
    assert np.isfinite(model.elbo() if form == "function" else model.elbo((rows, Y)))
    assert np.mean(model.predict_f(rows)[1]) <= 1.0 + 1e-6
    assert_allclose(model.predict_f(rows)[0], 0.0, atol=1e-12)
    bound = _trained(model, (rows, Y))
    precision, columns = np.diag([*np.ones(P), 1e-4]), np.hstack([rows, np.ones((N, 1))])
    expect = cvi.quadrature(LIKELIHOODS[name][1], Y[:, 0], LIKELIHOODS[name][2])
    sites = sp.TiedSites(np.zeros(P + 1), 10.0 * np.eye(P + 1))
    for _ in range(200):
        sites = glm.step(precision, np.zeros(P + 1), columns, sites, expect, 0.3)
    assert_allclose(bound, glm.bound(precision, np.zeros(P + 1), columns, sites, expect), rtol=1e-9)
    m, V = glm.posterior(precision, np.zeros(P + 1), sites)
    mean, covariance = weights_posterior(model)
    assert_allclose(mean, m, rtol=1e-4, atol=1e-4)
    assert_allclose(covariance, V, rtol=1e-4, atol=1e-4)


@pytest.mark.exhaustive
def test_the_prior_is_not_trained():
    Y = _labels("student-t")
    model = CVIGLM((X, Y), LIKELIHOODS["student-t"][0](), prior=PRIORS["full"][0]())
    scale = model.likelihood.scale.numpy()
    gd.fit(model, (X, Y), steps=3, progress=False, compile=False)
    assert_allclose(model.kernel.kernels[0].covariance, S, rtol=1e-10)
    assert_allclose(model.mean_function.A[:, 0], MEAN)
    assert model.kernel.kernels[1].variance.numpy() == pytest.approx(1e4)
    assert model.likelihood.scale.numpy() != scale


def _call(**changes: Any) -> Any:
    options = {"data": (X, _labels("gaussian")), "likelihood": gl.Gaussian(), **changes}
    return lambda: CVIGLM(options.pop("data"), options.pop("likelihood"), **options)


Y = _labels("gaussian")
FULL, DIAG = tfd.MultivariateNormalFullCovariance, tfd.MultivariateNormalDiag
BAD = {
    "not a pair": ({"data": X}, "data is a ndarray; pass"),
    "Y rank 1": ({"data": (X, Y[:, 0])}, r"Y has shape \(12,\); use Y\[:, None\]"),
    "X rank 1": ({"data": (X[:, 0], Y)}, r"X has shape \(12,\); use X\[:, None\]"),
    "rows differ": ({"data": (X[1:], Y)}, "X has 11 rows and Y has 12"),
    "empty": ({"data": (X[:0], Y[:0])}, "X and Y have no rows"),
    "float32": ({"data": (X.astype(np.float32), Y)}, "X is float32 and the model float64"),
    "NaN": ({"data": (np.where(X > 1.0, np.nan, X), Y)}, r"X\[\d+, \d\] is nan; remove or impute"),
    "two": ({"data": (X, 2.0 + 0.0 * Y), "likelihood": gl.Bernoulli()}, "0|1"),
    "negative counts": ({"likelihood": gl.Poisson()}, "Poisson"),
    "zeros": (
        {"data": (np.vstack([X[:-1], np.zeros(P)]), Y), "intercept": False},
        "1 rows of X are all zero, row 11 first: .*remove them, or use intercept=True",
    ),
    "scalar": ({"prior": tfd.StudentT(4.0, 0.0, 1.0)}, "prior is a StudentT; pass a Normal, Multi"),
    "batch": ({"prior": tfd.Normal(np.zeros(P + 1), 1.0)}, r"batch shape \(4,\) and X has 3"),
    "covariance": ({"prior": S}, "prior is a ndarray; pass a Normal"),
    "size": (
        {"prior": DIAG(np.zeros(P + 1))},
        r"over an array of shape \[4\] and X has 3 columns: .*the intercept has a prior of its own",
    ),
    "several priors": ({"prior": DIAG(np.zeros((2, P)))}, r"array of shape \[2, 3\]"),
    "indefinite": (
        {"prior": FULL(np.zeros(3), S - 2.0 * np.eye(P))},
        r"covariance \(3 x 3\) is not positive definite: its smallest eigenvalue is -",
    ),
    "singular": (
        {"prior": tfd.MultivariateNormalTriL(MEAN, np.diag([1.0, 0.0, 1.0]))},
        "not positive def",
    ),
    "variance of zero": (
        {"prior": DIAG(MEAN, np.array([1.0, 0.0, 1.0]))},
        "prior has variance 0 for weight 1, and so is not positive definite",
    ),
    "infinite": (
        {"prior": DIAG(np.array([0.0, np.inf, 0.0]), np.ones(P))},
        "prior has a mean with entries that are not finite",
    ),
    "intercept": ({"intercept_variance": 0.0}, "intercept_variance=0.0 must be a number above 0"),
    "stream": (
        {"num_data": 100, "form": "function"},
        'num_data=100 and the data have 12 rows: .*form="weight"',
    ),
    "part": ({"num_data": 10}, "num_data=10 is less than the 12 rows"),
    "latents": (
        {"likelihood": gl.Bernoulli(), "num_latent_gps": 3},
        "Y has 1 columns and the model expects 3",
    ),
    "form": ({"form": "left"}, "form='left' is not known; use one of 'auto', 'weight', 'funct"),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("case", BAD)
def test_what_is_no_linear_model_is_refused(case):
    changes, message = BAD[case]
    with pytest.raises(UnknownOptionError if case == "form" else DataError, match=message):
        CVIGLM(**{"data": (X, Y), "likelihood": gl.Gaussian(), **changes})


def test_models_without_weights_have_no_posterior_of_them():
    kernel, linear = gpflow.kernels.Matern32(), gpflow.kernels.Linear(np.ones(P))
    with pytest.raises(TypeError, match="This is no linear model. .*Matern32 is not their kernel"):
        weights_posterior(CVIGP((X, Y), kernel, gl.Gaussian()))
    with pytest.raises(TypeError, match="known only with inducing.Weights; use CVIGLM"):
        weights_posterior(SparseCVIGP(linear, gl.Gaussian(), X[:4]))
    with pytest.raises(TypeError, match="mean function is a Polynomial"):
        weights_posterior(
            CVIGP((X, Y), linear, gl.Gaussian(), mean_function=gpflow.functions.Polynomial(2, P))
        )
    sparse = gpflow.models.SVGP(linear, gl.Gaussian(), X[:4])
    for model in (sparse, DTC((X, Y), linear, X[:4]), None):
        with pytest.raises(
            ModelError, match=rf"got {type(model).__name__}: make the model by CVIGLM, LCLGLM or"
        ):
            weights_posterior(model)


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["weight", "function"])
def test_counts_have_an_exposure_for_each_row(form: str) -> None:
    rng = np.random.default_rng(5)
    x, exposure = rng.normal(size=(200, 2)), rng.uniform(0.5, 20.0, (200, 1))
    counts = rng.poisson(exposure * np.exp(0.5 + x[:, :1])).astype(float)
    likelihood = gd.likelihoods.RowLikelihood(gl.Poisson(), ["offset"])
    data = x, np.hstack([counts, np.log(exposure)])
    model = CVIGLM(data, likelihood, form=form)
    assert model.num_latent_gps == 1
    if form == "weight":
        sweep(model, data)
    else:
        ConjugateComputation(0.5).run(model)
    assert_allclose(weights_posterior(model).mean, [1.0, 0.0, 0.5], atol=0.1)
