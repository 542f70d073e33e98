"""Conjugate gradients for Gaussian noise: the dense solve, and a gap that contains the distance
after every product.
"""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose
from scipy.linalg import cho_factor, cho_solve

from gpflow_decoupled.bases import GaussianPart
from gpflow_decoupled.covariances.products import gram_product
from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.linalg import conjugate_gradients as cg
from gpflow_decoupled.models import ODVGP
from gpflow_decoupled.optimizers import ConjugateGradients, NaturalGradient
from gpflow_decoupled.optimizers.data_mean import solve_mean as solve
from gpflow_decoupled.optimizers.data_mean import system as system_module
from gpflow_decoupled.optimizers.data_mean.evidence import posterior_of, sites_of
from gpflow_decoupled.optimizers.data_mean.solve_mean import seconds_of_solves, solve_mean
from gpflow_decoupled.optimizers.data_mean.system import (
    MeanSolution,
    MeanSystem,
    Point,
    best_of,
    nested_points,
    point_of,
    project_rows,
)
from gpflow_decoupled.replicas import Group
from tests.bounds.registry import matern, numpy_kernel
from tests.optimizers.data_mean.problems import (
    BETA,
    NEW,
    NOISE,
    PARTS,
    TARGET,
    TREND,
    N,
    X,
    Y,
    exact_mean,
    grams_of,
    model_of,
    system_of,
)
from tests.reference import collapsed as col
from tests.reference import data_mean as dm
from tests.reference import grams as gr


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", PARTS)
def test_coefficients_posterior_and_bound_are_those_of_the_dense_solve(name: str) -> None:
    make, latents = PARTS[name]
    kernel = make()
    model, data = model_of(kernel=kernel, latents=latents), (X, Y[:, :latents])
    result = ConjugateGradients(tolerance=1e-11).run(model, data)
    assert result.converged and result.reason == "converged" and 0.0 <= result.gap <= 1e-11
    assert (result.steps, len(result.gaps)) == (1, result.products + 1) and model.num_data == N
    assert_allclose([result.elbo, result.history["elbo"][-1]], float(model.elbo(data)), rtol=1e-12)
    bound = 0.0
    for latent in range(latents):
        k, y = grams_of(kernel, latent), TARGET[:, latent]
        a = exact_mean(kernel, latent)
        assert_allclose(model.basis.a_gamma[:, latent], a, atol=1e-5)
        m, S = (
            col.whitened_mean_given_gamma(k, y, NOISE, a),
            col.optimal_whitened_covariance(k, NOISE),
        )
        root = model.basis.q_sqrt.numpy()[latent]
        assert_allclose(model.basis.q_mu[:, latent], m, rtol=1e-5, atol=1e-6)
        assert_allclose(root @ root.T, S, rtol=1e-7, atol=1e-10)
        at_new = grams_of(kernel, latent, inputs=NEW)
        exact = dm.exact_posterior(k.K_x, at_new.K_xg, at_new.K_x, y, NOISE)[0]
        assert_allclose(model.predict_f(NEW)[0][:, latent], exact + TREND(NEW)[:, 0], atol=1e-6)
        bound += dm.bound(k.K_x, k.Q_x, y, NOISE, a)
        assert bound < dm.log_evidence(k.K_x, y, NOISE) or latents > 1
    assert_allclose(result.elbo, bound, rtol=1e-10)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("products", [1, 4])
def test_every_end_of_a_run_is_the_bound_at_its_coefficients(products: int) -> None:
    """With the best q(u) given them, which a natural gradient finds as well."""
    model, k = model_of(), grams_of(matern(1.3, 0.8))
    result = ConjugateGradients(tolerance=1e-9, max_products=products).run(model, (X, Y[:, :1]))
    assert not result.converged and result.reason == "products done"
    a = model.basis.a_gamma.numpy()[:, 0]
    assert_allclose(result.elbo, dm.bound(k.K_x, k.Q_x, TARGET[:, 0], NOISE, a), rtol=1e-9)
    at = k.K_x, k.Q_x, np.full(N, 1.0 / NOISE), TARGET[:, 0], a
    assert_allclose(result.gap, dm.gap(*at), rtol=1e-6)
    before = model.basis.q_mu.numpy()
    NaturalGradient().minimize(model, (X, Y[:, :1]))
    assert_allclose(model.basis.q_mu, before, rtol=1e-7, atol=1e-9)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("float32", [True, False])
def test_without_a_certificate_the_gap_is_an_estimate(float32: bool) -> None:
    """Which costs no product in full precision, from the data or from where an earlier solve
    ended.
    """
    k, options = grams_of(matern(1.3, 0.8)), {"tolerance": 1e-2, "float32": float32}
    certified = ConjugateGradients(**options).run(model_of(), (X, Y[:, :1]))
    model = model_of()
    result = ConjugateGradients(**options, certify=False).run(model, (X, Y[:, :1]))
    assert result.converged and result.products == certified.products - 1
    a = model.basis.a_gamma.numpy()[:, 0]
    true = dm.gap(k.K_x, k.Q_x, np.full(N, 1.0 / NOISE), TARGET[:, 0], a)
    assert (certified.certified, result.certified) == (True, False)
    assert_allclose(result.gap, true, rtol=0.05)
    assert_allclose(result.elbo, dm.bound(k.K_x, k.Q_x, TARGET[:, 0], NOISE, a), rtol=1e-5)
    again = ConjugateGradients(tolerance=result.gap / 10.0, float32=float32, certify=False).run(
        model, (X, Y[:, :1])
    )
    assert again.converged and again.gap < result.gap and again.elbo >= result.elbo - 1e-4


def test_heteroskedastic_noise_and_a_sum_of_kernels() -> None:
    scale = gpflow.functions.Linear(np.array([[0.05], [0.0]]), np.array([0.4]))
    kernel = gpflow.kernels.Matern52(active_dims=[1]) + gpflow.kernels.Linear(active_dims=[0])
    model = model_of(gl.Gaussian(scale=scale), kernel=kernel)
    ConjugateGradients(tolerance=1e-10).run(model, (X, Y[:, :1]))
    precisions = 1.0 / scale(X).numpy()[:, 0] ** 2
    a = dm.coefficients(kernel(X).numpy(), precisions, TARGET[:, 0])
    assert_allclose(model.basis.a_gamma[:, 0], a, atol=1e-4)


# --- the certificate


def _with_iterates(
    system: MeanSystem, start: tf.Tensor, *limits: float, **options: Any
) -> tuple[MeanSolution, list]:
    """A solve, and the coefficients [N] to which each of its gaps belongs: a product that certifies
    repeats the last ones.
    """
    found = [start]

    def begin(*arguments: Any) -> Any:
        found.append(found[-1])
        return cg.begin(*arguments)

    def advance(now: cg.Iterate, *arguments: Any) -> cg.Iterate:
        then = cg.advance(now, *arguments)
        found.append(found[-1] + then.x[0] - now.x[0])
        return then

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solve, "begin", begin)
        patch.setattr(solve, "advance", advance)
        whole = solve_mean(system, start, *limits, **options)
    return whole, [a.numpy()[:, 0] for a in (*found[1:], found[-1])]


def _probit_sites(X: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Precisions and pseudo-observations [N] of a Bernoulli model, where its second solve has
    led.
    """
    model = ODVGP(matern(1.3, 0.8), gl.Bernoulli(), "data", beta)
    noise = np.random.default_rng(6).normal(size=(len(X), 1))
    data = model.checked((X, (np.sin(3.0 * X[:, :1]) + noise > 0.0).astype(float)))
    ConjugateGradients(tolerance=1e-3, max_steps=2).run(model, data)
    state = model.basis.factor(model.kernel, with_kl=False)
    projections = project_rows(model.kernel, model.basis.beta, data[0], len(beta))
    K_a = model.kernel(X) @ state.a
    now = posterior_of(model, data, projections, state.a, K_a, GaussianPart(state.mean, state.root))
    natural, weights, _ = sites_of(now)
    assert np.ptp(weights) > 0.1
    return weights.numpy()[:, 0], (natural / weights).numpy()[:, 0]


def _check_every_product(
    X: np.ndarray,
    beta: np.ndarray,
    precisions: np.ndarray,
    target: np.ndarray,
    *,
    rank: int | None = None,
    every: int = 1,
    **options: Any,
) -> None:
    """The run that is stopped after k products has the k-th iterate of the whole run, whose gaps
    contain the distance, too.

    Tolerances: 1e-9 of the gap, and 1e-12 of y~^T (K + D)^-1 y~, which is the size of the numbers
    that the gap is made of."""

    count = len(X)
    k = gr.build_grams(
        numpy_kernel(matern(1.3, 0.8), 0), X, beta, X[:1], gpflow.config.default_jitter()
    )
    kernel = matern(1.3, 0.8)
    system = system_of(
        precisions[:, None], target[:, None], rank or count // 4, kernel=kernel, X=X, beta=beta
    )
    start = tf.zeros([count, 1], tf.float64)
    whole, iterates = _with_iterates(system, start, 1e-6, 500, **options)
    assert whole.reason == "converged" and whole.certified
    exact = dm.coefficients(k.K_x, precisions, target)
    scale = target @ exact

    factor = cho_factor(k.Q_x + np.diag(1.0 / precisions))

    def gap_and_distance(a: np.ndarray) -> tuple[float, float]:
        """As `dm.gap` and `dm.distance`, whose terms would cancel."""
        r = target - k.K_x @ a - a / precisions
        gap = 0.5 * float(r @ cho_solve(factor, r))
        return gap, gap - 0.5 * float(r @ (exact - a))

    nothing = k.K_x, k.Q_x, precisions, target, 0.0 * exact
    assert_allclose(
        gap_and_distance(0.0 * exact), [dm.gap(*nothing), dm.distance(*nothing)], rtol=1e-8
    )
    for index, (gap, a) in enumerate(zip(whole.gaps, iterates, strict=True)):
        true, distance = gap_and_distance(a)
        assert distance <= gap * (1 + 1e-9) + 1e-12 * scale, f"gap {index} of {len(iterates)}"
        assert gap <= 5.0 * true + 1e-12 * scale, f"gap {index} of {len(iterates)} says nothing"
    for products in range(1, whole.products, every):
        found = solve_mean(system, start, 1e-6, products, **options)
        a = found.a.numpy()[:, 0]
        at = k.K_x, k.Q_x, precisions, target, a
        slack = 1e-12 * scale
        assert gap_and_distance(a)[1] <= found.gap * (1 + 1e-9) + slack, products
        assert_allclose(found.gap, dm.gap(*at), rtol=1e-5, atol=slack)
        assert_allclose(found.gap, found.gaps[-1])


@pytest.mark.exhaustive
@pytest.mark.parametrize("sites", ["noise", "probit"])
def test_the_gap_contains_the_distance_after_every_product(sites: str) -> None:
    found = (np.full(N, 1.0 / NOISE), TARGET[:, 0]) if sites == "noise" else _probit_sites(X, BETA)
    _check_every_product(X, BETA, *found)


@pytest.mark.exhaustive
@pytest.mark.parametrize("sites", ["noise", "probit"])
def test_the_gap_is_certified_in_full_precision_where_products_are_not(
    sites: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = (np.full(N, 1.0 / NOISE), TARGET[:, 0]) if sites == "noise" else _probit_sites(X, BETA)
    monkeypatch.setattr("gpflow_decoupled.covariances.products._SMALL", 0)
    _check_every_product(X, BETA, *found, dtype=tf.float32, every=6)


# --- products in single precision where there is hardly any noise


def _hardly_any_noise(noise: float, draws: int = 1) -> MeanSystem:
    """A system of 150 rows and a smooth kernel, that float32 cannot represent where the noise is
    small.
    """
    rng = np.random.default_rng(7)
    inputs = rng.uniform(-2.0, 2.0, (150, 2))
    target = np.sin(inputs[:, :1]) + np.sqrt(noise) * rng.normal(size=(150, 1))
    kernel = gpflow.kernels.SquaredExponential(variance=100.0, lengthscales=10.0)
    weights = np.linspace(0.5, 1.0, 150)[:, None] / noise
    system = system_of(weights, target, 12, kernel=kernel, X=inputs, beta=inputs[:6] + 0.01)
    return MeanSystem(
        system.kernel,
        system.mean,
        system.projections,
        tf.constant(weights),
        tf.tile(system.target, [1, draws]),
        draws=draws,
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("draws", [1, 2])
def test_rounding_errors_are_measured_in_units_of_the_noise(
    draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpflow_decoupled.covariances.products._SMALL", 0)
    found = _hardly_any_noise(1e-4, draws)
    one = [
        gram_product(
            found.kernel,
            found.mean.points,
            None,
            tf.eye(150, dtype=float)[:, i : i + 1],
            dtype=tf.float32,
        )
        for i in range(150)
    ]
    error = np.hstack(one) - found.kernel(found.mean.inputs).numpy()
    root = np.sqrt(found.weights.numpy()[:, :1])
    exact = np.max(np.abs(np.linalg.eigvalsh(root * 0.5 * (error + error.T) * root.T)))
    assert 0.4 * exact <= found.rounding(tf.float32) <= 4.0 * exact, "sums are rounded, too"
    assert found.rounding(tf.float64) == 0.0
    monkeypatch.setattr(system_module, "_ROUNDED_ROWS", 15)
    assert 0.4 * exact <= found.rounding(tf.float32) <= 4.0 * exact
    monkeypatch.undo()
    assert found.rounding(tf.float32) == 0.0, "so few rows are computed in full precision"


@pytest.mark.exhaustive
@pytest.mark.parametrize("certify", [True, False])
def test_single_precision_is_left_where_rounding_exceeds_the_noise(
    certify: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpflow_decoupled.covariances.products._SMALL", 0)
    for noise, alike in ((1e-5, True), (1.0, False)):
        found = _hardly_any_noise(noise)
        start = tf.zeros_like(found.target)
        low, full = (
            solve_mean(found, start, 1e-2, 50, dtype=dtype, certify=certify)
            for dtype in (tf.float32, None)
        )
        assert low.gap <= 1e-2 and low.reason == full.reason == "converged"
        assert np.array_equal(low.a, full.a) == alike, noise


@pytest.mark.exhaustive
def test_a_solve_never_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds in single precision that make it worse end where the bound was highest; then there is
    full precision.
    """
    monkeypatch.setattr("gpflow_decoupled.covariances.products._SMALL", 0)
    monkeypatch.setattr(MeanSystem, "rounding", lambda self, dtype: 0.1)
    found = _hardly_any_noise(1e-5)
    start = solve_mean(found, tf.zeros_like(found.target), 100.0, 1).a
    options = {"dtype": tf.float32, "K_start": found.product(start, None) - start / found.weights}
    lost = solve_mean(found, start, 1e-2, 20, **options)
    assert (lost.reason, lost.certified) == ("products done", True)
    assert max(lost.gaps) > 100.0 * lost.gap and lost.gap == lost.gaps[0] == lost.gaps[-1]
    assert_allclose(lost.a, start)
    straight = solve_mean(found, start, 1e-2, 50, K_start=options["K_start"])
    monkeypatch.setattr(solve._Rounds, "_is_over", _after_five_products(solve._Rounds._is_over))
    won = solve_mean(found, start, 1e-2, 50, **options)
    assert (won.reason, won.products) == ("converged", 6 + straight.products)
    assert_allclose(won.a, straight.a)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize(
    ("noise", "accuracy", "gain"), [(1e-5, 1e-6, 0.0), (1e-3, 1e-6, 0.0), (1e-3, 10.0, 1.0)]
)
def test_a_solve_without_a_certificate_never_loses(
    noise: float, accuracy: float, gain: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a start whose product had single precision; errors are most of the noise, or a tenth."""
    monkeypatch.setattr("gpflow_decoupled.covariances.products._SMALL", 0)
    system = _hardly_any_noise(noise)
    start = solve_mean(system, tf.zeros_like(system.target), accuracy, 50).a
    rounded = system.product(start, tf.float32) - start / system.weights
    options = {"K_start": rounded, "dtype": tf.float32, "certify": False}
    found = solve_mean(system, start, 1e-3, 50, **options)
    before, then = (point_of(system, a, system.target - system.product(a, None))
                    for a in (start, found.a))  # fmt: skip
    assert found.products > 0 and then.bound >= before.bound + gain


def _after_five_products(is_over: Any) -> Any:
    """A round ends after its first five products as well."""

    def ends(self: Any) -> bool:
        return self.products == 5 or is_over(self)

    return ends


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [tf.float64, tf.float32])
@pytest.mark.parametrize("sites", ["noise", "probit"])
def test_the_gap_contains_the_distance_with_many_rows(sites: str, dtype: tf.DType) -> None:
    rng, count = np.random.default_rng(5), 2000
    inputs, target = rng.uniform(-2.0, 2.0, (count, 2)), rng.normal(size=count)
    beta = inputs[:30] + 0.01
    found = (np.full(count, 100.0), target) if sites == "noise" else _probit_sites(inputs, beta)
    _check_every_product(inputs, beta, *found, dtype=dtype, rank=200, every=15)


@pytest.mark.exhaustive
def test_more_points_of_the_preconditioner_take_fewer_products_to_the_same_mean() -> None:
    found = []
    for rank in (6, 40):
        model = model_of()
        result = ConjugateGradients(tolerance=1e-9, rank=rank).run(model, (X, Y[:, :1]))
        found.append((result.products, result.elbo))
    assert found[1][0] < 0.7 * found[0][0]
    assert found[0][1] == pytest.approx(found[1][1], abs=1e-8)


def test_nested_points_begin_with_beta_and_repeat_nothing() -> None:
    repeated = np.vstack([X[:10], X[:10], BETA[:1]])
    points = nested_points(BETA, repeated, 12)
    assert_allclose(points[: len(BETA)], BETA)
    assert len(points) == 12 == len(np.unique(points, axis=0))
    assert len(nested_points(BETA, repeated, 3)) == len(BETA)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["two latents", "separate"])
def test_several_right_hand_sides_are_systems_of_their_own(name: str) -> None:
    """All that a system computes of three draws is that of one at a time, and the gap is the
    largest of them.
    """
    rng, kernel = np.random.default_rng(4), PARTS[name][0]()
    weights, targets = (
        rng.uniform(0.5, 5.0, (N, 2)),
        rng.normal(size=(3, N, 2)) * np.array([1.0, 3.0, 2.0])[:, None, None],
    )
    ones = [system_of(weights, target, 15, kernel=kernel) for target in targets]
    columns = tf.constant(targets.transpose(1, 2, 0).reshape(N, 6))
    parts = ones[0].kernel, ones[0].mean, ones[0].projections, tf.constant(weights), columns
    block = MeanSystem(*parts, draws=3)
    assert block.chol.shape == ones[0].chol.shape and block.weights.shape == (N, 6)
    for method in ("precondition", "product"):
        extra = (None,) if method == "product" else ()
        expected = np.stack([getattr(one, method)(one.target, *extra) for one in ones], axis=-1)
        assert_allclose(
            getattr(block, method)(columns, *extra), expected.reshape(N, 6), rtol=1e-9, atol=1e-12
        )
    assert block.gap(columns) == pytest.approx(max(one.gap(one.target) for one in ones), rel=1e-12)
    found = solve_mean(block, tf.zeros_like(columns), 1e-10, 100)
    exact = [solve_mean(one, tf.zeros_like(one.target), 1e-11, 100).a for one in ones]
    assert found.gap <= 1e-10
    assert_allclose(found.a, np.stack(exact, axis=-1).reshape(N, 6), atol=1e-4)
    lost = columns + tf.constant([[0.0, np.nan] + [0.0] * 4], columns.dtype)
    assert np.isnan(block.gap(lost))


def test_seconds_of_a_solve_grow_with_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product as N^2, the preconditioner as N, from a clock that counts; a matrix that cannot be
    factorised takes none.
    """
    clock = {"now": 0.0}

    def seconds() -> float:
        clock["now"] += 1.0
        return clock["now"]

    monkeypatch.setattr(solve.time, "perf_counter", seconds)
    monkeypatch.setattr(solve, "_TIMED", len(X) // 2)
    monkeypatch.setattr(solve, "_TIMED_ROWS", len(X) // 4)
    model, options = model_of(), {"rank": 6, "group": Group()}
    square, linear = (len(X) / (len(X) // 2)) ** 2, len(X) / (len(X) // 4)
    assert_allclose(
        seconds_of_solves(model, tf.constant(X), dtype=None, **options), [square, square + linear]
    )
    assert_allclose(
        seconds_of_solves(model, tf.constant(X), dtype=tf.float32, **options),
        [square, 3 * square + linear],
    )
    monkeypatch.setattr(solve, "preconditioner_rows", _fails)
    assert_allclose(
        seconds_of_solves(model, tf.constant(X), dtype=None, **options), [square, square]
    )


def _fails(*arguments: Any) -> None:
    raise NumericalError("not positive definite", "K_beta")


def test_a_solve_within_its_tolerance_ends_no_lower_than_its_start() -> None:
    a = tf.zeros([1, 1], tf.float64)
    start, end = Point(a, a, 5.0, -1.0, True), Point(a + 1.0, a, 0.08, -1.05, True)
    found = best_of([start, end], 0.1)
    assert found.a is start.a and found.bound == -1.0
    assert_allclose(found.gap, 0.03)  # the maximum is at most -1.05 + 0.08
    assert best_of([start, end], 0.01) is start
    assert best_of([start, end._replace(certified=False)], 0.1) is start
    assert best_of([end, start._replace(bound=-0.9, gap=0.05)], 0.1).bound == -0.9
