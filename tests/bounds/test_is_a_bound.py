"""What every basis must satisfy: the divergence of the joint, a bound below the evidence, unbiased
samples.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import lru_cache
from itertools import combinations
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy.special import erf, logsumexp

import gpflow_decoupled.bases
from gpflow_decoupled.bases import Basis
from gpflow_decoupled.models import BasisGP
from gpflow_decoupled.optimizers import ConjugateGradients, optimal_parameters
from tests.bounds.registry import (
    BOUNDED,
    CASES,
    Case,
    kernel_of,
    matern,
    missing,
    numpy_kernel,
    randomize,
    registered,
    variational,
)
from tests.reference import collapsed as col
from tests.reference import decoupled as ref
from tests.reference import grams as gr

POINTS = 2.0 * np.random.default_rng(3).uniform(-1, 1, size=(12, 2))
BETA, GAMMA, X = POINTS[:4], POINTS[4:8], POINTS[8:]
KINDS = ["one", "two", "separate"]
names = pytest.mark.parametrize("name", CASES)
kinds = pytest.mark.parametrize("kind", KINDS)


def _all_bases(root: type) -> set[type]:
    for module in pkgutil.iter_modules(
        gpflow_decoupled.bases.__path__, gpflow_decoupled.bases.__name__ + "."
    ):
        importlib.import_module(module.name)
    return {
        basis
        for child in root.__subclasses__()
        for basis in {child, *_all_bases(child)}
        if basis.__module__.startswith("gpflow_decoupled.") and not inspect.isabstract(basis)
    }


def _built(name: str, kind: str, **extra: Any) -> tuple[Basis, Any, int]:
    kernel, latents = kernel_of(kind)
    basis = CASES[name].build(kernel, latents, GAMMA, BETA, **extra)
    randomize(basis, np.random.default_rng(0))
    return basis, kernel, latents


_shared = lru_cache(maxsize=None)(_built)
"""For tests that change nothing."""


def _grams(case: Case, kernel: Any, latent: int, jitter: float) -> gr.Grams:
    jitters = [jitter if needed else 0.0 for needed in (case.jitters_beta, case.jitters_gamma)]
    return gr.build_grams(numpy_kernel(kernel, latent), X, BETA, GAMMA, *jitters)


def test_every_basis_is_registered():
    bases = _all_bases(Basis)
    assert len(bases) >= 5
    assert missing(bases) == [], "add it to tests/bounds/registry.py"


def test_the_guard_names_a_basis_that_is_not_registered():
    class NewBasis(Basis):
        pass

    assert missing([NewBasis, *registered()]) == ["NewBasis"]


@kinds
def test_random_sites_are_of_both_signs(kind):
    tau = _shared("site", kind)[0].tau.numpy()
    assert np.any(tau < 0) and np.any(tau > 0)


@pytest.mark.costly(keep=3)
@kinds
@names
def test_moments_and_kl_are_those_of_the_joint(name, kind):
    """Over (u, f) at 12 points, with a jitter that cannot be overlooked, and another latent in
    between.
    """
    jitter = 0.2
    gpflow.config.set_default_jitter(jitter)
    (basis, kernel, latents), case = _shared(name, kind), CASES[name]
    state = basis.factor(kernel)
    mean, cov = basis.mean_and_cov(state, kernel, X, full_cov=True)
    expected = 0.0
    for latent in range(latents):
        k = _grams(case, kernel, latent, jitter)
        parameters = case.parameters(basis, state, k, latent)
        q = case.family(k, *parameters)
        assert_allclose(mean[:, latent], q.mean, rtol=1e-10, atol=1e-11)
        assert_allclose(cov[latent], q.cov, rtol=1e-10, atol=1e-11)
        expected += ref.brute_force_process_kl(case.family, k, *parameters)
    assert_allclose(basis.prior_kl(state), expected, rtol=1e-10)


@pytest.mark.costly(keep=6)
@kinds
@names
def test_kl_is_that_of_f_on_a_grid(name, kind):
    """From the basis's own moments: needs no reference, but next to no jitter."""
    gpflow.config.set_default_jitter(1e-15)
    basis, kernel, latents = _shared(name, kind)
    state = basis.factor(kernel)
    mean, cov = basis.mean_and_cov(state, kernel, POINTS, full_cov=True)
    priors = [numpy_kernel(kernel, latent)(POINTS, POINTS) for latent in range(latents)]
    divergences = [
        ref.brute_force_kl(
            mean.numpy()[:, latent], cov.numpy()[latent], np.zeros(len(POINTS)), prior
        )
        for latent, prior in enumerate(priors)
    ]
    assert_allclose(basis.prior_kl(state), sum(divergences), rtol=1e-10)


@pytest.mark.costly(keep=5)
@kinds
@names
def test_diagonal_of_the_covariance_is_the_variance(name, kind):
    basis, kernel, _ = _shared(name, kind)
    state = basis.factor(kernel, with_kl=False)
    batches = POINTS.reshape(2, 6, 2)
    mean, variance = basis.mean_and_cov(state, kernel, batches)
    full_mean, cov = basis.mean_and_cov(state, kernel, batches, full_cov=True)
    assert_allclose(tf.linalg.diag_part(cov), tf.linalg.matrix_transpose(variance), rtol=1e-12)
    assert_allclose(mean, full_mean, rtol=1e-13)
    assert np.all(variance.numpy() > 0)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("kind", ["one", "two"])
@pytest.mark.parametrize("case", BOUNDED.values(), ids=BOUNDED)
def test_elbo_is_below_the_evidence(case, kind, rng):
    """200 draws of all parameters, many of them next to the optimum. First with beta = X or near
    it, where the bound is tight; then with mean points at X and large data, where what the mean is
    charged dominates the bound."""
    N, latents = 6, kernel_of(kind)[1]
    inputs = POINTS[:N]
    kernel, likelihood = matern(1.0, 1.0), gpflow.likelihoods.Gaussian(0.1)
    gamma = inputs if case.basis.__name__ == "DecoupledBasis" else POINTS[N:]
    mean_function = (
        None if kind == "one" else gpflow.functions.Linear(rng.normal(size=(2, 2)), [0.4, -0.8])
    )
    basis = case.build(kernel, latents, gamma, inputs)
    model = BasisGP(kernel, likelihood, basis, mean_function=mean_function, num_data=N)
    trend = 0.0 if mean_function is None else mean_function(inputs).numpy()
    elbo = tf.function(model.elbo, autograph=False)
    gaps = []
    for draw in range(5):
        kernel.variance.assign(rng.uniform(0.3, 3.0))
        kernel.lengthscales.assign(rng.uniform(0.4, 1.5))
        likelihood.variance.assign(rng.uniform(0.05, 1.0))
        basis.beta.Z.assign(inputs + (0.3 * rng.normal(size=inputs.shape) if draw % 2 else 0.0))
        if draw > 2 and hasattr(basis, "gamma"):
            if basis.data_mean is None:
                basis.gamma.Z.assign(inputs)
            basis.beta.Z.assign(POINTS[N:])
        Y = trend + (30.0 if draw > 2 else 1.0) * rng.normal(size=(N, latents))
        K_x, noise = numpy_kernel(kernel, 0)(inputs, inputs), np.asarray(likelihood.variance)
        evidence = sum(col.log_evidence(K_x, y, noise) for y in (Y - trend).T)
        data = (tf.constant(inputs), tf.constant(Y))
        _to_optimum(model, data)
        variables = [p.unconstrained_variable for p in variational(basis)]
        optimum = [v.numpy() for v in variables]
        for _ in range(40):
            scale = rng.choice([0.0, *10.0 ** rng.uniform(-3, 0.5, size=9)])
            for variable, best in zip(variables, optimum):
                variable.assign(best + scale * rng.normal(size=best.shape))
            gaps.append((evidence - float(elbo(data))) / max(1.0, abs(evidence)))
    assert len(gaps) == 200
    assert min(gaps) > -1e-9
    assert min(gaps) < 1e-3  # else the bound could be wrong unnoticed


def _to_optimum(model: BasisGP, data: tuple[tf.Tensor, tf.Tensor]) -> None:
    if model.basis.data_mean is None:
        optimal_parameters(model, data).assign(model)
    else:
        ConjugateGradients(progress=False).run(model, data)


def _bernoulli_evidence(K: np.ndarray, Y: np.ndarray, order: int = 150) -> float:
    """log p(y) of two observations by a product of Gauss-Hermite rules, for GPflow's probit link
    with its floor.
    """
    z, weights = np.polynomial.hermite_e.hermegauss(order)
    log_weights = np.log(weights / weights.sum())
    f = np.stack(np.meshgrid(z, z, indexing="ij"), axis=-1) @ np.linalg.cholesky(K).T
    p = 0.5 * (1.0 + erf(f / np.sqrt(2.0))) * (1 - 2e-3) + 1e-3
    log_p = np.sum(np.log(np.where(Y[:, 0] == 1, p, 1 - p)), axis=-1)
    return float(logsumexp(log_p + log_weights[:, None] + log_weights))


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize(
    "name",
    [
        "coupled",
        "inverse-whitened",
        "decoupled-whitened",
        "hybrid-whitened",
        "orthogonal-whitened",
        "solve",
    ],
)
def test_elbo_is_below_the_evidence_of_labels(name, rng):
    kernel, case = matern(4.0, 1.0), CASES[name]
    inputs, Y = POINTS[:2], np.array([[1.0], [0.0]])
    gamma = inputs if case.basis.__name__ == "DecoupledBasis" else POINTS[2:4]
    basis = case.build(kernel, 1, gamma, inputs)
    model = BasisGP(kernel, gpflow.likelihoods.Bernoulli(), basis, num_data=2)
    evidence = _bernoulli_evidence(numpy_kernel(kernel, 0)(inputs, inputs), Y)
    data = (tf.constant(inputs), tf.constant(Y))
    elbo = tf.function(model.elbo, autograph=False)
    variables = [p.unconstrained_variable for p in variational(basis)]
    loss = model.training_loss_closure(data, compile=False)
    gpflow.optimizers.Scipy().minimize(
        loss, variables, options={"maxiter": 60}, tf_fun_args={"autograph": False}
    )
    best = float(elbo(data))
    assert evidence - 0.2 < best < evidence
    optimum = [v.numpy() for v in variables]
    for scale in 10.0 ** rng.uniform(-3, 0.5, size=40):
        for variable, value in zip(variables, optimum):
            variable.assign(value + scale * rng.normal(size=value.shape))
        assert float(elbo(data)) < evidence


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize(
    "stale, kind", [(False, "two"), (True, "separate")], ids=["fresh", "stale"]
)
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, case in CASES.items()
        if case.has_mean_points and not name.endswith("unwhitened")
    ],
)
def test_all_subsets_average_to_the_full_kl_and_gradient(name, kind, stale):
    """Also where the frozen coordinates belong to an older kernel, and what is sampled is the
    difference.
    """
    basis, kernel, _ = _built(name, kind, mean_subsample=2)
    if stale:
        for parameter in kernel.parameters:
            parameter.assign(1.7 * parameter)
    variables = [*basis.trainable_variables, *kernel.trainable_variables]

    def value_and_gradient(rows: tf.Tensor | None = None) -> list[np.ndarray]:
        with tf.GradientTape() as tape:
            kl = basis.prior_kl(basis.factor(kernel, rows=rows))
        gradients = tape.gradient(kl, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [value.numpy() for value in (kl, *gradients)]

    subsets = [value_and_gradient(tf.constant(rows)) for rows in combinations(range(4), 2)]
    basis.kernel_mean.subsample = None
    everything = value_and_gradient()
    for full, *sampled in zip(everything, *subsets):
        assert_allclose(
            np.mean(sampled, axis=0), full, rtol=1e-9, atol=1e-10 * np.abs(sampled).max()
        )
    spread = np.ptp([subset[0] for subset in subsets])
    assert spread < 1e-4 if name.endswith("-whitened") and not stale else spread > 1e-3


def test_all_rows_are_the_full_norm():
    for name in ("orthogonal-whitened", "orthogonal-none", "hybrid-diagonal", "inverse-whitened"):
        full, kernel, _ = _built(name, "two")
        sampled, _, _ = _built(name, "two", mean_subsample=2)
        expected = full.prior_kl(full.factor(kernel))
        assert_allclose(
            sampled.prior_kl(sampled.factor(kernel, rows=tf.range(4))), expected, rtol=1e-8
        )


@pytest.mark.parametrize("same_rows", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_all_minibatches_and_rows_average_to_the_full_elbo(same_rows, rng):
    """The two samples may even be the same one (section 5)."""
    basis, kernel, _ = _built("orthogonal-none", "one", mean_subsample=2)
    full = BasisGP(
        kernel, gpflow.likelihoods.Poisson(), _built("orthogonal-none", "one")[0], num_data=4
    )
    model = BasisGP(kernel, full.likelihood, basis, num_data=4)
    Y = rng.poisson(2.0, size=(4, 1)).astype(float)
    pairs = list(combinations(range(4), 2))
    values = []
    for batch in pairs:
        for rows in [batch] if same_rows else pairs:
            basis.draw_rows = lambda seed=None, rows=rows: tf.constant(rows)
            values.append(float(model.elbo((X[list(batch)], Y[list(batch)]))))
    assert np.ptp(values) > 0.1
    assert_allclose(np.mean(values), full.elbo((X, Y)), rtol=1e-12)


@pytest.mark.costly(keep=1)
@kinds
@pytest.mark.parametrize(
    "name",
    [
        "coupled",
        "inverse-whitened",
        "decoupled-none",
        "hybrid-whitened",
        "orthogonal-whitened",
        "solve-unwhitened",
    ],
)
def test_shifting_data_and_mean_function_together_changes_nothing(name, kind, rng):
    basis, kernel, latents = _shared(name, kind)
    likelihood, Y = gpflow.likelihoods.Gaussian(0.3), rng.normal(size=(4, latents))
    shift = gpflow.functions.Linear(rng.normal(size=(2, latents)), rng.normal(size=latents))
    plain = BasisGP(kernel, likelihood, basis, num_data=9)
    shifted = BasisGP(kernel, likelihood, basis, mean_function=shift, num_data=9)
    moved = Y + shift(X).numpy()
    assert_allclose(shifted.elbo((X, moved)), plain.elbo((X, Y)), rtol=1e-12)
    assert abs(float(shifted.elbo((X, Y)) - plain.elbo((X, Y)))) > 1e-2
    for verb in ("predict_f", "predict_y"):
        mean, variance = getattr(plain, verb)(X)
        new_mean, new_variance = getattr(shifted, verb)(X)
        assert_allclose(new_mean - shift(X), mean, atol=1e-12)
        assert_allclose(new_variance, variance, rtol=1e-12)
    density = plain.predict_log_density((X, Y))
    assert_allclose(shifted.predict_log_density((X, moved)), density, rtol=1e-11)
