"""`SparseCVIGP` is sparse conjugate-computation VI: its sites and bound are the reference's, its
step is GPflow's.
"""

from __future__ import annotations

import copy
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.bases import CoupledBasis, HybridBasis, OrthogonalBasis, SiteBasis
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.inducing import LinearWeights, Weights
from gpflow_decoupled.models import SparseCVIGP
from gpflow_decoupled.optimizers import NaturalGradient
from tests.bounds.registry import matern, numpy_kernel
from tests.optimizers.problems import BETA, GAMMA, JITTER, NOISE, NUM_DATA, TREND, X, observations
from tests.reference import conjugate as cvi
from tests.reference import likelihoods as lik
from tests.reference import sparse_conjugate as sp
from tests.reference.cases import spd

RHOS = (1.0, 0.6, 0.3)
BATCHES = (slice(0, 5), slice(5, 9), slice(2, 8))
LIKELIHOODS = {  # GPflow's, the reference
    "gaussian": (lambda: gl.Gaussian(NOISE), lik.gaussian(NOISE)),
    "logit": (lambda: gl.Bernoulli(invlink=tf.sigmoid), lik.bernoulli_logit()),
    "poisson": (gl.Poisson, lik.poisson()),
    "student-t": (lambda: gl.StudentT(scale=0.4, df=3.0), cvi.student_t(3.0, 0.4)),
}


@pytest.fixture(autouse=True)
def _jitter():
    gpflow.config.set_default_jitter(JITTER)


def _model(
    name: str = "logit", points: Any = BETA, latents: int = 1, **options: Any
) -> tuple[SparseCVIGP, np.ndarray]:
    likelihood = LIKELIHOODS[name][0]()
    options = {"mean_function": copy.deepcopy(TREND), "num_data": NUM_DATA, **options}
    model = SparseCVIGP(matern(1.3, 0.8), likelihood, points, num_latent_gps=latents, **options)
    return model, observations(likelihood, latents)


class FixedNodes(gl.StudentT):
    """The same noise by a log density of a user's own, of which nothing more is known."""

    def _scalar_log_prob(self, X, F, Y):
        return super()._scalar_log_prob(X, F, Y)


def _matrices(model: SparseCVIGP, rows: slice = slice(None)) -> tuple:
    kernel = numpy_kernel(model.kernel, 0)
    Kuu = kernel(BETA, BETA) + JITTER * np.eye(len(BETA))
    return Kuu, kernel(BETA, X[rows]), np.diag(kernel(X[rows], X[rows]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_steps_on_minibatches_are_those_of_projected_sites(name):
    """In every step, with a mean function, which the sites leave out."""
    model, Y = _model(name)
    sites, trend = sp.no_sites(len(BETA)), TREND(X).numpy()[:, 0]
    for rho, rows in zip(RHOS, BATCHES):
        NaturalGradient(rho).minimize(model, (X[rows], Y[rows]))
        order = 20 if name == "logit" else 100  # as GPflow integrates it
        expect = cvi.quadrature(LIKELIHOODS[name][1], Y[rows, 0], order)
        if name == "student-t":
            expect = cvi.quadrature(
                LIKELIHOODS[name][1], Y[rows, 0], 4000, cvi.trapezoid_expectation
            )
        scale = NUM_DATA / len(X[rows])
        sites = sp.step(
            *_matrices(model, rows), sites, "projected", expect, rho, trend[rows], scale
        )
        lambda_1, Lambda_2 = model.sites()
        assert_allclose(lambda_1[:, 0], sites.lambda1, rtol=1e-8, atol=1e-8)
        assert_allclose(Lambda_2[0], sites.Lambda2, rtol=1e-8, atol=1e-8)
    bound = sp.projected_bound(*_matrices(model, rows), sites, expect, trend[rows], scale)
    assert_allclose(model.elbo((X[rows], Y[rows])), bound, rtol=1e-9)


def test_sites_of_several_latents_give_back_the_posterior():
    model, Y = _model("poisson", latents=2, mean_function=None)
    assert_allclose(model.sites()[0], 0.0, atol=1e-12)  # q is the prior
    assert_allclose(model.sites()[1], 0.0, atol=1e-9)
    for _ in range(3):
        NaturalGradient(0.5).minimize(model, (X, Y))
    lambda_1, Lambda_2 = model.sites()
    assert lambda_1.shape == (4, 2) and Lambda_2.shape == (2, 4, 4)
    Kuu, chol = _matrices(model)[0], np.linalg.cholesky(_matrices(model)[0])
    for latent in range(2):
        m, S = sp.moments(
            Kuu, sp.TiedSites(lambda_1.numpy()[:, latent], Lambda_2.numpy()[latent]), "projected"
        )
        root = chol @ model.basis.q_sqrt.numpy()[latent]
        assert_allclose(m, chol @ model.basis.q_mu.numpy()[:, latent], rtol=1e-8)
        assert_allclose(S, root @ root.T, rtol=1e-8, atol=1e-10)


def test_separate_kernels_have_separate_sites():
    kernel = gpflow.kernels.SeparateIndependent([matern(1.3, 0.8), matern(0.6, 1.4)])
    model = SparseCVIGP(kernel, gl.Gaussian(NOISE), BETA, num_data=len(X))
    NaturalGradient(1.0).minimize(model, (X, observations(model.likelihood, 2)))
    lambda_1, Lambda_2 = model.sites()
    for latent in range(2):
        k = numpy_kernel(kernel, latent)
        P = np.linalg.solve(k(BETA, BETA) + JITTER * np.eye(4), k(BETA, X))
        assert_allclose(
            lambda_1[:, latent], P @ observations(model.likelihood, 2)[:, latent] / NOISE, rtol=1e-8
        )
        assert_allclose(Lambda_2[latent], P @ P.T / NOISE, rtol=1e-8, atol=1e-8)


def test_sites_at_the_data_are_the_sites_of_the_data():
    """Z = X: P is the identity, so that the tied precision is diagonal; its diagonal and lambda_1
    are (C13).
    """
    gpflow.config.set_default_jitter(1e-12)
    model, Y = _model("logit", X, num_data=len(X))
    expect, K = (
        cvi.quadrature(lik.bernoulli_logit(), Y[:, 0], 20),
        numpy_kernel(model.kernel, 0)(X, X),
    )
    sites = cvi.no_sites(len(X))
    for _ in range(3):
        NaturalGradient(0.7).minimize(model, (X, Y))
        u, var = cvi.marginals(K, np.zeros(len(X)), sites)
        _, g, h = expect(u + TREND(X).numpy()[:, 0], var)
        sites = cvi.site_step(sites, cvi.site_target(u, g, h), 0.7)
    lambda_1, Lambda_2 = model.sites()
    assert_allclose(lambda_1[:, 0], sites.nu, rtol=1e-6, atol=1e-6)
    assert_allclose(Lambda_2[0], np.diag(sites.tau), rtol=1e-6, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_step_is_a_natural_gradient_step_of_gpflows_svgp(name):
    model, Y = _model(name)
    if name == "student-t":  # by GPflow's nodes, which do not follow the labels
        model.likelihood = FixedNodes(scale=0.4, df=3.0)
    svgp = gpflow.models.SVGP(
        matern(1.3, 0.8),
        gpflow.utilities.deepcopy(model.likelihood),
        BETA,
        mean_function=TREND,
        num_data=NUM_DATA,
        whiten=True,
    )
    data = tf.constant(X), tf.constant(Y)
    for rho in (0.5, 0.2):
        pair = [(svgp.q_mu, svgp.q_sqrt)]
        gpflow.optimizers.NaturalGradient(rho).minimize(lambda: svgp.training_loss(data), pair)
        NaturalGradient(rho).minimize(model, data)
    assert_allclose(model.basis.q_mu, svgp.q_mu, rtol=1e-8, atol=1e-9)
    assert_allclose(model.basis.q_sqrt, svgp.q_sqrt, rtol=1e-8, atol=1e-9)
    assert_allclose(model.elbo(data), svgp.elbo(data), rtol=1e-11)


@pytest.mark.exhaustive
def test_an_orthogonal_basis_has_sites_beside_its_mean_points():
    model, Y = _model("logit", OrthogonalBasis(GAMMA, BETA))
    model.basis.a_gamma.assign(np.random.default_rng(0).normal(size=(len(GAMMA), 1)))
    before = model.basis.a_gamma.numpy()
    NaturalGradient(1.0).minimize(model, (X, Y))
    fixed_mean = model.predict_f(X)[0] - _own_mean(model)
    sites = sp.step(
        *_matrices(model),
        sp.no_sites(4),
        "projected",
        _logit(Y),
        1.0,
        fixed_mean.numpy()[:, 0],
        NUM_DATA / len(X),
    )
    lambda_1, Lambda_2 = model.sites()
    assert_allclose(lambda_1[:, 0], sites.lambda1, rtol=1e-8, atol=1e-8)
    assert_allclose(Lambda_2[0], sites.Lambda2, rtol=1e-8, atol=1e-8)
    assert np.array_equal(model.basis.a_gamma.numpy(), before)
    model.num_data = len(X)
    result = gd.fit(model, (X, Y), steps=2, progress=False, compile=False, mean_solver="newton")
    assert result.steps == 2 and not np.allclose(model.basis.a_gamma, before)


def _logit(Y: np.ndarray) -> Any:
    return cvi.quadrature(lik.bernoulli_logit(), Y[:, 0], 20)


def _own_mean(model: SparseCVIGP) -> np.ndarray:
    """The part A^T m~ of the mean [N, 1]."""
    state = model.basis.factor(model.kernel)
    (A,) = model.basis.features(state, model.kernel, tf.constant(X)).minus
    return A.numpy()[0].T @ state.mean.numpy()


@pytest.mark.exhaustive
def test_fit_trains_it():
    model, Y = _model("logit", num_data=None)
    before = model.kernel.lengthscales.numpy()
    result = gd.fit(model, (X, Y), steps=20, progress=False, compile=False)
    assert result.history["elbo"][-1] > result.history["elbo"][0]
    assert model.num_data == len(X) and model.kernel.lengthscales.numpy() != before


def test_what_it_is_tied_to():
    model, _ = _model("logit")
    assert isinstance(model.inducing_variable, gpflow.inducing_variables.InducingPoints)
    weights = Weights(2)
    assert SparseCVIGP(gpflow.kernels.Linear(), gl.Gaussian(), weights).inducing_variable is weights
    points = gpflow.inducing_variables.InducingPoints(BETA)
    assert _model("logit", points)[0].inducing_variable is points
    basis = CoupledBasis(BETA)
    assert _model("logit", basis)[0].basis is basis
    assert SparseCVIGP(matern(1.0, 1.0), gl.MultiClass(3), BETA).num_latent_gps == 3


def test_weights_of_other_inputs_are_refused_when_data_come():
    prior = LinearWeights(spd(np.random.default_rng(0), 3))
    with pytest.raises(DataError, match="X has 2 columns for 3 weights"):
        SparseCVIGP(prior, gl.Gaussian(), Weights(3), num_data=9).elbo((X, X[:, :1]))


BAD = {
    "points of rank 1": (
        lambda: BETA[:, 0],
        r"inducing_variable has shape \[4\], but must be \[M, D\]",
    ),
    "points that are equal": (lambda: np.ones((2, 2)), "inducing_variable has 1 duplicate rows"),
    "NaN": (lambda: np.full((2, 2), np.nan), "inducing_variable has NaN or infinite values"),
    "unwhitened": (
        lambda: OrthogonalBasis(GAMMA, BETA, whiten=False),
        (
            "inducing_variable is a OrthogonalBasis, which cannot keep one site.*with whiten=True,"
            " or use BasisGP"
        ),
    ),
    "another basis": (
        lambda: HybridBasis(GAMMA, BETA),
        "pass an OrthogonalBasis or a CoupledBasis",
    ),
    "a basis on all data": (
        lambda: SiteBasis(BETA),
        "is a SiteBasis, which cannot keep one site.*or use BasisGP",
    ),
    "too few latents": (
        lambda: OrthogonalBasis(GAMMA, BETA, 2),
        "num_latent_gps=1 and the basis has 2; leave",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_tied_to_is_refused(case):
    make, message = BAD[case]
    with pytest.raises(DataError, match=message):
        _model("gaussian", make())


def test_latents_that_disagree_are_refused():
    with pytest.raises(DataError, match="num_latent_gps says 2, the likelihood MultiClass says 3"):
        SparseCVIGP(matern(1.0, 1.0), gl.MultiClass(3), BETA, num_latent_gps=2)
