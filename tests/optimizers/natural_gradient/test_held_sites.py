"""Sites that stay while the kernel moves, against their definition by explicit inverses, and the
bound's own slope.
"""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.keras import tf_keras
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import (
    Basis,
    CoupledBasis,
    DecoupledBasis,
    HybridBasis,
    OrthogonalBasis,
    SolveBasis,
)
from gpflow_decoupled.bases.base import Features
from gpflow_decoupled.linalg.whitening import precision_from_root
from gpflow_decoupled.models import BasisGP
from gpflow_decoupled.optimizers import NaturalGradient
from gpflow_decoupled.optimizers.natural_steps import Natural, carry_over, evaluate
from gpflow_decoupled.training.stages.minibatches import Minibatches


class CurvedBasis(CoupledBasis):
    """A basis of a user, whose mean has A in another place than the product with `weights_of_rows`
    of its parent.
    """

    def features(self, state: Any, kernel: gpflow.kernels.Kernel, X: tf.Tensor) -> Features:
        found = super().features(state, kernel, X)
        return found._replace(
            mean=found.mean + 0.3 * tf.reduce_sum(found.minus[0] ** 2, (0, 1))[:, None]
        )


RNG = np.random.default_rng(5)
BETA, GAMMA, X = RNG.uniform(-1, 1, (4, 2)), RNG.uniform(-1, 1, (5, 2)), RNG.uniform(-1, 1, (30, 2))
DATA = (X, np.sign(np.sin(3.0 * X @ [[1.0, 0.5], [-1.0, 1.0]]) + 0.3 * RNG.normal(size=(30, 2))))
BASES = {
    "coupled": lambda: CoupledBasis(BETA, 2),
    "derived": lambda: CurvedBasis(BETA, 2),
    "orthogonal": lambda: OrthogonalBasis(GAMMA, BETA, 2),
    "solve": lambda: SolveBasis(GAMMA, BETA, 2),
    "decoupled": lambda: DecoupledBasis(GAMMA, BETA, 2, covariance="coupled"),
}
LIKELIHOODS = {
    "gaussian": (gl.Gaussian, lambda Y: Y),
    "bernoulli": (gl.Bernoulli, lambda Y: 0.5 * (Y + 1.0)),
}


def _model(basis: Basis, likelihood: str = "gaussian", steps: int = 2) -> tuple[BasisGP, tuple]:
    """A model some steps away from its optimum, so that sites and whitened coordinates differ."""
    build, labels = LIKELIHOODS[likelihood]
    model = BasisGP(gpflow.kernels.Matern52(lengthscales=[0.7, 0.9]), build(), basis, num_data=60)
    data = (tf.constant(X), tf.constant(labels(DATA[1])))
    if basis.kernel_mean is not None:
        noise = np.random.default_rng(6).normal(size=basis.kernel_mean.coefficients.shape)
        basis.kernel_mean.coefficients.assign(0.3 * noise)
    for _ in range(steps):
        NaturalGradient(0.3).minimize(model, data)
    return model, data


def _sites(chol: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Projected: S^-1 - K^-1 for S = (L root)(L root)^T, by explicit inverses."""
    S_root = chol @ root
    return np.linalg.inv(S_root @ np.swapaxes(S_root, -1, -2)) - np.linalg.inv(
        chol @ np.swapaxes(chol, -1, -2)
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("groups", [1, 2])
def test_carried_sites_are_the_same_projected_sites(groups):
    vectors = RNG.normal(size=(2, groups, 6, 1))
    old, new = (np.linalg.cholesky(np.eye(6) + v @ np.swapaxes(v, -1, -2)) for v in vectors)
    root = np.linalg.cholesky(0.1 * np.eye(6) + 0.02 * np.ones((2, 6, 6)))
    mean = RNG.normal(size=(6, 2))
    precision = precision_from_root(tf.constant(root)).numpy()
    theta = np.einsum("lij,jl->il", precision, mean)
    carried = carry_over(
        Natural.of(tf.constant(theta), tf.constant(precision)), tf.constant(old), tf.constant(new)
    )
    gaussian = carried.gaussian()
    assert carried.ok
    assert_allclose(_sites(new, gaussian.root.numpy()), _sites(old, root), rtol=1e-9, atol=1e-10)
    for latent in range(2):
        first, second = (chol[latent % groups] for chol in (old, new))
        lambda_1 = np.linalg.solve(first.T, theta[:, latent])  # (C24): whitened = L^T projected
        assert_allclose(second.T @ lambda_1, carried.theta[:, latent], rtol=1e-10)
        assert_allclose(
            carried.precision.numpy()[latent] @ gaussian.mean.numpy()[:, latent],
            carried.theta[:, latent],
        )


def _bound_at_held_sites(model: BasisGP, data: tuple, naturals: tuple, old: Any) -> float:
    """The bound after the sites have been carried to where the kernel is now."""
    basis = model.basis
    state = basis.factor(model.kernel)
    frames = zip(naturals, basis.whiteners(old), basis.whiteners(state))
    basis.assign_gaussians(
        state, tuple(carry_over(n, a.chol, b.chol).gaussian() for n, a, b in frames)
    )
    return float(model.elbo(data))


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("name", BASES)
def test_gradient_is_the_slope_of_the_bound_at_held_sites(name, likelihood):
    model, data = _model(BASES[name](), likelihood)
    basis = model.basis
    variables = [*model.kernel.trainable_variables, *basis.beta.trainable_variables]
    gradients = [
        tf.convert_to_tensor(g) for g in evaluate(model, data, variables, hold_sites=True).gradients
    ]
    plain = [tf.convert_to_tensor(g) for g in evaluate(model, data, variables).gradients]
    state = basis.factor(model.kernel)
    naturals = []
    for part in basis.gaussians(state):
        precision = precision_from_root(part.root)
        theta = (
            None
            if part.mean is None
            else tf.transpose(tf.linalg.matvec(precision, tf.transpose(part.mean)))
        )
        naturals.append(Natural.of(theta, precision))
    rng = np.random.default_rng(8)  # random, but where the two gradients differ most
    direction = [
        np.sign(g - p) * np.abs(rng.normal(size=g.shape)) for g, p in zip(gradients, plain)
    ]
    start = [v.numpy() for v in variables]
    bounds = []
    for step in (1e-5, -1e-5):
        for v, s, d in zip(variables, start, direction):
            v.assign(s + step * d)
        bounds.append(_bound_at_held_sites(model, data, tuple(naturals), state))
    slope = (bounds[0] - bounds[1]) / 2e-5
    held, fixed = (
        sum(float(tf.reduce_sum(g * d)) for g, d in zip(gs, direction)) for gs in (gradients, plain)
    )
    assert_allclose(held, slope, rtol=1e-5)
    assert abs(fixed - slope) > 1e-2 * abs(slope)  # else this would not tell the two apart


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["coupled", "orthogonal"])
def test_the_slope_of_rows_is_known_without_their_product(name, monkeypatch):
    """(C69) against the gradient that goes through the rows, where only what fixed sites add is
    written out.
    """
    model, data = _model(BASES[name](), "bernoulli")
    variables = [*model.kernel.trainable_variables, *model.basis.beta.trainable_variables]
    short = evaluate(model, data, variables, hold_sites=True).gradients
    assert model.basis.weights_of_rows(model.basis.factor(model.kernel)) is not None
    monkeypatch.setattr(type(model.basis), "weights_of_rows", lambda *_: None)
    long = evaluate(model, data, variables, hold_sites=True).gradients
    for left, right in zip(short, long, strict=True):
        assert_allclose(
            tf.convert_to_tensor(left), tf.convert_to_tensor(right), rtol=1e-9, atol=1e-9
        )


def _step(model: BasisGP, hold_sites: bool = True) -> Minibatches:
    return Minibatches(
        model, NaturalGradient(0.4), tf_keras.optimizers.Adam(0.1), None, True, hold_sites
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", BASES)
def test_a_training_step_moves_the_kernel_under_the_new_sites(name):
    model, data = _model(BASES[name]())
    basis = model.basis
    before = basis.factor(model.kernel)
    natural = NaturalGradient(0.4)
    move = natural.propose(model, data, evaluate(model, data), [])
    expected = [
        _sites(frame.chol.numpy(), part.gaussian().root.numpy())
        for frame, part in zip(basis.whiteners(before), move.naturals)
    ]
    lengthscales = model.kernel.lengthscales.numpy()
    assert _step(model).step(*data, tf.constant([0, 0])).ok
    after = basis.factor(model.kernel)
    assert np.abs(model.kernel.lengthscales.numpy() - lengthscales).max() > 0.05
    for frame, part, sites in zip(basis.whiteners(after), basis.gaussians(after), expected):
        assert_allclose(_sites(frame.chol.numpy(), part.root.numpy()), sites, rtol=1e-6, atol=1e-6)


def test_sites_that_cannot_be_carried_leave_the_whitened_parameters():
    model, data = _model(CoupledBasis(BETA, 2), steps=0)
    model.basis.q_sqrt.assign(
        tf.eye(4, batch_shape=[2], dtype=tf.float64) * 10.0
    )  # negative sites: wider than the prior
    natural = NaturalGradient(1e-9)
    move = natural.propose(model, data, evaluate(model, data), [])
    model.kernel.variance.assign(400.0)
    natural.commit_after(model, move)
    assert_allclose(
        model.basis.q_sqrt.numpy(), 10.0 * np.eye(4)[None] * np.ones((2, 1, 1)), atol=1e-3
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "basis", [lambda: HybridBasis(GAMMA, BETA, 2), lambda: CoupledBasis(BETA, 2, whiten=False)]
)
def test_bases_without_whitened_sites_keep_their_parameters(basis):
    results = []
    for hold in (True, False):
        model, data = _model(basis())
        model.basis.q_mu.assign(np.ones((4, 2)))
        step = _step(model, hold)
        assert not step.holds_sites
        step.step(*data, tf.constant([0, 0]))
        results.append(model.kernel.lengthscales.numpy())
    assert_allclose(*results)


def test_nothing_is_carried_where_the_prior_stays():
    model, _ = _model(CoupledBasis(BETA, 2))
    gpflow.utilities.set_trainable(model.kernel, False)
    gpflow.utilities.set_trainable(model.basis.beta, False)
    assert not _step(model).holds_sites
