"""The search for nearest rows against sorting all of them, and covariances of neighbourhoods
against the kernel's own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels as gk
from numpy.testing import assert_allclose

import gpflow_decoupled.covariances.neighbours as tree_module
from gpflow_decoupled.covariances.neighbourhoods import conditional_variances, neighbourhood_grams
from gpflow_decoupled.covariances.neighbours import earlier_neighbours, kept_index, row_index
from gpflow_decoupled.covariances.stationary import reads_scaled_inputs

N, B, M = 1200, 70, 12  # enough rows for a tree, and queries for two blocks
SCALES = np.array([0.5, 1.0, 2.0])


def _distance(Q: np.ndarray, P: np.ndarray) -> np.ndarray:
    return np.linalg.norm((Q[:, None] - P) / SCALES, axis=-1)


def _columns(Q: np.ndarray, P: np.ndarray) -> np.ndarray:
    return np.abs(Q[:, 1][:, None] - P[:, 1])


def _correlation(make: Callable[[], gk.Kernel]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Minus the squared correlation."""

    def far(Q: np.ndarray, P: np.ndarray) -> np.ndarray:
        variances = make()(P, full_cov=False).numpy()
        return -np.square(make()(Q, P).numpy()) / variances

    return far


def _linear() -> gk.Kernel:
    """Opposite inputs are as near as equal ones: their values are each other's negatives."""
    return gk.Linear(variance=[0.3, 0.5, 1.0])


def _sum() -> gk.Kernel:
    return gk.Matern32() + gk.Matern12(lengthscales=0.3, active_dims=[0])


class GreatCircle(gk.Matern12):
    """Of the angle between places in degrees of latitude and longitude, the third column aside."""

    def scaled_squared_euclid_dist(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        places = []
        for inputs in (X, X if X2 is None else X2):
            phi, psi = tf.unstack(inputs[..., :2] * (np.pi / 180.0), axis=-1)
            parts = tf.cos(phi) * tf.cos(psi), tf.cos(phi) * tf.sin(psi), tf.sin(phi)
            places.append(tf.stack(parts, axis=-1))
        cosine = tf.tensordot(places[0], places[1], [[-1], [-1]])
        return tf.square(tf.acos(tf.clip_by_value(cosine, -1.0, 1.0)) / self.lengthscales)


def _angle(Q: np.ndarray, P: np.ndarray) -> np.ndarray:
    """By the half-angle formula."""
    (phi, psi), (theta, chi) = np.deg2rad(Q[:, None, :2].T), np.deg2rad(P[None, :, :2].T)
    phi, psi, theta, chi = phi.T, psi.T, theta.T, chi.T
    chord = np.sin((phi - theta) / 2) ** 2
    chord = chord + np.cos(phi) * np.cos(theta) * np.sin((psi - chi) / 2) ** 2
    return 2.0 * np.arcsin(np.sqrt(chord))


SEARCHES: dict[str, tuple[Callable[[], gk.Kernel], Callable, int]] = {
    "tree": (lambda: gk.Matern32(lengthscales=SCALES), _distance, N),
    "products": (lambda: gk.Matern32(lengthscales=SCALES), _distance, 200),
    "one column": (lambda: gk.RationalQuadratic(active_dims=[1]), _columns, N),
    "linear": (_linear, _correlation(_linear), 200),
    "sum": (_sum, _correlation(_sum), 200),
    "great circle": (lambda: GreatCircle(lengthscales=0.3), _angle, N),
}


def _same(found: np.ndarray, far: np.ndarray) -> None:
    """Rows [B, m] are those with the least of `far` [B, N], infinite for those that are left out;
    -1 for the rest.
    """
    for row, distance in zip(found, far):
        there = np.argsort(distance, kind="stable")[: np.sum(np.isfinite(distance))][: len(row)]
        assert set(row) == set(there) | ({-1} if len(there) < len(row) else set())
        assert np.sum(row >= 0) == len(there)


def test_derived_kernels_read_scaled_inputs_unless_they_have_a_distance():
    class Cauchy(gk.RationalQuadratic):
        def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
            return self.variance / (1.0 + r2)

    others = GreatCircle(), gk.Linear(), gk.Matern12() + gk.Matern12(), *GreatCircle().submodules
    assert all(map(reads_scaled_inputs, (gk.Matern12(), gk.Cosine(), Cauchy())))
    assert not any(map(reads_scaled_inputs, others))


@pytest.mark.costly(keep=4)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", SEARCHES)
def test_nearest_rows_are_the_first_of_all_sorted(name, compiled, rng):
    make, far, rows = SEARCHES[name]
    X, Q = rng.normal(size=(rows, 3)) + 50.0 * (name == "products"), rng.normal(size=(B, 3))
    if name == "great circle":  # on both sides of the date line, near a pole
        X, Q = (np.array([80.0, 180.0, 0.0]) + 5.0 * part for part in (X, Q))
        X[:, 1] = (X[:, 1] + 180.0) % 360.0 - 180.0
    kernel = make()

    def search(Q: tf.Tensor) -> tf.Tensor:
        return row_index(kernel, tf.constant(X)).nearest(Q, M)

    run = tf.function(
        search, input_signature=[tf.TensorSpec([None, 3], tf.float64)], autograph=False
    )
    _same((run if compiled else search)(tf.constant(Q)).numpy(), far(Q, X))


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("name", SEARCHES)
def test_rows_before_and_rows_beside_itself(name, rng):
    make, far, rows = SEARCHES[name]
    X, kernel = rng.normal(size=(rows, 3)), make()
    places = np.concatenate([[0, 1, 2, 5, 16, rows - 1], rng.choice(rows, 30)])
    distance = far(X[places], X)
    before = np.where(np.arange(rows) < places[:, None], distance, np.inf)
    inputs = tf.constant(X)
    _same(earlier_neighbours(kernel, inputs, tf.gather(inputs, places), places, M), before)
    others = np.where(np.arange(rows) != places[:, None], distance, np.inf)
    index = row_index(kernel, inputs)
    _same(index.nearest(tf.gather(inputs, places), M, itself=tf.constant(places)).numpy(), others)


def test_trees_are_for_data_that_few_columns_spread(rng):
    """Ten columns of which one decides are as good as one, and ten equal ones are too many."""
    X = rng.normal(size=(N, 10))
    for scales, few in ((np.ones(10), False), (3.0 ** np.arange(10), True)):
        index = row_index(gk.Matern32(lengthscales=scales), tf.constant(X))
        assert (index._tree is not None) == few
        scaled = X / scales
        far = np.linalg.norm(scaled[:B, None] - scaled, axis=-1)
        _same(index.nearest(tf.constant(X[:B]), M).numpy(), far)


@pytest.mark.exhaustive
def test_trees_of_many_rows_miss_none(rng, monkeypatch):
    """Whether many ask or few; compiled functions find the same."""
    X, Q = tf.constant(rng.normal(size=(110_000, 3))), tf.constant(rng.normal(size=(120, 3)))
    kernel = gk.Matern32()
    index = row_index(kernel, X)
    few, between, build = index.nearest(Q[:5], 60).numpy(), [], tree_module._tree_of

    def building(points: np.ndarray) -> object:
        """Another thread asks while the tree of moved points is built."""
        if len(points) == len(X):
            between.append(index.nearest(Q[:5], 60).numpy())
        return build(points)

    monkeypatch.setattr(tree_module, "_tree_of", building)
    found = index.nearest(Q, 60).numpy()
    assert len(between) == 1 and np.array_equal(few, between[0])
    assert np.array_equal(few, found[:5])
    blocks = tf.function(lambda Q: row_index(kernel, X).nearest(Q, 60), autograph=False)
    assert np.array_equal(np.sort(blocks(Q), axis=1), np.sort(found, axis=1))


def test_an_index_is_kept_until_rows_or_lengthscales_change(rng):
    X, kernel, owner = tf.constant(rng.normal(size=(30, 2))), gk.Matern52(), tf.Module()
    first = kept_index(owner, kernel, X)
    assert kept_index(owner, kernel, X) is first
    kernel.variance.assign(3.0)  # does not matter to distances
    assert kept_index(owner, kernel, X) is first
    kernel.lengthscales.assign(0.5)
    second = kept_index(owner, kernel, X)
    assert second is not first
    assert kept_index(owner, kernel, X + 1.0) is not second
    assert kept_index(tf.Module(), kernel, X) is not second
    assert kept_index(owner, gk.Matern12(), X) is not second


def test_rows_that_single_precision_cannot_tell_apart_are_ranked(rng):
    X = 1e3 * rng.normal(size=(200, 3))
    X[:20] = 3e3 + 0.1 * rng.normal(size=(20, 3))  # squares of 1e7 are rounded by 0.5
    found = row_index(gk.Matern32(lengthscales=SCALES), tf.constant(X)).nearest(X[:5], M)
    _same(found.numpy(), _distance(X[:5], X))


def _two_series(columns: int, rows: int) -> np.ndarray:
    """Readings 16 s apart in two series a year apart, in a random order."""
    times = 16.0 * np.arange(rows // 2)
    times = np.concatenate([times, 2.0**25 + times])[np.random.default_rng(0).permutation(rows)]
    return times[:, None] * np.eye(1, columns)


def _lattice(columns: int, rows: int) -> np.ndarray:
    """Whole numbers, with many rows as far as the others."""
    return 8.0 * np.stack(np.unravel_index(np.arange(rows), [6] * columns), axis=1)


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize("parts, columns, rows", [(1, 4, 300), (1, 4, N), (1, 9, N), (2, 4, 300)])
@pytest.mark.parametrize("data", [_two_series, _lattice])
def test_far_groups_and_ties_are_ranked_alike_in_every_search(parts, data, columns, rows):
    """By differences of inputs, of rows that are as far the first: by trees, products, in graphs,
    and among earlier rows.
    """
    X, places, length = data(columns, rows), np.arange(0, rows, 37), 64.0
    kernel = gk.Matern52(lengthscales=length)
    kernel = kernel if parts == 1 else kernel + gk.Matern12(lengthscales=length)
    squares = np.sum(np.square((X[places][:, None] - X) / length), axis=-1)
    queries = tf.constant(X[places])

    def search(queries: tf.Tensor) -> tf.Tensor:
        return row_index(kernel, tf.constant(X)).nearest(queries, M)

    for found in (search(queries), tf.function(search, autograph=False)(queries)):
        assert np.array_equal(found, np.argsort(squares, axis=1, kind="stable")[:, :M])
    before = np.where(np.arange(rows) < places[:, None], squares, np.inf)
    _same(earlier_neighbours(kernel, tf.constant(X), queries, places, M), before)


def test_more_neighbours_than_rows_are_nobody(rng):
    X = tf.constant(rng.normal(size=(4, 3)))
    found = row_index(gk.Matern32(), X).nearest(X, 6).numpy()
    assert np.all(np.sort(found, axis=1) == [-1, -1, 0, 1, 2, 3])
    itself = row_index(gk.Matern32(), X).nearest(X, 4, itself=tf.range(4)).numpy()
    assert np.all(itself[:, -1] == -1) and not np.any(itself == np.arange(4)[:, None])


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize(
    "make", [gk.Matern12, gk.Exponential, gk.Matern32, gk.Matern52, gk.SquaredExponential]
)
@pytest.mark.parametrize("fused", [False, True])
def test_covariances_and_gradients_are_those_of_the_kernel(make, fused, rng):
    kernel = make(variance=1.3, lengthscales=[0.5, 2.0])
    X = tf.constant(rng.normal(size=(4, 5, 2)))
    weights = rng.normal(size=(4, 5, 5))
    weights = tf.constant(weights + np.swapaxes(weights, 1, 2))
    values, gradients = [], []
    for function in (lambda: neighbourhood_grams(kernel, X, fused), lambda: kernel(X)):
        with tf.GradientTape() as tape:
            tape.watch(X)
            K = function()
            total = tf.reduce_sum(weights * K)
        values.append(K)
        gradients.append(tape.gradient(total, [X, *kernel.trainable_variables]))
    assert_allclose(values[0], values[1], rtol=1e-7, atol=1e-12)
    for ours, theirs in zip(*gradients):
        assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)


def test_copies_without_noise_have_variances_above_zero():
    """The least noise is 1e-10 of the prior variance: of a copy, and of the row itself."""
    X, kernel = tf.zeros([3, 2], tf.float64), gk.Matern32(variance=2.0)
    neighbours = tf.constant([[-1, -1], [0, -1], [0, 1]])
    found = conditional_variances(kernel, X, tf.zeros([3], tf.float64), tf.range(3), neighbours)
    assert_allclose(found, 2.0 * np.array([1.0, 2e-10, 1.5e-10]), rtol=1e-3)


def test_neighbourhoods_far_from_the_origin_lose_no_digits(rng):
    near, kernel = rng.normal(size=(1, 5, 2)), gk.Matern12()
    far = near + 2.0**27  # |a|^2 is 1e16 there, with rounding errors of 1
    assert_allclose(neighbourhood_grams(kernel, tf.constant(far)), kernel(far - 2.0**27), rtol=1e-7)
    duplicates = tf.constant(np.repeat(near[:, :1], 3, axis=1))
    with tf.GradientTape() as tape:
        K = neighbourhood_grams(kernel, duplicates)
        total = tf.reduce_sum(K)
    assert_allclose(K, np.ones((1, 3, 3)))
    for gradient in tape.gradient(total, kernel.trainable_variables):
        assert np.all(np.isfinite(gradient))
