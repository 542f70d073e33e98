"""Markov random fields: the dense model with the same prior, new rows, bad input."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose
from scipy import sparse

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, ModelError
from gpflow_decoupled.likelihoods import CategoricalLogit
from gpflow_decoupled.models import CVIGP, GMRF, LCLGP
from gpflow_decoupled.optimizers import ConjugateComputation, LinearlyConstrainedLagrangian
from tests.linalg.test_sparse_precision import lattice

P = 20
Q = lattice(4, 5)
COUNTS = np.random.default_rng(3).poisson(2.0, (P, 1)).astype(float)
EXPECTED = np.linspace(0.5, 2.0, P)
RULE = ConjugateComputation()


class OfPlaces(gpflow.kernels.Kernel):
    """A covariance matrix [p, p]; inputs are the numbers of places."""

    def __init__(self, covariance: np.ndarray) -> None:
        super().__init__()
        self.covariance = tf.constant(covariance)

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        rows, columns = (tf.cast(part[:, 0], tf.int32) for part in (X, X if X2 is None else X2))
        return tf.gather(tf.gather(self.covariance, rows), columns, axis=1)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.linalg.diag_part(self.covariance), tf.cast(X[:, 0], tf.int32))


class Shift(gpflow.functions.MeanFunction):
    """The log of expected counts, by place."""

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.constant(np.log(EXPECTED)), tf.cast(X, tf.int32))


def dense(likelihood: gl.Likelihood, Y: np.ndarray, mean: Shift | None = None) -> CVIGP:
    covariance = np.linalg.inv(Q.toarray())
    places = np.arange(P, dtype=float)[:, None]
    return started(CVIGP((places, Y), OfPlaces(covariance), likelihood, mean_function=mean))


def started(model: CVIGP) -> CVIGP:
    """The model at the sites from which a field starts."""
    model.basis.tau.assign(np.ones(model.basis.tau.shape))
    return model


LIKELIHOODS = {
    "counts": (gl.Poisson, COUNTS),
    "Gaussian": (lambda: gl.Gaussian(0.3), COUNTS),
    "outliers": (lambda: gl.StudentT(0.3, 4.0), COUNTS),  # some site precisions are negative
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_it_is_the_dense_model(name: str) -> None:
    make, Y = LIKELIHOODS[name]
    model, other = GMRF(Q, Y, make()), dense(make(), Y)
    result = RULE.run(model, tolerance=1e-10)
    expected = RULE.run(other, tolerance=1e-10)
    assert result.converged and result.steps == expected.steps
    assert_allclose(model.elbo(), other.elbo(), rtol=1e-12)
    assert_allclose(result.history["elbo"], expected.history["elbo"], rtol=1e-10)
    places = other.data[0]
    for mine, theirs in zip(model.predict_f(), other.predict_f(places)):
        assert_allclose(mine, theirs, rtol=1e-9)
    for mine, theirs in zip(model.predict_y(), other.predict_y(places)):
        assert_allclose(mine, theirs, rtol=1e-9)
    mean, variance = model.predict_x()
    assert_allclose(mean, np.ravel(other.predict_f(places)[0]), rtol=1e-9)
    assert_allclose(variance, np.ravel(other.predict_f(places)[1]), rtol=1e-9)
    assert np.any(model.basis.tau.numpy() < 0.0) == (name == "outliers")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_lagrangian_has_the_same_optimum(name: str) -> None:
    """Khan 2014, Algorithm 1, on a sparse precision: the sites of conjugate computation."""
    make, Y = LIKELIHOODS[name]
    model, other = (GMRF(Q, Y, make(), offset=np.log(EXPECTED)) for _ in range(2))
    tolerance = 1e-4 if name == "outliers" else 1e-8
    result = LinearlyConstrainedLagrangian(tolerance=tolerance).run(model)
    expected = RULE.run(other, tolerance=1e-12)
    assert result.converged
    assert_allclose(result.elbo, model.elbo(), rtol=1e-12)
    if name == "outliers":  # the bound of which has several maxima
        assert result.elbo >= expected.elbo - 1e-2
        return
    assert_allclose(result.elbo, expected.elbo, rtol=1e-9)
    for mine, theirs in zip(model.predict_x(), other.predict_x()):
        assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)
    again = LinearlyConstrainedLagrangian(tolerance=1e-6).run(other)
    assert again.steps <= 1 and again.elbo >= expected.elbo - 1e-9


@pytest.mark.exhaustive
def test_the_first_dual_is_that_of_the_dense_model() -> None:
    """The same run of L-BFGS, and Newton's steps are refused."""
    model = GMRF(Q, COUNTS, gl.Poisson())
    rule = LinearlyConstrainedLagrangian(inner="lbfgs", accelerate=False, max_outer=2)
    places = np.arange(P, dtype=float)[:, None]
    other = LCLGP((places, COUNTS), OfPlaces(np.linalg.inv(Q.toarray())), gl.Poisson())
    histories = [rule.run(one).history["elbo"] for one in (model, other)]
    assert_allclose(*histories, rtol=1e-6)
    with pytest.raises(DataError, match='use inner="lbfgs"'):
        LinearlyConstrainedLagrangian(inner="newton").run(model)


def test_counts_of_known_exposure() -> None:
    """With expected counts as an offset, as in disease maps."""
    model = GMRF(Q, COUNTS, gl.Poisson(), offset=np.log(EXPECTED))
    other = dense(gl.Poisson(), COUNTS, Shift())
    for one in (model, other):
        RULE.run(one)
    assert_allclose(model.elbo(), other.elbo(), rtol=1e-10)
    assert_allclose(model.predict_f()[0], other.predict_f(other.data[0])[0], rtol=1e-8)


def test_rows_of_a_design(rng: np.random.Generator) -> None:
    """A structured and an unstructured field and an intercept: Besag, York & Mollie 1991."""
    prior = sparse.block_diag([Q, 4.0 * sparse.eye(P), sparse.eye(1) * 1e-2])
    design = sparse.hstack([sparse.eye(P), sparse.eye(P), np.ones((P, 1))]).tocsr()
    seen = np.sort(rng.choice(P, 15, replace=False))
    model = GMRF(prior, COUNTS[seen], gl.Poisson(), design=design[seen])
    RULE.run(model, tolerance=1e-20)
    A = design.toarray()
    covariance = A @ np.linalg.inv(prior.toarray()) @ A.T
    places = np.arange(P, dtype=float)[:, None]
    other = started(CVIGP((places[seen], COUNTS[seen]), OfPlaces(covariance), gl.Poisson()))
    RULE.run(other, tolerance=1e-20)
    assert_allclose(model.elbo(), other.elbo(), rtol=1e-11)
    for mine, theirs in zip(model.predict_f(design), other.predict_f(places)):
        assert_allclose(mine, theirs, rtol=1e-8)
    found = model.predict_f(design[:2].toarray(), np.ones(2))[0]
    assert_allclose(found, other.predict_f(places[:2])[0] + 1.0, rtol=1e-8)


BAD = {
    "scipy.sparse.csc_matrix": lambda: GMRF(Q.toarray(), COUNTS, gl.Poisson()),
    "one place or more": lambda: GMRF(sparse.csc_matrix((0, 0)), COUNTS, gl.Poisson()),
    "not symmetric": lambda: GMRF(sparse.triu(Q), COUNTS, gl.Poisson()),
    "add a small diagonal": lambda: GMRF(Q - 0.2 * sparse.eye(P), COUNTS, gl.Poisson()),
    "precision has entries that are not finite": lambda: GMRF(Q * np.nan, COUNTS, gl.Poisson()),
    r"use Y\[:, None\]": lambda: GMRF(Q, COUNTS[:, 0], gl.Poisson()),
    "make a GMRF of each column": lambda: GMRF(Q, np.tile(COUNTS, 2), gl.Poisson()),
    r"use Y.astype\(np.float64\)": lambda: GMRF(Q, COUNTS.astype("f"), gl.Poisson()),
    r"Y\[0, 0\] is inf": lambda: GMRF(Q, COUNTS + np.inf, gl.Poisson()),
    r"must be \[19, 20\]": lambda: GMRF(Q, COUNTS[1:], gl.Poisson()),
    "design has entries": lambda: GMRF(Q, COUNTS, gl.Poisson(), design=np.eye(P) / 0.0),
    r"offset has shape \(3,\)": lambda: GMRF(Q, COUNTS, gl.Poisson(), offset=np.zeros(3)),
    "offset has entries": lambda: GMRF(Q, COUNTS, gl.Poisson(), offset=np.full(P, np.inf)),
    "outside the support of Poisson": lambda: GMRF(Q, -1.0 - COUNTS, gl.Poisson()),
    "has no sites": lambda: GMRF(Q, COUNTS, CategoricalLogit(3)),
    "leave out batch_size": lambda: RULE.run(GMRF(Q, COUNTS, gl.Poisson()), batch_size=5),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("message", BAD)
def test_bad_input(message: str) -> None:
    with pytest.raises(DataError, match=message):
        BAD[message]()


def test_fit_says_how_to_train_it() -> None:
    with pytest.raises(ModelError, match=r"Train a GMRF by optimizers.ConjugateComputation"):
        gd.fit(GMRF(Q, COUNTS, gl.Poisson()), steps=1, progress=False)
