"""The check of expectations at the end of a run, and the bound of a likelihood that is much
narrower than q(f).
"""

from __future__ import annotations

import re
import warnings

import gpflow
import numpy as np
import pytest
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import trapezoid

import gpflow_decoupled
from gpflow_decoupled.diagnostics import warn_of_quadrature
from gpflow_decoupled.likelihoods import Laplace
from gpflow_decoupled.models import CVIGP, LCLGP, ODVGP, AffineIndependentGP, SparseCVIGP
from gpflow_decoupled.optimizers import (
    AffineIndependentAscent,
    ConjugateComputation,
    LinearlyConstrainedLagrangian,
    OpperArchambeau,
    sweep,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:A row of X is typically"
)  # these latents are meant to be independent
SCALE, DF = 0.02, 3.0
X = (
    3.0 * np.arange(12.0)[:, None]
)  # so far apart that the latents are independent, and the evidence a product
Y = np.sin(3.0 * X) + 0.1 * np.random.default_rng(0).normal(size=X.shape)


def kernel(variance: float = 4.0) -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern32(variance=variance, lengthscales=0.1)


def narrow() -> gl.Likelihood:
    return gl.StudentT(scale=SCALE, df=DF)


class OwnStudentT(gl.StudentT):
    """A class with a log density of a user's own, whose place and width are not known."""

    def _scalar_log_prob(self, X, F, Y):
        return super()._scalar_log_prob(X, F, Y)


def fine_bound(model, mean, variance, kl):
    """The bound of moments [N] by panels that are graded towards each label."""
    x, w = np.polynomial.legendre.leggauss(16)
    total, scale = -kl, float(model.likelihood.scale.numpy())
    for m, s, y in zip(mean, np.sqrt(variance), Y[:, 0]):
        edges = np.clip(y + scale * np.sinh(np.linspace(-20, 20, 801)), m - 9 * s, m + 9 * s)
        edges = np.unique(np.concatenate([edges, m + s * np.linspace(-9, 9, 91)]))
        half = 0.5 * np.diff(edges)[:, None]
        f = 0.5 * (edges[1:] + edges[:-1])[:, None] + half * x
        total += np.sum(
            half * w * stats.norm.pdf(f, m, s) * stats.t.logpdf((y - f) / scale, DF)
        ) - np.log(scale)
    return total


@pytest.mark.exhaustive
def test_bound_of_a_narrow_likelihood_is_one():
    model = LCLGP((X, Y), kernel(), narrow())
    for rule in [LinearlyConstrainedLagrangian(), OpperArchambeau()]:
        bound = rule.run(model).elbo
        state = model.basis.factor(model.kernel)
        moments = state.mean.numpy()[:, 0], state.variance.numpy()[:, 0]
        assert_allclose(
            model.elbo(), fine_bound(model, *moments, float(model.basis.prior_kl(state))), rtol=1e-8
        )
        assert_allclose(bound, model.elbo(), rtol=1e-8)
        f = np.sinh(np.linspace(-12, 12, 200_001)) * SCALE  # residuals
        density = stats.t.pdf(f / SCALE, DF) / SCALE
        evidence = sum(
            np.log(trapezoid(stats.norm.pdf(y - f, 0, 2.0) * density, f)) for y in Y[:, 0]
        )
        assert bound < evidence


def _name(likelihood: gl.Likelihood) -> str:
    return type(likelihood).__name__


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["sites", "sites of an own class", "inducing points"])
def test_the_bound_of_narrow_noise_is_one(kind):
    """And steps of the sites do not stall between nodes."""
    if kind != "inducing points":
        likelihood = narrow() if kind == "sites" else OwnStudentT(scale=SCALE, df=DF)
        model = CVIGP((X, Y), kernel(), likelihood)
        result = ConjugateComputation().run(model)
        assert result.converged and result.shortened_steps == 0
        state = model.basis.factor(model.kernel)
        mean, variance = state.mean.numpy()[:, 0], state.variance.numpy()[:, 0]
        kl = float(model.basis.prior_kl(state))
    else:
        model = SparseCVIGP(kernel(), narrow(), X[::2], num_data=len(X))
        sweep(model, (X, Y), block=6, passes=4)
        mean, variance = (part.numpy()[:, 0] for part in model.predict_f(X))
        kl = float(model.prior_kl())
    bound = model.elbo((X, Y)) if kind == "inducing points" else model.elbo()
    assert_allclose(bound, fine_bound(model, mean, variance, kl), rtol=1e-8)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "likelihood", [gl.StudentT(0.5), gl.Bernoulli(), gl.Gaussian(1e-4), gl.Poisson()], ids=_name
)
def test_resolved_likelihoods_are_not(likelihood):
    labels = Y if isinstance(likelihood, (gl.StudentT, gl.Gaussian)) else 1.0 * (Y > 0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The bound of")
        ConjugateComputation().run(CVIGP((X, labels), kernel(0.5), likelihood))
        gpflow_decoupled.fit(
            ODVGP(kernel(0.5), likelihood, X[::2], X[1::2]), (X, labels), steps=3, progress=False
        )


def _affine(likelihood, **options) -> AffineIndependentGP:
    rng = np.random.default_rng(1)
    model = AffineIndependentGP((X, Y), kernel(4.0), likelihood, **options)
    basis = model.basis
    basis.map.assign_matrix(np.diag(rng.uniform(0.5, 0.9, size=len(X))))
    basis.b.assign(rng.normal(size=len(X)))
    basis.theta.assign(np.full(basis.theta.shape, 4.0))
    return model


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "make, options, name",
    [
        (lambda: Laplace(0.3), {"route": "frequency_sum", "frequencies": 2}, "frequencies"),
        (narrow, {"route": "spectral", "points": 128}, "points"),
    ],
)
def test_too_few_frequencies_are_told_with_the_bound_of_enough(make, options, name):
    coarse, fine = _affine(make(), **options), _affine(make(), frequencies=512, points=16384)
    bound = float(coarse.elbo())
    with pytest.warns(
        UserWarning, match=f"not accurate.*{name} instead of .*train again"
    ) as record:
        warn_of_quadrature(coarse, bound)
    told = float(re.search(r"it is (-?[0-9.]+) nats", str(record[0].message)).group(1))
    assert abs(told - float(fine.elbo())) < 0.05 * abs(bound - float(fine.elbo()))
    advised = int(re.search(rf"{name}=(\d+)", str(record[0].message)).group(1))
    better = _affine(make(), **{**options, name: advised})
    warn_of_quadrature(better, float(better.elbo()))  # silent, as warnings are errors


@pytest.mark.exhaustive
def test_enough_frequencies_are_silent():
    model = _affine(Laplace(0.3))
    warn_of_quadrature(model, float(model.elbo()))
    model.basis.assign_base("normal")
    warn_of_quadrature(model, float(model.elbo()))


@pytest.mark.exhaustive
def test_a_run_of_an_affine_independent_model_is_checked_once(monkeypatch):
    """Also by `fit`, which runs several ascents."""
    asked = []

    def message(model, elbo, observations, now):
        asked.append(elbo)
        return f"The bound of {elbo} nats is not accurate: a stub."

    monkeypatch.setattr("gpflow_decoupled.diagnostics.accuracy._complaint", message)
    model = AffineIndependentGP((X[:4], Y[:4]), kernel(1.0), Laplace(0.3))
    with pytest.warns(UserWarning, match="is not accurate") as record:
        result = AffineIndependentAscent(max_evaluations=3).run(model)
    assert len(record) == 1 and asked == [result.elbo]
    with pytest.warns(UserWarning, match="is not accurate") as record:
        fitted = gpflow_decoupled.fit(model, steps=2, progress=False)
    assert len(record) == 1 and asked[-1] == fitted.elbo
