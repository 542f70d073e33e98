"""`fit` on sites by neighbours: rounds of passes and climbs, judged by leave-one-out scores."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, UnknownOptionError
from gpflow_decoupled.models import NeighbourCVIGP
from gpflow_decoupled.optimizers import SiteRounds
from gpflow_decoupled.training.stages.neighbour_sites import MOST_ROUNDS

RNG = np.random.default_rng(4)
X = RNG.uniform(size=(400, 3))
LOGITS = 8.0 * np.sin(7.0 * X[:, :1])  # of one column: the others are irrelevant
Y = (RNG.uniform(size=LOGITS.shape) < 1.0 / (1.0 + np.exp(-LOGITS))).astype(float)


def model() -> NeighbourCVIGP:
    kernel = gpflow.kernels.Matern52(lengthscales=np.ones(3))
    likelihood = gd.likelihoods.BernoulliLogit()
    return NeighbourCVIGP((X, Y), kernel, likelihood, num_neighbours=15)


def test_fit_learns_kernel_and_sites():
    one = model()
    result = gd.fit(one, evaluation=(X, Y), progress=False)
    assert result.converged and 2 <= result.steps <= MOST_ROUNDS
    assert "leave-one-out log density" in str(result)
    scores = result.history["leave_one_out"]
    assert scores[-1] > scores[0] + 0.05
    lengthscales = one.kernel.lengthscales.numpy()
    assert lengthscales[1:].min() > 3.0 * lengthscales[0]
    # the classes differ by the sign of the first column's sine alone
    probability, _ = one.predict_y(X)
    assert np.mean((probability.numpy() > 0.5) == (LOGITS > 0.0)) > 0.95


def test_a_round_that_predicts_worse_is_undone():
    one = model()
    rounds = SiteRounds(one, rows=50, evaluations=2, compile=False)
    rounds.start()
    rounds.scores.assign(rounds.scores + 1.0)  # nothing can be better
    before = [variable.numpy() for variable in rounds.variables]
    assert not rounds.run(0).kept
    for variable, was in zip(rounds.variables, before):
        np.testing.assert_array_equal(variable.numpy(), was)


def test_nothing_trainable_leaves_the_kernel():
    one = model()
    gpflow.set_trainable(one.kernel, False)
    result = gd.fit(one, progress=False)
    assert result.steps == 1
    np.testing.assert_array_equal(one.kernel.lengthscales.numpy(), np.ones(3))


def test_options_without_a_meaning_are_refused():
    with pytest.raises(UnknownOptionError, match="batch_size"):
        gd.fit(model(), batch_size=10)
    with pytest.raises(DataError, match="update"):
        gd.fit(model(), (X, Y))
