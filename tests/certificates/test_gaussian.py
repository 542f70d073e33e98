"""Certificates of Gaussian weights, and the Laplace approximation: references, other routes to the
same numbers, coverage.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from gpflow_decoupled.certificates import (
    PacBayesCertificate,
    certify_gaussian,
    laplace_weights,
    pac_bayes_certificate,
)
from gpflow_decoupled.errors import DataError, NumericalError, UnknownOptionError
from gpflow_decoupled.likelihoods import BernoulliLogit
from gpflow_decoupled.models import CVIGLM, CVIGP, weights_posterior
from tests.reference import pac_bayes as ref
from tests.reference.grams import squared_exponential

RNG = np.random.default_rng(0)
X = np.hstack([RNG.standard_normal((40, 2)), np.ones((40, 1))])
Y = (RNG.uniform(size=(40, 1)) < 1.0 / (1.0 + np.exp(-X @ [[2.0], [-1.0], [0.5]]))).astype(int)
ROOT = np.array([[1.5, 0.0, 0.0], [0.4, 0.8, 0.0], [-0.3, 0.2, 2.0]])
PRIOR = np.array([0.3, -0.2, 0.1]), ROOT @ ROOT.T


certified = partial(certify_gaussian, hyperparameters="fixed")


def _expected(
    posterior: tuple, prior: tuple, features: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
    mean, cov = (np.asarray(part) for part in posterior)
    risk = ref.gibbs_risk(labels[:, 0], features @ mean, np.diag(features @ cov @ features.T))
    kl = ref.gaussian_kl(mean, cov, *prior)
    return {"gibbs_error": risk, "kl": kl, **ref.bounds(risk, kl, len(labels), 0.05)}


def _check(certificate: PacBayesCertificate, expected: dict[str, float]) -> None:
    for name, value in expected.items():
        assert_allclose(
            getattr(certificate, name),
            min(value, 1.0) if name != "kl" else value,
            rtol=1e-8,
            err_msg=name,
        )


def test_certificate_is_that_of_the_reference() -> None:
    posterior = RNG.standard_normal(3), 0.1 * ROOT @ ROOT.T + 0.05 * np.eye(3)
    certificate = certified((X, Y), posterior, PRIOR)
    _check(certificate, _expected(posterior, PRIOR, X, Y))
    assert certificate.holds and certificate.n == 40
    assert certified((X, Y), PRIOR, PRIOR).kl == pytest.approx(0.0, abs=1e-14)
    third = certify_gaussian((X, Y), posterior, PRIOR, 0.15, hyperparameters="split", settings=3)
    assert third.bound == pytest.approx(certificate.bound, rel=1e-12) and third.holds
    with pytest.warns(UserWarning, match="The prior was chosen on these data"):
        same = certify_gaussian((X, Y), posterior, PRIOR, hyperparameters="same-data")
    assert same.holds is False


def test_laplace_is_that_of_the_reference() -> None:
    posterior = laplace_weights((X, Y), PRIOR)
    mean, cov = ref.laplace(X, Y[:, 0], *PRIOR)
    assert_allclose(posterior.mean, mean, atol=1e-6)
    assert_allclose(posterior.covariance, cov, rtol=1e-6)
    _check(
        certified((X, Y), posterior, PRIOR),
        _expected(posterior, PRIOR, X, Y),
    )


def test_scikit_learns_logistic_regression_has_a_certificate() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    regression = linear_model.LogisticRegression(C=4.0, fit_intercept=False, tol=1e-10)
    fitted = regression.fit(X, Y[:, 0])  # prior N(0, 4 I)
    prior = np.zeros(3), 4.0 * np.eye(3)
    p = fitted.predict_proba(X)[:, 1]
    cov = np.linalg.inv(np.eye(3) / 4.0 + X.T @ (X * (p * (1.0 - p))[:, None]))
    theirs = certified((X, Y), (fitted.coef_[0], cov), prior)
    ours = certified((X, Y), laplace_weights((X, Y), prior), prior)
    assert theirs.bound == pytest.approx(ours.bound, rel=1e-6)
    assert theirs.kl == pytest.approx(ours.kl, rel=1e-5)
    assert theirs.bayes_error == np.mean(fitted.predict(X) != Y[:, 0])


def test_weights_of_a_model_and_the_model_agree() -> None:
    model = CVIGLM((X[:, :2], Y.astype(float)), BernoulliLogit(), intercept_variance=2.0)
    model.basis.q_mu.assign([[1.0], [-0.5], [0.2]])
    certificate = pac_bayes_certificate(model, (X[:, :2], Y), hyperparameters="fixed")
    prior = np.zeros(3), np.diag([1.0, 1.0, 2.0])
    again = certify_gaussian(
        (X, Y), tuple(map(np.asarray, weights_posterior(model))), prior, hyperparameters="fixed"
    )
    assert again.kl == pytest.approx(certificate.kl, rel=1e-6)
    assert again.bound == pytest.approx(certificate.bound, rel=1e-6)


def test_values_of_a_gaussian_process_are_weights() -> None:
    """Laplace of a GP classifier: the identity as features, k(X, X) as prior; as a CVIGP with the
    sites of that posterior.
    """
    places, labels = X[:15, :2], Y[:15]
    gram = squared_exponential(places, places, 3.0, 1.0) + 1e-6 * np.eye(15)
    prior = np.zeros(15), gram
    mean, cov = (np.asarray(part) for part in laplace_weights((np.eye(15), labels), prior))
    certificate = certified((np.eye(15), labels), (mean, cov), prior)
    assert certificate.kl == pytest.approx(
        ref.function_kl(gram, np.linalg.solve(gram, mean), cov), rel=1e-7
    )
    p = 1.0 / (1.0 + np.exp(-mean))
    assert_allclose(mean, gram @ (labels[:, 0] - p), atol=1e-9)  # the mode of a GP classifier
    model = CVIGP(
        (places, labels.astype(float)),
        gpflow.kernels.SquaredExponential(3.0, 1.0),
        BernoulliLogit(),
    )
    tau = p * (1.0 - p)
    model.basis.tau.assign(tau[:, None])
    model.basis.nu.assign((labels[:, 0] - p + tau * mean)[:, None])
    other = pac_bayes_certificate(model, (places, labels), hyperparameters="fixed")
    assert certificate.kl == pytest.approx(other.kl, rel=1e-4)  # one of the two has jitter
    assert certificate.gibbs_error == pytest.approx(other.gibbs_error, rel=1e-4)


def test_the_mode_is_found_where_newton_alone_overshoots() -> None:
    """Separable classes, huge features, a wide prior and more weights than rows: the gradient
    vanishes at the mean.
    """
    for scale, spread, columns in ((1.0, 1e6, 1), (1e3, 1.0, 2), (1.0, 100.0, 60)):
        features = scale * np.random.default_rng(1).standard_normal((40, columns))
        labels = (features[:, :1] > 0.0).astype(int)
        prior = np.zeros(columns), spread * np.eye(columns)
        mean, cov = (np.asarray(part) for part in laplace_weights((features, labels), prior))
        residual = labels[:, 0] - 1.0 / (1.0 + np.exp(-np.clip(features @ mean, -500.0, 500.0)))
        gradient = np.sqrt(spread) * (features.T @ residual - mean / spread)
        assert np.max(np.abs(gradient)) < 1e-6 * (1.0 + np.max(np.abs(mean)) / np.sqrt(spread))
        assert np.all(np.linalg.eigvalsh(cov) > 0.0)


@pytest.mark.exhaustive
def test_the_certificate_of_laplace_is_violated_seldom() -> None:
    """An example is one of six points, each with a probability of its own, so that the risk is
    known.
    """
    rng = np.random.default_rng(2)
    points = np.hstack([rng.standard_normal((6, 2)), np.ones((6, 1))])
    chances = 1.0 / (1.0 + np.exp(-points @ [3.0, -2.0, 0.0]))
    prior, delta = (np.zeros(3), 4.0 * np.eye(3)), 0.2
    risks, bounds, rates = [], [], []
    for _ in range(40):
        rows = rng.integers(0, 6, 60)
        labels = (rng.uniform(size=60) < chances[rows]).astype(int)[:, None]
        posterior = laplace_weights((points[rows], labels), prior)
        certificate = certified((points[rows], labels), posterior, prior, delta)
        mean, cov = (np.asarray(part) for part in posterior)
        deviation = np.sqrt(np.einsum("np,pq,nq->n", points, cov, points))
        positive = norm.cdf(points @ mean / deviation)
        risks.append(float(np.mean(chances * (1.0 - positive) + (1.0 - chances) * positive)))
        bounds.append(certificate.bound)
        rates.append(certificate.gibbs_error)
    assert np.mean(np.array(risks) > bounds) <= delta and np.mean(bounds) < 0.6
    assert np.mean(np.array(risks) > rates) > delta  # the rate on the sample is no bound


ZERO, ONE = np.zeros(3), np.eye(3)
GOOD: dict[str, Any] = {
    "data": (X, Y), "posterior": (ZERO, ONE), "prior": (ZERO, ONE), "hyperparameters": "fixed",
}  # fmt: skip
REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "pair": ({"posterior": ZERO}, DataError, r"posterior is a ndarray; pass \(mean \[p\], covar"),
    "mean": ({"posterior": (ZERO[:2], ONE)}, DataError, r"mean has shape \(2,\) and X has 3"),
    "diagonal": ({"prior": (ZERO, ZERO)}, DataError, r"covariance has shape \(3,\) .* \[3, 3\]"),
    "NaN": ({"prior": (ZERO * np.nan, ONE)}, DataError, r"prior's mean\[0\] is nan"),
    "asymmetric": ({"posterior": (ZERO, ROOT)}, DataError, "is not symmetric; pass 0.5"),
    "indefinite": ({"posterior": (ZERO, -ONE)}, NumericalError, "posterior's cov.* not positive"),
    "singular": ({"prior": (ZERO, 0.0 * ONE)}, NumericalError, "prior's cov.* not positive"),
    "labels": ({"data": (X, Y + 1)}, DataError, "Y"),
    "flat labels": ({"data": (X, Y[:, 0])}, DataError, r"Y has shape \(40,\); use Y\[:, None\]"),
    "delta": ({"delta": 1.0}, DataError, "delta=1.0"),
    "origin": ({"hyperparameters": "guess"}, UnknownOptionError, "hyperparameters"),
    "float32": ({"data": (X.astype(np.float32), Y)}, DataError, "X is float32"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    options, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        certify_gaussian(**{**GOOD, **options})


def test_what_laplace_refuses() -> None:
    with pytest.raises(DataError, match="prior's mean has shape"):
        laplace_weights((X, Y), (np.zeros(2), ONE))
    with pytest.raises(NumericalError, match="the prior's covariance"):
        laplace_weights((X, Y), (ZERO, -ONE))
    with pytest.raises(DataError, match="X has 40 rows and Y has 3"):
        laplace_weights((X, Y[:3]), (ZERO, ONE))
