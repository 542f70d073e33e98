"""Which labels and likelihoods are refused, how a likelihood of one's own is declared, and the
general site loss.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled import likelihoods as own
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import registry
from gpflow_decoupled.likelihoods.laplace import laplace_site
from gpflow_decoupled.likelihoods.registry import is_logit
from tests.likelihoods.sites.site_cases import BINARY, CASES, COUNTS, POSITIVE, REAL, SIGMA, H

OUTSIDE = {
    "logit": (own.BernoulliLogit(), -1.0, "BernoulliLogit, which takes 0 or 1"),
    "probit": (own.BernoulliProbit(), 2.0, "BernoulliProbit, which takes 0 or 1"),
    "negative binomial": (own.NegativeBinomial(), 0.5, "NegativeBinomial, which takes counts"),
    "Poisson": (gl.Poisson(), -1.0, "Poisson, which takes counts"),
    "gamma": (gl.Gamma(), -0.5, "Gamma, which takes numbers above 0"),
    "exponential of 0": (gl.Exponential(), 0.0, "exactly 0"),
    "not a number": (gl.Gaussian(), np.nan, "1 entries that are not finite"),
}


@pytest.mark.parametrize("likelihood, value, words", OUTSIDE.values(), ids=OUTSIDE)
def test_labels_outside_the_support(likelihood, value, words):
    with pytest.raises(DataError, match=words):
        own.site_loss(likelihood, np.array([[1.0], [value]]))


@pytest.mark.parametrize("Y", [np.zeros(3), np.zeros((3, 1, 1))])
def test_labels_of_another_rank(Y):
    with pytest.raises(DataError, match=r"it must be \[N, L\].*use Y\[:, None\]"):
        own.site_loss(gl.Gaussian(), Y)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, "wide"])
@pytest.mark.parametrize("kind, name", [(own.Laplace, "scale"), (own.NegativeBinomial, "size")])
def test_parameters_that_are_not_positive(kind, name, value):
    with pytest.raises(DataError, match=f"{name}="):
        kind(value)


BAD_PARAMETERS = {
    "Gaussian": (gl.Gaussian, "variance", REAL),
    "Student-t": (gl.StudentT, "scale", REAL),
    "Laplace": (own.Laplace, "scale", REAL),
    "gamma": (gl.Gamma, "shape", POSITIVE),
    "negative binomial": (own.NegativeBinomial, "size", COUNTS),
}


@pytest.mark.parametrize("kind, name, Y", BAD_PARAMETERS.values(), ids=BAD_PARAMETERS)
def test_parameters_that_are_negative_or_functions(kind, name, Y):
    """A Parameter can be replaced by one without a transform."""
    likelihood = kind()
    setattr(likelihood, name, gpflow.Parameter(-0.3))
    with pytest.raises(DataError, match=r"is -0\.3; it must be positive and finite"):
        own.site_loss(likelihood, Y)
    setattr(likelihood, name, gpflow.functions.Linear())
    with pytest.raises(DataError, match="is a Linear, a function of the inputs"):
        own.site_loss(likelihood, Y)


UNKNOWN = {
    "Beta with the inverse link sigmoid": gl.Beta(invlink=tf.sigmoid),
    "Poisson with the inverse link softplus": gl.Poisson(invlink=tf.nn.softplus),
    "Bernoulli with the inverse link": gl.Bernoulli(invlink=lambda f: 0.5 + tf.atan(f) / np.pi),
    "Ordinal": gl.Ordinal(np.array([0.0, 1.0])),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_likelihood_that_is_not_declared(name):
    Y = np.full((2, 1), 0.5) if name.startswith("Beta") else np.ones((2, 1))
    with pytest.raises(ValueError, match=f"declared for {name}.*Declare it: declare_site"):
        own.site_loss(UNKNOWN[name], Y)


@pytest.mark.parametrize(
    "likelihood", [gl.MultiClass(3), gl.Softmax(3), gl.SwitchedLikelihood([gl.Gaussian()])]
)
def test_likelihoods_with_more_to_an_observation(likelihood):
    with pytest.raises(
        DataError, match="has no sites: a site needs one latent function per observation"
    ):
        own.site_loss(likelihood, np.zeros((2, 2)))
    with pytest.raises(
        DataError, match="has no sites: a site needs one latent function per observation"
    ):
        own.QuadratureLoss(likelihood, np.zeros((2, 2)), -1.0, 1.0)
    with pytest.raises(
        DataError, match="has no sites: a site needs one latent function per observation"
    ):
        own.likelihood_site(likelihood, np.zeros(2))


class Huber(gl.ScalarLikelihood):
    """Up to a constant, a density that is normal in the middle and exponential outside of it."""

    def _scalar_log_prob(self, X, F, Y):
        size = tf.abs(Y - F)
        return -tf.where(size < 1.0, 0.5 * tf.square(size), size - 0.5)

    def _conditional_mean(self, X, F):
        return F

    def _conditional_variance(self, X, F):
        return tf.ones_like(F)


def _huber_loss(likelihood, Y):
    return own.QuadratureLoss(likelihood, Y, lower=-1.0, upper=1.0)


def test_a_likelihood_of_ones_own(monkeypatch):
    monkeypatch.setattr(registry, "_DESCRIPTIONS", dict(registry._DESCRIPTIONS))
    with pytest.raises(DataError, match="declared for Huber"):
        own.site_loss(Huber(), REAL)
    own.declare_site_loss(Huber, _huber_loss)
    loss = own.site_loss(Huber(), REAL)
    h, sigma = tf.constant(H), tf.constant(SIGMA)
    found = loss.expand(h, sigma)
    # GPflow's own expectation, and the automatic derivatives, against the nodes one by one
    expected = -Huber().variational_expectations(np.zeros((6, 1)), h, sigma**2, REAL)
    assert_allclose(loss.value(h, sigma)[:, 0], expected, rtol=1e-12)
    z, w = np.polynomial.hermite_e.hermegauss(20)
    r = (H + SIGMA * z - REAL)[None]
    first, second, w = (
        np.clip(r[0], -1.0, 1.0),
        (np.abs(r[0]) < 1.0).astype(float),
        w / np.sqrt(2.0 * np.pi),
    )
    slopes = {
        "d_h": (first, 0),
        "d_s": (first, 1),
        "d_hh": (second, 0),
        "d_hs": (second, 1),
        "d_ss": (second, 2),
    }
    for field, (slope, power) in slopes.items():
        assert_allclose(
            getattr(found, field)[:, 0], slope @ (w * z**power), atol=1e-12, err_msg=field
        )
    assert (
        np.all(loss.lower == -1.0) and np.all(loss.upper == 1.0) and np.all(loss.curvature == 0.0)
    )


def test_a_declaration_holds_for_heirs_with_the_same_density_alone(monkeypatch):
    monkeypatch.setattr(registry, "_DESCRIPTIONS", dict(registry._DESCRIPTIONS))
    own.declare_site_loss(Huber, _huber_loss)

    class Renamed(Huber):
        """The same density."""

    class Wider(Huber):
        """Another one, of which nothing is known."""

        def _scalar_log_prob(self, X, F, Y):
            return 0.1 * super()._scalar_log_prob(X, F, Y)

    assert isinstance(own.site_loss(Renamed(), REAL), own.QuadratureLoss)
    with pytest.raises(DataError, match="declared for Wider"):
        own.site_loss(Wider(), REAL)
    own.declare_site_loss(Wider, _huber_loss)
    assert isinstance(own.site_loss(Wider(), REAL), own.QuadratureLoss)


def test_one_declaration_serves_all_methods(monkeypatch):
    """The loss, the log density and the support of one class, declared together or one after the
    other.
    """
    monkeypatch.setattr(registry, "_DESCRIPTIONS", dict(registry._DESCRIPTIONS))
    assert own.likelihood_site(Huber(), REAL[:, 0]).kernel is None  # by its own log density alone
    positive = own.Support("numbers above 0", lambda Y: Y > 0)
    own.declare_site(Huber, loss=_huber_loss, support=positive)
    own.declare_site(Huber, density=lambda likelihood, Y: laplace_site(Y, tf.ones_like(Y)))

    class Renamed(Huber):
        """The same density."""

    for likelihood in (Huber(), Renamed()):
        assert isinstance(own.site_loss(likelihood, POSITIVE), own.QuadratureLoss)
        assert own.likelihood_site(likelihood, POSITIVE[:, 0]).kernel is not None
        for refuse in (own.site_loss, own.check_labels):
            with pytest.raises(DataError, match="which takes numbers above 0"):
                refuse(likelihood, REAL)


def test_an_heir_with_another_density_keeps_the_support_alone():
    class Halved(own.BernoulliLogit):
        def _scalar_log_prob(self, X, F, Y):
            return super()._scalar_log_prob(X, 0.5 * F, Y)

    assert all(
        is_logit(own.BernoulliLogit(kind)) for kind in ("exact", "piecewise", "piecewise_convex")
    )
    assert (
        is_logit(gl.Bernoulli(invlink=tf.sigmoid))
        and not is_logit(gl.Bernoulli())
        and not is_logit(Halved())
    )
    assert own.likelihood_site(Halved(), BINARY[:, 0]).kernel is None
    with pytest.raises(DataError, match="declared for Halved"):
        own.site_loss(Halved(), BINARY)
    with pytest.raises(DataError, match="which takes 0 or 1"):
        own.check_labels(Halved(), COUNTS)


def test_what_cannot_be_declared():
    with pytest.raises(DataError, match="pass the class, not a likelihood"):
        own.declare_site_loss(Huber(), _huber_loss)
    with pytest.raises(DataError, match="lower must be below upper"):
        own.QuadratureLoss(Huber(), REAL, 1.0, -1.0)
    for curvature in [-0.1, np.inf]:
        with pytest.raises(DataError, match="curvature must be 0 or more and finite"):
            own.QuadratureLoss(Huber(), REAL, -1.0, 1.0, curvature)
    for width in [0.0, np.inf]:
        with pytest.raises(DataError, match="width must be above 0 and finite"):
            own.QuadratureLoss(Huber(), REAL, -1.0, 1.0, width=width)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["probit", "negative binomial", "Student-t", "probit of GPflow"])
def test_automatic_derivatives_are_those_by_hand(name):
    case = CASES[name]
    likelihood = case.make()
    loss = own.site_loss(likelihood, case.Y)
    by_hand = loss.expand(tf.constant(H), tf.constant(3.0 * SIGMA))
    where = {"width": loss.width, "centre": loss.centre}
    automatic = own.QuadratureLoss(likelihood, case.Y, -np.inf, np.inf, **where)
    automatic = automatic.expand(tf.constant(H), tf.constant(3.0 * SIGMA))
    for field, left, right in zip(by_hand._fields, automatic, by_hand):
        assert_allclose(left, right, rtol=1e-9, atol=1e-10, err_msg=field)


def test_without_a_width_the_nodes_are_those_of_the_likelihood():
    values = []
    for points in [5, 60]:
        likelihood = gl.StudentT(
            0.2, 3.0, quadrature=gpflow.quadrature.NDiagGHQuadrature(1, points)
        )
        value = own.QuadratureLoss(likelihood, REAL, -np.inf, np.inf).value(
            tf.constant(H), tf.constant(SIGMA)
        )
        expected = -likelihood.variational_expectations(np.zeros((6, 1)), H, SIGMA**2, REAL)
        assert_allclose(value[:, 0], expected, rtol=1e-12)
        values.append(value)
    assert np.max(np.abs(values[0] - values[1])) > 1e-3


def test_labels_may_be_integers_and_tensors():
    expected = own.site_loss(own.BernoulliLogit(), BINARY).value(H, SIGMA)
    for Y in [
        BINARY.astype(int),
        BINARY.astype(bool),
        tf.constant(BINARY, tf.float32),
        BINARY.tolist(),
    ]:
        assert_allclose(
            own.site_loss(own.BernoulliLogit(), Y).value(H, SIGMA), expected, rtol=1e-15
        )
