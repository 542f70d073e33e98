"""A bound that is not finite at the start names the observation."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

import gpflow_decoupled
from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.models import CVIGP, ODVGP, SparseCVIGP
from gpflow_decoupled.optimizers import ConjugateComputation, sweep

X = np.linspace(0.0, 3.0, 8)[:, None]
CLASSES = np.array([1.0, 1.0, 2.0, 0.0, 1.0, 2.0, 1.0, 0.0])[:, None]
EDGES = np.array([-0.5, 0.5])
CASES = {
    "Ordinal": (lambda: gl.Ordinal(EDGES), CLASSES, 1.0, "Ordinal is nan at row 2 .*Y = .2.*infinite bin edges.*Y . 1"),
    "logit": (lambda: gl.Bernoulli(invlink=tf.sigmoid), 1.0 * (CLASSES < 2), 900.0, "-inf at row 2 .*BernoulliLogit"),
    "scale": (lambda: gl.Poisson(), 3.0 * CLASSES, 2000.0, "Poisson is -inf at row 0 .*smaller variance"),
}
RUNS = {
    "run": lambda *parts: ConjugateComputation().run(CVIGP((X, parts[2]), *parts[:2])),
    "fit": lambda *parts: gpflow_decoupled.fit(CVIGP((X, parts[2]), *parts[:2]), steps=2, progress=False),
    "inducing": lambda *parts: gpflow_decoupled.fit(
        ODVGP(*parts[:2], X[::2], X[1::2]), (X, parts[2]), steps=2, progress=False
    ),
    "sweep": lambda *parts: sweep(SparseCVIGP(*parts[:2], X[::2]), (X, parts[2])),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", CASES)
def test_start_that_is_not_finite_names_the_observation(name, run):
    make, Y, variance, message = CASES[name]
    with pytest.raises(NumericalError, match=message):
        RUNS[run](gpflow.kernels.Matern32(variance=variance), make(), Y)


def test_finite_edges_of_an_ordinal_are_enough():
    wide = gl.Ordinal(np.concatenate([[-1e3], EDGES, [1e3]]))
    result = ConjugateComputation().run(CVIGP((X, CLASSES + 1.0), gpflow.kernels.Matern32(), wide))
    assert np.isfinite(result.elbo)
    for label in [0, 1, 2]:
        f = np.full((1, 1), 0.3)
        found = np.exp(wide.log_prob(X[:1], f, np.full((1, 1), label + 1.0)))
        cdf = [0.0, *gl.utils.inv_probit(EDGES - 0.3).numpy(), 1.0]
        assert_allclose(found, cdf[label + 1] - cdf[label], atol=3e-3)
