"""The coordinates that coefficients are learned in: they change the Parameter and nothing else."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import OrthogonalBasis
from gpflow_decoupled.bases import kernel_mean as scaling_module
from gpflow_decoupled.bases.kernel_mean import KernelMean, MeanScaling
from gpflow_decoupled.errors import DataError, NumericalError, UnknownOptionError
from gpflow_decoupled.models import BasisGP
from tests.bounds.registry import CASES, kernel_of, matern, numpy_kernel, randomize

POINTS = 2.0 * np.random.default_rng(3).uniform(-1, 1, size=(12, 2))
BETA, GAMMA, X = POINTS[:4], POINTS[4:8], POINTS[8:]
WITH_MEAN = {name: case for name, case in CASES.items() if case.has_mean_points}
names = pytest.mark.parametrize("name", WITH_MEAN)


def _residual(name: str, kernel: Any, latent: int) -> np.ndarray:
    """What the coordinates belong to: C_gamma with jitter on K_beta, or K_gamma where the mean is
    not orthogonal.
    """
    k = numpy_kernel(kernel, latent)
    if not name.startswith("orthogonal"):
        return k(GAMMA, GAMMA)
    K_gb = k(GAMMA, BETA)
    return k(GAMMA, GAMMA) - K_gb @ np.linalg.solve(k(BETA, BETA) + 1e-6 * np.eye(4), K_gb.T)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["two", "separate"])
@names
def test_raw_coefficients_are_those_of_the_table(name, kind, rng):
    """(D22), (D23), in numpy."""
    kernel, latents = kernel_of(kind)
    basis = CASES[name].build(kernel, latents, GAMMA, BETA)
    randomize(basis, rng)
    scaled = basis.kernel_mean.coefficients.numpy()
    raw = basis.mean_coefficients(basis.factor(kernel)).numpy()
    for latent in range(latents):
        C = _residual(name, kernel, latent) + 1e-6 * np.eye(4)
        T = {
            "none": np.eye(4),
            "diagonal": np.diag(np.diag(C) ** -0.5),
            "whitened": np.linalg.inv(np.linalg.cholesky(C)).T,
        }[CASES[name].options["mean_scaling"]]
        assert_allclose(raw[:, latent], T @ scaled[:, latent], rtol=1e-8, atol=1e-9)
    assert basis.mean_coefficients(basis.factor(kernel, with_kl=False)).shape == (4, latents)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["two", "separate"])
@names
def test_refresh_does_not_change_q(name, kind, rng):
    """After the kernel moved: the Parameter changes, the moments and the divergence do not."""
    kernel, latents = kernel_of(kind)
    basis = CASES[name].build(kernel, latents, GAMMA, BETA)
    randomize(basis, rng)
    for parameter in kernel.parameters:
        parameter.assign(1.5 * parameter)
    before, scaled = _process(basis, kernel), basis.kernel_mean.coefficients.numpy()
    frozen = basis.kernel_mean.scaling.frozen
    basis.refresh(kernel)
    for left, right in zip(_process(basis, kernel), before):
        assert_allclose(left, right, rtol=1e-9, atol=1e-10)
    assert (
        basis.kernel_mean.scaling.frozen is frozen
    )  # the same variable, so that a compiled step sees the new value
    moved = np.abs(basis.kernel_mean.coefficients.numpy() - scaled).max()
    assert moved == 0 if name.endswith("none") else moved > 1e-3


def _process(basis: Any, kernel: Any) -> list[np.ndarray]:
    state = basis.factor(kernel)
    return [
        *basis.mean_and_cov(state, kernel, X, full_cov=True),
        basis.prior_kl(state),
        basis.mean_coefficients(state),
    ]


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("kind", ["diagonal", "whitened"])
def test_a_floor_bounds_what_a_unit_of_a_coordinate_does(kind, moves, rng):
    """The scaling is that of C + 0.01 K_gamma, and 0.01 of its diagonal where gamma moves; q(f)
    stays.
    """
    kernel, basis = matern(1.3, 0.8), OrthogonalBasis(GAMMA, BETA, mean_scaling=kind)
    gpflow.set_trainable(basis.gamma, moves)
    basis.a_gamma.assign(rng.normal(size=(4, 1)))
    before = _process(basis, kernel)
    basis.refresh(kernel, 0.01)
    for left, right in zip(_process(basis, kernel), before):
        assert_allclose(left, right, rtol=1e-9, atol=1e-10)
    K, K_gb = kernel(GAMMA).numpy(), kernel(GAMMA, BETA).numpy()
    C = K - K_gb @ np.linalg.solve(kernel(BETA).numpy() + 1e-6 * np.eye(len(BETA)), K_gb.T)
    C += 0.01 * K + 1e-6 * np.eye(4)
    if kind == "whitened":
        C += 0.01 * moves * np.diag(np.diag(K))
        expected = np.linalg.cholesky(C)[None]
    else:
        expected = np.sqrt(np.diag(C))[None]
    assert_allclose(basis.kernel_mean.scaling.frozen, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", ["none", "diagonal", "whitened"])
def test_maps_are_inverse_and_adjoint(kind, groups, rng):
    scaling, scaled = MeanScaling(kind, 4), tf.Variable(rng.normal(size=(4, 2)))
    root = rng.normal(size=(groups, 4, 4))
    C = root @ np.swapaxes(root, -1, -2) + np.eye(4)
    raw = scaling.raw(scaled)
    assert_allclose(raw, scaled)
    scaling.refresh(
        scaled, lambda: tf.constant(C), lambda: tf.constant(np.diagonal(C, axis1=-2, axis2=-1))
    )
    assert_allclose(scaling.raw(scaled), raw, rtol=1e-11)
    assert_allclose(scaling.scaled(scaling.raw(scaled)), scaled, rtol=1e-11)
    other = tf.constant(rng.normal(size=(4, 2)))
    inner = tf.reduce_sum(scaling.raw(scaled) * other)
    assert_allclose(tf.reduce_sum(scaled * scaling.dual(other)), inner, rtol=1e-11)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(scaling.raw(scaled) * other)
    assert_allclose(tape.gradient(value, scaled), scaling.dual(other), rtol=1e-11)
    if kind == "whitened":
        rows = tf.constant([2, 0])
        jittered = C + 1e-6 * np.eye(4)
        expected = [(jittered[min(l, groups - 1)] @ raw.numpy()[:, l])[[2, 0]] for l in range(2)]  # noqa: E741
        assert_allclose(
            scaling.frozen_product(scaled, rows), np.stack(expected, axis=1), rtol=1e-10
        )


def test_frozen_coordinates_are_never_differentiated_through(rng):
    """The gradient in the kernel is that at fixed raw coefficients."""
    gradients = []
    for scaling in ("none", "whitened"):
        kernel = matern(1.3, 0.8)
        basis = OrthogonalBasis(GAMMA, BETA, mean_scaling=scaling)
        basis.refresh(kernel)
        raw = np.random.default_rng(5).normal(size=(4, 1))
        basis.a_gamma.assign(basis.kernel_mean.scaling.scaled(raw))
        with tf.GradientTape() as tape:
            kl = basis.prior_kl(basis.factor(kernel))
        gradients.append(
            [
                kl,
                *tape.gradient(
                    kl, [*kernel.trainable_variables, basis.gamma.Z.unconstrained_variable]
                ),
            ]
        )
    for left, right in zip(*gradients):
        assert_allclose(left, right, rtol=1e-8, atol=1e-9)


def test_frozen_variable_is_not_trainable_but_travels_in_checkpoints():
    basis = CASES["orthogonal-whitened"].build(matern(1.3, 0.8), 1, GAMMA, BETA)
    frozen = basis.kernel_mean.scaling.frozen
    assert any(variable is frozen for variable in basis.variables)
    assert not any(variable is frozen for variable in basis.trainable_variables)


@pytest.mark.exhaustive
def test_points_that_nearly_meet_the_inducing_points_can_be_scaled(rng):
    """The residual is zero there, to round-off; the jitter keeps the division finite."""
    for scaling in ("diagonal", "whitened"):
        basis = OrthogonalBasis(np.vstack([BETA[:2] + 1e-9, GAMMA]), BETA, mean_scaling=scaling)
        basis.refresh(matern(1.3, 0.8))
        basis.a_gamma.assign(rng.normal(size=(6, 1)))
        state = basis.factor(matern(1.3, 0.8))
        mean, variance = basis.mean_and_cov(state, matern(1.3, 0.8), X)
        assert np.all(np.isfinite(mean)) and np.abs(mean).max() < 100


def test_a_residual_that_cannot_be_factorised_is_named_and_changes_nothing():
    scaling, scaled = MeanScaling("whitened", 2), tf.Variable(np.ones((2, 1)))
    with pytest.raises(
        NumericalError, match=r"residual kernel at gamma \(2 x 2\) is not positive definite"
    ):
        scaling.refresh(scaled, lambda: -tf.eye(2, batch_shape=[1], dtype=tf.float64), lambda: None)
    assert scaling.frozen is None
    assert_allclose(scaled, np.ones((2, 1)))


def test_options_are_checked(monkeypatch):
    with pytest.raises(
        UnknownOptionError, match="mean_scaling='pca' is not known; use one of 'none'"
    ):
        OrthogonalBasis(GAMMA, BETA, mean_scaling="pca")
    for subsample in (0, -1, 1.5):
        with pytest.raises(DataError, match="mean_subsample=.*whole number of rows"):
            OrthogonalBasis(GAMMA, BETA, mean_subsample=subsample)
    monkeypatch.setattr(scaling_module, "LARGEST_WHITENED", 3)
    with pytest.raises(DataError, match='4 x 4 numbers; use mean_scaling="diagonal"'):
        OrthogonalBasis(GAMMA, BETA, mean_scaling="whitened")


@pytest.mark.exhaustive
def test_rows_are_drawn_without_replacement_and_uniformly():
    mean = KernelMean(POINTS[:6], "gamma", 1, "none", 2)
    draws = np.array([mean.draw_rows(tf.constant([seed, 0])) for seed in range(900)])
    assert np.all(draws[:, 0] != draws[:, 1])
    pairs = dict.fromkeys(combinations(range(6), 2), 0)
    for draw in draws:
        pairs[tuple(sorted(draw.tolist()))] += 1
    assert (
        min(pairs.values()) > 35 and max(pairs.values()) < 90
    )  # 60 expected, standard deviation 7.5
    assert_allclose(mean.draw_rows(tf.constant([7, 0])), mean.draw_rows(tf.constant([7, 0])))
    tf.random.set_seed(0)
    unseeded = {tuple(mean.draw_rows().numpy()) for _ in range(10)}
    assert len(unseeded) > 3
    assert KernelMean(POINTS[:6], "gamma", 1, "none", 6).draw_rows() is None
    assert KernelMean(POINTS[:6], "gamma", 1, "none", None).draw_rows() is None


@pytest.mark.exhaustive
def test_a_fresh_draw_is_taken_where_no_rows_are_given():
    kernel = matern(1.3, 0.8)
    basis = CASES["orthogonal-none"].build(kernel, 1, GAMMA, BETA, mean_subsample=2)
    basis.a_gamma.assign(np.arange(1.0, 5.0)[:, None])
    model = BasisGP(kernel, gpflow.likelihoods.Gaussian(), basis, num_data=4)
    values = {round(float(model.elbo((X, X[:, :1]))), 9) for _ in range(12)}
    assert 2 < len(values) <= 6
