"""`model.evidence`: exact for a few rows, an interval around the evidence for many."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Matern32, Matern52, SeparateIndependent
from numpy.testing import assert_allclose

from gpflow_decoupled.covariances.neighbourhoods import inverse_factor, ordered_neighbours
from gpflow_decoupled.errors import DataError, ModelError, NumericalError
from gpflow_decoupled.models import CVIGP, NNGP, ODVGP, Evidence, StateSpaceGP
from gpflow_decoupled.models.evidence import lanczos_log_determinant, quantile
from tests.reference import evidence_bounds as eb

N, BOUNDS = 80, "gpflow_decoupled.models.evidence"
_RNG = np.random.default_rng(0)
X = _RNG.uniform(-2.0, 2.0, (N, 2))
Y = np.sin(2.0 * X) + 0.3 * _RNG.normal(size=(N, 2))
HOLES = np.where(_RNG.uniform(size=Y.shape) < [0.2, 0.0], np.nan, Y)
TREND = gpflow.functions.Linear(np.array([[0.2], [-0.3]]), np.array([0.4]))
TWO = [Matern32(1.3, 0.8), Matern52(0.6, [1.0, 2.0])]
NOISES = _RNG.uniform(0.02, 0.3, (N, 1))


def _exact(kernels: list[Any], y: np.ndarray, noise: Any, jitter: float) -> float:
    """The log density of all observed entries, column by column."""
    total, centred = 0.0, y - TREND(X).numpy()
    for column in range(y.shape[1]):
        there = ~np.isnan(y[:, column])
        K = kernels[column % len(kernels)](X[there]).numpy()
        D = np.broadcast_to(noise, y.shape)[there, column] + jitter * np.diag(K)
        total += eb.evidence(K, D, centred[there, column])
    return total


def _models() -> dict[str, tuple[Any, float]]:
    """Models with arguments of `evidence`, and the exact evidence."""
    one, trend = TWO[0], {"mean_function": TREND}
    noise = gpflow.likelihoods.Gaussian
    nngp = {"num_neighbours": 10, **trend}
    return {
        "NNGP": (NNGP((X, Y[:, :1]), one, noise(0.1), **nngp), _exact([one], Y[:, :1], 0.1, 1e-6)),
        "two": (NNGP((X, Y), one, noise(0.1), **nngp), _exact([one], Y, 0.1, 1e-6)),
        "holes": (NNGP((X, HOLES), one, noise(0.1), **nngp), _exact([one], HOLES, 0.1, 1e-6)),
        "noises": (NNGP((X, Y), one, noise(NOISES), **nngp), _exact([one], Y, NOISES, 1e-6)),
        "CVIGP": (
            CVIGP((X, Y), SeparateIndependent(TWO), noise(0.1), **trend),
            _exact(TWO, Y, 0.1, 0.0),
        ),
        "ODVGP": (
            ODVGP(one, noise(0.1), "data", X[:5], num_latent_gps=2, **trend),
            _exact([one], Y, 0.1, 0.0),
        ),
    }


@pytest.fixture(scope="module")
def models() -> dict[str, tuple[Any, float]]:
    return _models()


def _evidence(model: Any, **options: Any) -> Evidence:
    return model.evidence(*([(X, Y)] if isinstance(model, ODVGP) else []), **options)


@pytest.mark.exhaustive
def test_both_ends_hold_however_far_the_solve_is(
    models: dict[str, tuple[Any, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows are neighbours, so that the quadratic term alone makes the interval."""
    monkeypatch.setattr(f"{BOUNDS}.EXACT_ROWS", 10)
    model, exact = models["CVIGP"]
    found = model.evidence(num_neighbours=N - 1, tolerance=1e6)
    assert found.products == 0 and found.lower < exact < found.upper


NAMES = ["NNGP", "two", "holes", "noises", "CVIGP", "ODVGP"]


@pytest.mark.parametrize("name", NAMES)
def test_a_few_rows_have_the_exact_evidence(
    name: str, models: dict[str, tuple[Any, float]]
) -> None:
    model, exact = models[name]
    found = _evidence(model)
    assert_allclose([found.lower, found.upper], exact, rtol=1e-9)
    assert found.certain and found.num_data == N and found.products == 0
    assert str(found) == f"log evidence {exact:.6g} nats (exact)"


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_many_rows_have_an_interval_around_it(
    name: str, models: dict[str, tuple[Any, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{BOUNDS}.EXACT_ROWS", 0)
    model, exact = models[name]
    few, more, every = (
        _evidence(model, num_neighbours=count, tolerance=1e-4) for count in (2, 10, N)
    )
    assert few.lower < more.lower < every.lower <= exact + 1e-8 < few.upper
    assert_allclose(every.lower, exact, atol=1.1e-4)
    assert few.certain and (few.lower_by, few.upper_by) == ("neighbours", "inducing points")
    assert few.products > 0 and "certified, neighbours" in str(few)
    guess = _evidence(model, num_neighbours=10, tolerance=1e-4, probes=40)
    assert guess.lower == more.lower and not guess.certain and "estimate" in str(guess)
    assert exact - 0.1 < guess.upper < more.upper  # by chance below
    assert guess.upper < exact + 1.0


@pytest.mark.exhaustive
def test_single_precision_and_small_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{BOUNDS}.EXACT_ROWS", 0)
    tight = CVIGP((X, Y), TWO[1], gpflow.likelihoods.Gaussian(2e-6))
    exact = sum(eb.evidence(TWO[1](X).numpy(), np.full(N, 2e-6), y) for y in Y.T)
    found = tight.evidence(num_neighbours=N)
    assert found.lower <= exact + 1e-6 and found.lower > exact - 0.2
    gpflow.config.set_default_float(np.float32)
    kernel = Matern52(0.6, [1.0, 2.0])
    low = NNGP(
        (X.astype(np.float32), Y.astype(np.float32)),
        kernel, gpflow.likelihoods.Gaussian(0.1), num_neighbours=10,
    )  # fmt: skip
    gpflow.config.set_default_float(np.float64)
    inputs, outputs = (part.astype(float) for part in (low.data[0].numpy(), low.data[1].numpy()))
    K = Matern52(*_doubles(kernel))(inputs).numpy()
    noise = float(low.likelihood.variance.numpy()) + 1e-4 * np.diag(K)
    exact = sum(eb.evidence(K, noise, y) for y in outputs.T)
    found = low.evidence(num_neighbours=N, tolerance=0.01)
    assert_allclose(found.lower, exact, atol=0.011)
    assert found.lower < exact < found.upper


def _doubles(kernel: Any) -> list[np.ndarray]:
    return [part.numpy().astype(float) for part in (kernel.variance, kernel.lengthscales)]


def _long_evidence(K: np.ndarray, noise: float, y: np.ndarray) -> float:
    """log N(y; 0, K + noise I) by an LDL^T factorisation in extended precision."""
    A = K.astype(np.longdouble) + np.longdouble(noise) * np.eye(len(K), dtype=np.longdouble)
    rest, total = y.astype(np.longdouble), np.longdouble(0.0)
    for _ in range(len(K)):
        d, row = A[0, 0], A[0, 1:] / A[0, 0]
        total -= (np.log(2.0 * np.pi * d) + rest[0] ** 2 / d) / 2
        rest = rest[1:] - row * rest[0]
        A = A[1:, 1:] - np.outer(A[0, 1:], row)
    return float(total)


@pytest.mark.parametrize("likely", [False, True])
@pytest.mark.parametrize("noise", [1e-7, 1e-11, 0.01])
def test_ends_are_certain_where_noise_is_small(noise: float, likely: bool) -> None:
    """Around the evidence in extended precision, of a kernel whose matrix is nearly singular."""
    rng, rows = np.random.default_rng(1), 60
    inputs = rng.normal(size=(rows, 2)) * 30.0
    weights = rng.normal(size=(2, 1)) * np.sqrt(0.7)
    y = inputs @ weights + np.sqrt(noise) * rng.normal(size=(rows, 1)) * (1.0 if likely else 100.0)
    K = np.longdouble(0.7) * (inputs.astype(np.longdouble) @ inputs.T.astype(np.longdouble))
    exact = _long_evidence(K, noise, y[:, 0])
    likelihood = gpflow.likelihoods.Gaussian(noise, variance_lower_bound=0.0)
    linear = gpflow.kernels.Linear(0.7)
    linear.variance = gpflow.Parameter(0.7)  # without a transform, which rounds
    found = CVIGP((inputs, y), linear, likelihood).evidence()
    assert found.lower <= exact <= found.upper
    if likely:
        assert ("(exact)" in str(found)) == (noise == 0.01)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("kind", ["dense", "state space", "own"])
def test_single_precision_says_how_exact_it_is(kind: str) -> None:
    """Around the evidence of the same numbers in double precision."""
    gpflow.config.set_default_float(np.float32)
    inputs, outputs = X[:, :1].astype(np.float32), Y[:, :1].astype(np.float32)
    kernel = _Own(1.3, 0.8) if kind == "own" else Matern32(1.3, 0.8)
    make = StateSpaceGP if kind == "state space" else CVIGP
    likelihood = gpflow.likelihoods.Gaussian(1e-3)
    found = make((inputs, outputs), kernel, likelihood).evidence()
    gpflow.config.set_default_float(np.float64)
    inputs, outputs = inputs.astype(float), outputs.astype(float)
    K = Matern32(*_doubles(kernel))(inputs).numpy()
    noise = likelihood.variance.numpy().astype(float)
    exact = eb.evidence(K, np.full(N, noise), outputs[:, 0])
    assert found.lower <= exact <= found.upper
    assert ("(exact)" in str(found)) == (kind == "dense")


class _Own(Matern32):
    """A kernel that exists in single precision alone."""

    def K_r(self, r: tf.Tensor) -> tf.Tensor:
        return super().K_r(r * tf.constant(1.0, tf.float32))


def test_parameters_that_are_not_finite_are_named() -> None:
    for make in (CVIGP, StateSpaceGP):
        model = make((X[:, :1], Y[:, :1]), Matern32(), gpflow.likelihoods.Gaussian(0.1))
        model.kernel.lengthscales.unconstrained_variable.assign(np.nan)
        with pytest.raises(NumericalError, match=r"model.kernel.lengthscales has entries"):
            model.evidence()


@pytest.mark.exhaustive
def test_a_lack_of_memory_names_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """At sizes that no machine has; TensorFlow names an allocator of its own."""
    many = np.linspace(0.0, 1.0, 400_000)[:, None]
    model = CVIGP((many, many), Matern32(), gpflow.likelihoods.Gaussian(0.1))
    with pytest.raises(MemoryError, match=r"CVIGP.*N=400000.* shape \(2, 1\): pass fewer rows"):
        model.predict_y(many[:2])
    few = ODVGP(Matern32(), gpflow.likelihoods.Gaussian(0.1), many[:3], many[3:5])
    with pytest.raises(MemoryError, match=r"ODVGP.* shape \(400000, 1\): leave out full_cov"):
        few.predict_f(many, full_cov=True)

    def exhausted(*_: Any) -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    monkeypatch.setattr(f"{BOUNDS}.Nystrom", exhausted)
    monkeypatch.setattr(f"{BOUNDS}.EXACT_ROWS", 0)
    with pytest.raises(MemoryError, match="evidence of CVIGP on 80 rows: take a sample"):
        CVIGP((X, Y), TWO[0], gpflow.likelihoods.Gaussian(0.1)).evidence(num_neighbours=2)


def test_an_estimated_end_has_its_level() -> None:
    """Of 60 estimates by 2 and by 16 vectors, 1.5 are expected below the determinant."""
    root = np.random.default_rng(0).normal(size=(12, 12)) / 6.0
    matrix = np.eye(12) + root @ root.T
    exact, product = np.linalg.slogdet(matrix)[1], tf.constant(matrix)
    for probes in (2, 16):
        ends = [
            mean + quantile(probes) * error
            for mean, error, _ in (
                lanczos_log_determinant(lambda v: product @ v, 12, probes, seed)
                for seed in range(60)
            )
        ]
        assert np.sum(np.array(ends) < exact) <= 5  # more by chance in 1 of 250


def test_the_estimate_of_a_determinant_agrees_with_the_dense_one(rng: np.random.Generator) -> None:
    root = rng.normal(size=(60, 60)) / 15.0
    matrix = np.eye(60) + root @ root.T
    mean, error, steps = lanczos_log_determinant(lambda v: tf.constant(matrix) @ v, 60, 200, 0)
    exact = np.linalg.slogdet(matrix)[1]
    assert abs(mean - exact) < 3.0 * error < 0.05 * exact and 4 <= steps < 20


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [0, 1, 7])
def test_the_inverse_factor_is_that_of_the_reference(count: int) -> None:
    D, K = NOISES[:, 0], TWO[1](X).numpy()
    near = ordered_neighbours(TWO[1], X, np.random.default_rng(1).permutation(N), max(count, 1))
    near = near[:, :count]
    U = inverse_factor(TWO[1], tf.constant(X), tf.constant(D), near)
    expected = eb.inverse_factor(K + np.diag(D), [c[c >= 0] for c in near])
    assert_allclose(U.matrix.toarray(), expected, rtol=1e-8, atol=1e-12)
    assert_allclose(U.log_determinant, -np.linalg.slogdet(expected.T @ expected)[1], atol=1e-8)
    v = tf.constant(Y)
    assert_allclose(U.transposed(U.times(v)), expected.T @ expected @ Y, rtol=1e-7, atol=1e-9)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "neighbours": ({"num_neighbours": 0}, "num_neighbours"),
    "tolerance": ({"tolerance": -1.0}, "tolerance"),
    "probes": ({"probes": -1}, "probes"),
    "one probe": ({"probes": 1}, "at least 2"),
    "seed": ({"seed": 0.5}, "seed"),
}


@pytest.mark.parametrize("name", BAD)
def test_values_out_of_range_are_refused(name: str, models: dict[str, tuple[Any, float]]) -> None:
    options, message = BAD[name]
    with pytest.raises(DataError, match=message):
        _evidence(models["NNGP"][0], **options)


def test_other_likelihoods_and_mixed_outputs_are_refused() -> None:
    model = CVIGP((X, (Y[:, :1] > 0.0).astype(float)), TWO[0], gpflow.likelihoods.Bernoulli())
    with pytest.raises(ModelError, match=r"Gaussian noise.*Bernoulli: .*model.elbo"):
        model.evidence()
    mixed = gpflow.kernels.LinearCoregionalization(TWO, W=np.eye(2))
    with pytest.raises(ModelError, match="LinearCoregionalization mixes them"):
        CVIGP((X, Y), mixed, gpflow.likelihoods.Gaussian(0.1)).evidence()
