"""A step in which q moves first: its derivatives against those of two passes, one before and one
after q was written.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.keras import tf_keras
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import (
    CoupledBasis,
    DecoupledBasis,
    HybridBasis,
    OrthogonalBasis,
    SolveBasis,
)
from gpflow_decoupled.models import BasisGP
from gpflow_decoupled.optimizers import NaturalGradient
from gpflow_decoupled.optimizers.natural_gradient import can_move_first, evaluate_in_turn
from gpflow_decoupled.optimizers.natural_steps import evaluate
from gpflow_decoupled.training.stages.minibatches import Minibatches

RNG = np.random.default_rng(4)
BETA, GAMMA, X = RNG.uniform(-1, 1, (4, 2)), RNG.uniform(-1, 1, (5, 2)), RNG.uniform(-1, 1, (30, 2))
F = np.sin(3.0 * X @ [[1.0, 0.5], [-1.0, 1.0]]) + 0.3 * RNG.normal(size=(30, 2))
BASES = {
    "coupled": lambda: CoupledBasis(BETA, 2),
    "orthogonal": lambda: OrthogonalBasis(GAMMA, BETA, 2),
    "hybrid": lambda: HybridBasis(GAMMA, BETA, 2),
    "solve": lambda: SolveBasis(GAMMA, BETA, 2),
    "decoupled": lambda: DecoupledBasis(GAMMA, BETA, 2, covariance="coupled"),
}
LIKELIHOODS = {"gaussian": (gl.Gaussian, F), "bernoulli": (gl.Bernoulli, (F > 0).astype(float))}


def _model(
    basis: str, likelihood: str
) -> tuple[BasisGP, tuple[tf.Tensor, tf.Tensor], list[tf.Variable]]:
    """A model some steps from the prior, its data, and all variables but those of q."""
    build, Y = LIKELIHOODS[likelihood]
    model = BasisGP(
        gpflow.kernels.Matern52(lengthscales=[0.7, 0.9]), build(), BASES[basis](), num_data=60
    )
    data, mean = (tf.constant(X), tf.constant(Y)), model.basis.kernel_mean
    if mean is not None:
        mean.coefficients.assign(
            0.3 * np.random.default_rng(6).normal(size=mean.coefficients.shape)
        )
    for _ in range(2):
        NaturalGradient(0.3).minimize(model, data)
    of_q = {
        parameter.unconstrained_variable.ref() for parameter in model.basis.gaussian_parameters()
    }
    return (
        model,
        data,
        [variable for variable in model.trainable_variables if variable.ref() not in of_q],
    )


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("basis", BASES)
def test_the_bound_is_that_of_the_old_q_and_the_gradients_those_of_the_new_one(
    basis: str, likelihood: str
) -> None:
    model, data, variables = _model(basis, likelihood)
    for hold in {False, model.basis.holds_sites}:
        natural = NaturalGradient(0.4)
        before = evaluate(model, data, variables, hold_sites=hold, with_target=True)
        found, move = evaluate_in_turn(model, data, natural, variables, hold_sites=hold)
        expected = natural.propose(model, data, before, [])
        assert_allclose(found.elbo, before.elbo, rtol=1e-12)
        for left, right in zip(move.naturals, expected.naturals, strict=True):
            assert_allclose(left.precision, right.precision, rtol=1e-10, atol=1e-12)
        natural.commit(model, move)
        after = evaluate(model, data, variables, hold_sites=hold).gradients
        now, then, old = (
            np.concatenate([np.ravel(tf.convert_to_tensor(one)) for one in gradients])
            for gradients in (found.gradients, after, before.gradients)
        )
        assert_allclose(now, then, rtol=1e-8, atol=1e-9)
        assert np.max(np.abs(then - old)) > 1e-3 * np.max(np.abs(old)), (
            "the two passes do not differ"
        )


@pytest.mark.exhaustive
def test_in_mixed_precision_they_are_the_same_to_its_digits() -> None:
    model, data, variables = _model("orthogonal", "bernoulli")
    full, mixed = (
        evaluate_in_turn(model, data, NaturalGradient(0.4), variables, None, True, low)[0].gradients
        for low in (None, tf.float32)
    )
    for left, right in zip(mixed, full, strict=True):
        left, right = map(tf.convert_to_tensor, (left, right))
        assert left.dtype == tf.float64
        assert_allclose(left, right, atol=1e-4 * np.max(np.abs(right)))
    assert any(np.any(np.not_equal(left, right)) for left, right in zip(mixed, full))


@pytest.mark.exhaustive
def test_other_bases_and_solvers_move_all_at_once() -> None:
    unwhitened = CoupledBasis(BETA, whiten=False)
    assert can_move_first(CoupledBasis(BETA), NaturalGradient())
    assert not can_move_first(unwhitened, NaturalGradient())
    assert not can_move_first(OrthogonalBasis(GAMMA, BETA), NaturalGradient(mean="natural"))
    for basis in (unwhitened, CoupledBasis(BETA)):
        model = BasisGP(gpflow.kernels.Matern52(), gl.Gaussian(), basis, num_data=30)
        step = Minibatches(model, NaturalGradient(0.4), tf_keras.optimizers.Adam(0.1), None)
        assert step.takes_turns is basis.whiten
        assert step.step(tf.constant(X), tf.constant(F[:, :1]), tf.constant([0, 0])).ok
