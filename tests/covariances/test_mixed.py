"""Kernels over categories against columns of 0 and 1 with one lengthscale, in NumPy."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.covariances.latents import indices_of
from gpflow_decoupled.covariances.mixed import MIXED, Mixed, over_categories, takes_categories
from gpflow_decoupled.covariances.neighbourhoods import neighbourhood_grams
from gpflow_decoupled.covariances.neighbours import LevelTrees, earlier_neighbours, row_index
from gpflow_decoupled.covariances.products import kernel_product
from gpflow_decoupled.covariances.stationary import array_gram, covariance, stationary_gram
from gpflow_decoupled.pathwise.prior import draw_prior
from tests.reference.mixed import RADIAL, distances, one_hot

N, CATEGORIES, LENGTHS = 60, [1, 3], np.array([0.7, 1.3, 2.0, 0.9])
KINDS = sorted(MIXED, key=lambda kind: kind.__name__)


def _inputs(rows: int = N, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 4))
    X[:, 1], X[:, 3] = rng.integers(12, size=rows), rng.integers(3, size=rows)
    return X


def _kernel(kind: type = gpflow.kernels.Matern52) -> Mixed:
    return MIXED[kind](1.7, LENGTHS, categories=CATEGORIES)


def _gram(kind: type, lengths: np.ndarray = LENGTHS, rows: int = N) -> np.ndarray:
    return 1.7 * RADIAL[kind.__name__](distances(one_hot(_inputs(rows), lengths, CATEGORIES)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_equals_columns_of_0_and_1_that_share_a_lengthscale(kind: type) -> None:
    kernel, X, expected = _kernel(kind), tf.constant(_inputs()), _gram(kind)
    few = slice(0, 9)
    assert_allclose(
        kernel(X), expected, rtol=1e-12, atol=1e-12 if kind.__name__ != "Matern12" else 1e-7
    )
    for K, right in [
        (kernel(X, X[few]), expected[:, few]),
        (covariance(kernel, X + 0.0, X[few]), expected[:, few]),
        (neighbourhood_grams(kernel, tf.stack([X, X]))[1], expected),
        (neighbourhood_grams(kernel, X[None], fused=True)[0], expected),
        (kernel_product(kernel, X, X[few], tf.eye(9, dtype=X.dtype)), expected[:, few]),
    ]:
        assert_allclose(K, right, rtol=1e-7, atol=1e-7)
    fast = stationary_gram(kernel, X[few], X)
    if fast is not None:
        assert_allclose(fast, expected[few], rtol=1e-12, atol=1e-12)
        assert_allclose(stationary_gram(kernel, X), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shared", [False, True])
def test_gradients_are_those_of_the_columns(shared: bool) -> None:
    """By central differences of the reference."""
    X, rng = _inputs(), np.random.default_rng(1)
    lengths = np.array(1.1) if shared else LENGTHS
    upstream = rng.normal(size=(N, N))
    upstream += upstream.T

    def value(lengths: np.ndarray) -> float:
        each = np.broadcast_to(lengths, 4)
        return float(np.vdot(upstream, _gram(gpflow.kernels.Matern52, each)))

    steps = 1e-5 * (np.ones((1,)) if shared else np.eye(4))
    slopes = [(value(lengths + step) - value(lengths - step)) / 2e-5 for step in steps]
    kernel = MIXED[gpflow.kernels.Matern52](1.7, lengths, categories=CATEGORIES)
    grams = [
        lambda: kernel(X),
        lambda: stationary_gram(kernel, tf.constant(X)),
        lambda: stationary_gram(kernel, tf.constant(X), tf.constant(X)),
        lambda: neighbourhood_grams(kernel, tf.constant(X)[None])[0],
    ]
    for gram in grams:
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(upstream * gram())
        slope = tape.gradient(total, kernel.lengthscales.unconstrained_variable)
        step = tf.sigmoid(kernel.lengthscales.unconstrained_variable)
        assert_allclose(tf.reshape(slope / step, [-1]), slopes, rtol=1e-5, atol=1e-5)
    K, back = array_gram(kernel, X)(lambda one: one.numpy())
    assert_allclose(K, kernel(X), rtol=1e-12)
    found = {id(parameter): slope for parameter, slope in back(upstream)}
    assert_allclose(np.reshape(found[id(kernel.lengthscales)], -1), slopes, rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive
def test_neighbours_are_those_of_all_distances() -> None:
    X = _inputs(1500)
    X[::7, [0, 2]] = 1.0  # ties
    kernel, D = _kernel(), distances(one_hot(X, LENGTHS, CATEGORIES))
    order = np.argsort(np.round(D, 12), axis=1, kind="stable")[:, :20]
    data, rows = tf.constant(X), slice(0, 200)
    index = row_index(kernel, data)
    assert isinstance(index._tree, LevelTrees)
    far = data[rows] + [0.0, 100.0, 0.0, 0.0]  # no row has these codes
    expected = np.argsort(
        np.round(distances(one_hot(np.vstack([far, X]), LENGTHS, CATEGORIES))[:200, 200:], 12),
        axis=1, kind="stable",
    )[:, :20]  # fmt: skip
    np.testing.assert_array_equal(index.nearest(far, 20), expected)
    np.testing.assert_array_equal(index.nearest(data[rows], 20), order[rows])
    compiled = tf.function(lambda queries: row_index(kernel, data).nearest(queries, 20))
    np.testing.assert_array_equal(compiled(data[rows]), order[rows])
    places = np.arange(700, 760)
    found = earlier_neighbours(kernel, data, data[700:760], places, 5)
    for place, near in zip(places, found):
        before = np.argsort(np.round(D[place, :place], 12), kind="stable")[:5]
        np.testing.assert_array_equal(near, before)


def test_a_sum_finds_neighbours_by_correlation() -> None:
    X, kernel = _inputs(300), _kernel() + gpflow.kernels.Matern32(active_dims=[0])
    order = np.argsort(-np.round(kernel(X).numpy(), 10), axis=1, kind="stable")[:50, :8]
    far = tf.constant(X + [1e6, 0.0, 0.0, 0.0])  # by differences
    for data in (tf.constant(X), far):
        found = row_index(kernel, data).nearest(data[:50], 8).numpy()
        assert np.mean(found == order) > 0.99


def test_no_origin_and_no_number_of_a_code_matters() -> None:
    X, expected = _inputs(), _gram(gpflow.kernels.Matern52)
    X[:, 1] = 2**24 - 1 - X[:, 1]
    moved = tf.constant(X + [1e6, 0.0, -1e6, 0.0])
    for K in (stationary_gram(_kernel(), moved), covariance(_kernel(), moved)):
        assert_allclose(K, expected, rtol=1e-8, atol=1e-8)
    single = gpflow.kernels.Matern52
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        K = stationary_gram(_kernel(single), tf.constant(X, tf.float32))
    assert_allclose(K, expected, rtol=1e-4, atol=1e-4)


def test_over_categories_copies_kernels_that_it_knows() -> None:
    gk, X = gpflow.kernels, _inputs()
    plain = gk.Matern32(2.0, 0.8, active_dims=[3, 0]) * gk.White() + gk.Matern52(active_dims=[0])
    found = over_categories(plain, CATEGORIES)
    expected = 2.0 * RADIAL["Matern32"](distances(one_hot(X[:, [3, 0]], np.array([0.8, 0.8]), [0])))
    np.testing.assert_allclose(found.kernels[0].kernels[0](X), expected, atol=1e-10)
    assert {index.column for index in indices_of(found)} == {3}
    assert type(found.kernels[1]) is gk.Matern52
    assert takes_categories(plain) and not takes_categories(gk.Linear() + gk.Matern12())


@pytest.mark.parametrize("categories", [[], [4], [-1], [0.5]])
def test_columns_that_are_not_read_are_refused(categories: list) -> None:
    with pytest.raises(
        gd.errors.DataError, match="categories=.* must be numbers of active columns"
    ):
        MIXED[gpflow.kernels.Matern52](categories=categories, active_dims=[0, 1, 2])


def test_codes_that_are_not_whole_are_refused() -> None:
    X, Y = _inputs(), np.ones((N, 1))
    X[4, 1] += 0.5
    with pytest.raises(gd.errors.DataError, match=r"X\[4, 1\] is .*5, and MixedMatern52 reads"):
        gd.models.CVIGP((X, Y), _kernel(), gpflow.likelihoods.Gaussian())


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [gpflow.kernels.Matern52, gpflow.kernels.SquaredExponential])
def test_prior_draws_have_the_covariance(kind: type) -> None:
    """Of levels, too; the standard error of 4,000 draws is 1.7 / 4000^(1/2)."""
    X = tf.constant(_inputs(8))
    prior = draw_prior([_kernel(kind)], 4, 4000, 40, np.random.default_rng(0))
    values = prior(X).numpy()[:, 0]
    assert_allclose(np.cov(values.T), _gram(kind, rows=8), atol=5 * 1.7 * np.sqrt(2.0 / 4000))
    assert_allclose(prior(tf.reverse(X, [0])).numpy()[:, 0, ::-1], values, rtol=1e-10)
