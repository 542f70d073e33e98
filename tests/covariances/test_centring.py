"""Covariances, means and selected points do not depend on where the origin of X is."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels as gk
from gpflow.kernels.categorical import Categorical
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.covariances.latents import gram_to_data
from gpflow_decoupled.covariances.products import kernel_product
from gpflow_decoupled.covariances.stationary import covariance

RNG = np.random.default_rng(0)
X = RNG.integers(-2000, 2000, size=(40, 2)) / 1024.0
"""Multiples of 2^-10, so that an offset of 2^30 is added without rounding."""
Y = np.sin(3.0 * X[:, :1]) + 0.1 * RNG.normal(size=(40, 1))
OFFSETS = [2.0**20, 2.0**30]
KERNELS: dict[str, Callable[[], gpflow.kernels.Kernel]] = {
    "SquaredExponential": lambda: gk.SquaredExponential(lengthscales=0.7),
    "Matern12": lambda: gk.Matern12(lengthscales=0.7),
    "Matern52": lambda: gk.Matern52(lengthscales=[0.3, 0.7]),
    "RationalQuadratic": gk.RationalQuadratic,
    "Cosine": lambda: gk.Cosine(lengthscales=[1.0, 0.7]),
    "Periodic": lambda: gk.Periodic(gk.Matern32(), period=1.1),
    "sum": lambda: gk.Matern32(lengthscales=0.3) + gk.White(0.1) + gk.Constant(),
    "product": lambda: gk.Matern52(active_dims=[0]) * gk.SquaredExponential(active_dims=[1]),
}


def _with_gradients(
    kernel: gpflow.kernels.Kernel, X: np.ndarray, *, products: bool = True
) -> list[np.ndarray]:
    points = gpflow.inducing_variables.InducingPoints(X[:7])
    weights = np.cos(np.arange(280.0)).reshape(7, 40)
    with tf.GradientTape() as tape:
        K = gram_to_data(kernel, points, tf.constant(X))[0]
        value = tf.reduce_sum(K * weights)
    slopes = tape.gradient(value, [points.Z.unconstrained_variable, *kernel.trainable_variables])
    V = tf.constant(weights.T)
    whole = kernel_product(kernel, X, None, V, block=(8, 8)) if products else None
    return [
        np.asarray(one) for one in (K, covariance(kernel, X), whole, *slopes) if one is not None
    ]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", KERNELS)
def test_covariances(name: str) -> None:
    """With their gradients, and products with matrices that are not stored."""
    kernel = KERNELS[name]()
    near = _with_gradients(kernel, X)
    assert_allclose(near[1], kernel(X), rtol=1e-10, atol=1e-7 if name == "Matern12" else 1e-12)
    for offset in OFFSETS:
        for one, other in zip(near, _with_gradients(kernel, X + offset)):
            assert_allclose(other, one, rtol=1e-8, atol=1e-8)


def test_a_column_of_indices_is_left_alone() -> None:
    """`Coregion` reads its column as it is, and the other column is centred."""
    kernel = gk.Matern52(active_dims=[0]) * gk.Coregion(3, 2, active_dims=[1])
    kernel.kernels[1].W.assign(np.arange(6.0).reshape(3, 2))
    inputs = np.column_stack([X[:, 0], np.arange(40) % 3])
    far = inputs + [2.0**30, 0.0]
    assert_allclose(covariance(kernel, far), kernel(inputs), rtol=1e-8)


def _changing(origin: float) -> tuple[gk.Kernel, np.ndarray]:
    parts = [gk.Matern52(lengthscales=0.3), gk.Matern32(lengthscales=2.0), gk.Constant(0.4)]
    places = [origin + 0.25, origin - 0.5]
    return gk.ChangePoints(parts, places, steepness=[3.0, 5.0]), X[:, :1] + origin


def _categorical(origin: float) -> tuple[gk.Kernel, np.ndarray]:
    times, labels = gk.Matern52(active_dims=[0]), gk.RBF(active_dims=[1])
    kernel = Categorical(times, labels, 3)
    kernel._Z_deltas.assign(np.array([[0.3], [1.1]]))
    return kernel, np.column_stack([X[:, 0] + origin, np.arange(40) % 3])


@pytest.mark.exhaustive
@pytest.mark.parametrize("make", [_changing, _categorical])
def test_kernels_around_other_kernels(make) -> None:
    """Those inside are centred; the mean of a CVIGP moved by 7e-5 at 2^20 lengthscales."""
    kernel, inputs = make(0.0)
    near = _with_gradients(kernel, inputs, products=False)
    assert_allclose(near[1], kernel(inputs), rtol=1e-10, atol=1e-12)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(kernel(inputs[:7], inputs) * np.cos(np.arange(280.0)).reshape(7, 40))
    slopes = tape.gradient(value, kernel.trainable_variables)
    for one, other in zip(near[-len(slopes) :], slopes):
        assert_allclose(one, other, rtol=1e-8, atol=1e-8)
    for one, other in zip(near, _with_gradients(*make(2.0**30), products=False)):
        assert_allclose(other, one, rtol=1e-8, atol=1e-8)


@pytest.mark.exhaustive
@pytest.mark.parametrize("offset", [*OFFSETS, 1.7e9])
def test_means_of_models(offset: float) -> None:
    """Seconds of a clock: the mean of a CVIGP moved by 4 at 1.7e9, and that on all data at 1e7 by
    0.21.
    """
    means = []
    for origin in (0.0, offset):
        inputs = X + origin
        kernel = gk.Matern52(lengthscales=0.5)
        exact = gd.models.CVIGP((inputs, Y), kernel, gpflow.likelihoods.Gaussian(0.01))
        gd.optimizers.ConjugateComputation().run(exact)
        sparse = gd.models.ODVGP(kernel, gpflow.likelihoods.Gaussian(0.01), "data", inputs[:5])
        gd.optimizers.ConjugateGradients().run(sparse, (inputs, Y))
        means.append([model.predict_f(inputs[:9])[0].numpy() for model in (exact, sparse)])
    assert_allclose(means[1][0], means[0][0], rtol=1e-8, atol=1e-8)
    assert_allclose(means[1][1], means[0][1], rtol=1e-5, atol=1e-5)  # up to the solver's tolerance


def _owner(name: str, X: np.ndarray, Y: np.ndarray) -> gpflow.models.GPModel:
    kernel, noise = gk.Matern52(lengthscales=[0.5, 0.8]), gpflow.likelihoods.Gaussian(0.01)
    if name == "CVIGP":
        model = gd.models.CVIGP((X, Y), kernel, noise)
        gd.optimizers.ConjugateComputation().run(model)
        return model
    spread = 4 if name == "spread" else None
    mean = "data" if name == "data" else "neighbours"
    model = gd.models.NNGP(
        (X, Y), kernel, noise, num_neighbours=8, spread_neighbours=spread, mean=mean
    )
    if name == "data":
        model.solve_mean(tolerance=1e-12)
    return model


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["CVIGP", "NNGP", "data", "spread"])
def test_an_input_far_away_changes_no_other(name: str) -> None:
    """Beside an input at 1e7 the mean of a CVIGP moved by 0.2, and with a row of data there that of
    an NNGP; at 1e9 by 12 and 0.7, or nothing was predicted.
    """
    few, close = X[:9] + 0.1, {"rtol": 1e-5, "atol": 1e-6}
    model = _owner(name, X, Y)
    alone = [part.numpy() for part in model.predict_f(few)]
    for far in (1e7, -1e9):
        row = np.full((1, 2), far)
        for beside, own in zip(model.predict_f(np.concatenate([row, few])), alone):
            assert_allclose(beside[1:], own, rtol=1e-10, atol=1e-12)
        if name == "CVIGP" or far > 0:
            owner = _owner(name, np.concatenate([row, X]), np.concatenate([[[0.0]], Y]))
            for other, own in zip(owner.predict_f(few), alone):
                assert_allclose(other, own, **close)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", ["Matern52", "RationalQuadratic", "sum"])
@pytest.mark.parametrize("block", [None, (8, 8)])
def test_a_product_row_depends_on_no_other(name: str, block: tuple[int, int] | None) -> None:
    """Stored, by fused blocks and by strips: the origin is a row of Z, never one of X."""
    kernel, V = KERNELS[name](), tf.constant(np.cos(np.arange(80.0)).reshape(40, 2))
    rows = np.concatenate([np.full((6, 2), 1e9), X[:4] + 0.1])  # most are far: so is their middle
    for columns in (V, V[:, :1]):
        beside, alone = (
            kernel_product(kernel, some, X, columns, block=block, xla=False)
            for some in (rows, rows[6:])
        )
        assert_allclose(beside[6:], alone, rtol=1e-10, atol=1e-12)


def test_joint_predictions_far_from_the_origin() -> None:
    near, far = (
        _owner("NNGP", X + origin, Y).predict_f(X[:9] + origin, full_cov=True)
        for origin in (0.0, 2.0**30)
    )
    for one, other in zip(near, far):
        assert_allclose(other, one, rtol=1e-8, atol=1e-8)


def test_float32_at_its_scale() -> None:
    """2^12 is as far for multiples of 2^-10 as float32 can tell."""
    gpflow.config.set_default_float(np.float32)
    kernel = gk.Matern52(lengthscales=0.5)
    near, far = ((X + origin).astype(np.float32) for origin in (0.0, 2.0**12))
    points = [gpflow.inducing_variables.InducingPoints(one[:7]) for one in (near, far)]
    one, other = (gram_to_data(kernel, z, x) for z, x in zip(points, (near, far)))
    assert_allclose(other, one, atol=1e-5)


@pytest.mark.exhaustive
def test_selection() -> None:
    chosen = [
        gd.inducing.select(X + origin, 10, gk.Matern52(lengthscales=0.3)) - origin
        for origin in (0.0, *OFFSETS)
    ]
    for far in chosen[1:]:
        assert_allclose(far, chosen[0], rtol=1e-8)
