"""The preconditioner of neighbours: the same solutions in fewer products, and when it is chosen; a
gap that little noise does not spoil.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.kernels import SeparateIndependent
from numpy.testing import assert_allclose

from gpflow_decoupled.errors import UnknownOptionError
from gpflow_decoupled.optimizers import ConjugateGradients
from gpflow_decoupled.optimizers.data_mean import mean_optimizer as mean_run
from gpflow_decoupled.optimizers.data_mean import system as neighbour_factors
from gpflow_decoupled.optimizers.data_mean.system import NeighbourFactors, PointsAndNeighbours
from tests.bounds.registry import matern
from tests.optimizers.data_mean.problems import (
    TARGET,
    N,
    X,
    Y,
    exact_mean,
    grams_of,
    labels,
    model_of,
    system_of,
)
from tests.reference import data_mean as dm
from tests.reference import evidence_bounds as eb


def _solver(preconditioner: str = "neighbours", **options: Any) -> ConjugateGradients:
    options = {"tolerance": 1e-8, "float32": False, **options}
    return ConjugateGradients(preconditioner=preconditioner, **options)


def _two() -> SeparateIndependent:
    return SeparateIndependent([matern(1.3, 0.8), matern(0.6, 1.4)])


@pytest.mark.exhaustive
@pytest.mark.parametrize("latents, own", [(1, False), (2, False), (2, True)])
@pytest.mark.parametrize("per_row", [False, True])
def test_the_preconditioner_is_that_of_the_reference(
    latents: int, own: bool, per_row: bool, rng: np.random.Generator
) -> None:
    kernel = _two() if own else matern(1.3, 0.8)
    weights = np.full((N, latents), 5.0)
    if per_row:
        weights = rng.uniform(0.5, 50.0, (N, latents))
    near = NeighbourFactors(kernel, tf.constant(X))
    system = system_of(weights, TARGET[:, :latents], 6, kernel=kernel)
    system.factors = near.factors(tf.constant(weights))
    assert len(system.factors) == (latents if own or per_row else 1)
    found = system.precondition(tf.constant(TARGET[:, :latents])).numpy()
    for one in range(latents):
        C = grams_of(kernel, one).K_x + np.diag(1.0 / weights[:, one])
        rows = [c[c >= 0] for c in near._near[one if own else 0]]
        U = eb.inverse_factor(C, rows)
        assert_allclose(found[:, one], U.T @ U @ TARGET[:, one], rtol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("latents, own", [(1, False), (2, True)])
def test_points_come_before_neighbours_as_in_the_reference(
    latents: int, own: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbour_factors, "_NEIGHBOURS", 5)
    kernel = _two() if own else matern(1.3, 0.8)
    weights = rng.uniform(0.5, 50.0, (N, latents))
    system = system_of(weights, TARGET[:, :latents], 6, kernel=kernel)
    near = NeighbourFactors(kernel, tf.constant(X), system.projections)
    system.factors = near.factors(tf.constant(weights))
    assert all(isinstance(one, PointsAndNeighbours) for one in system.factors)
    found = system.precondition(tf.constant(TARGET[:, :latents])).numpy()
    for one in range(latents):
        A = system.projections.blocks[0][one if own else 0].numpy()
        rest = grams_of(kernel, one).K_x - A.T @ A + np.diag(1.0 / weights[:, one])
        U = eb.inverse_factor(rest, [c[c >= 0] for c in near._near[one if own else 0]])
        P = A.T @ A + np.linalg.inv(U.T @ U)
        assert_allclose(found[:, one], np.linalg.solve(P, TARGET[:, one]), rtol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind, latents, own", [("neighbours", 1, False), ("both", 2, True)])
def test_the_solution_is_the_dense_one(kind: str, latents: int, own: bool) -> None:
    kernel = _two() if own else matern(1.3, 0.8)
    model, data = model_of(kernel=kernel, latents=latents), (X, Y[:, :latents])
    result = _solver(kind).run(model, data)
    expected = np.stack([exact_mean(kernel, one) for one in range(latents)], axis=1)
    assert result.converged and result.certified and result.gap <= 1e-8
    assert_allclose(model.basis.data_mean.raw(), expected, rtol=1e-3, atol=1e-4)
    assert_allclose(model.elbo(data), _solver("points").run(model, data).elbo, rtol=1e-9)


@pytest.mark.exhaustive
def test_little_noise_takes_few_products() -> None:
    found = {}
    for kind in ("points", "neighbours"):
        model = model_of(gl.Gaussian(2e-6))
        found[kind] = _solver(kind, rank=15, tolerance=0.01).run(model, (X, Y[:, :1]))
    assert found["neighbours"].converged
    assert found["neighbours"].products < 0.6 * found["points"].products


@pytest.mark.exhaustive
def test_sites_of_another_likelihood_have_factors_of_their_own() -> None:
    data = X, labels()
    models = {kind: model_of(gl.Bernoulli()) for kind in ("points", "neighbours")}
    ends = [_solver(kind, tolerance=1e-5).run(model, data) for kind, model in models.items()]
    assert ends[1].converged
    assert_allclose(ends[0].elbo, ends[1].elbo, atol=1e-4)


CHOICES: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "little noise": (gl.Gaussian(1e-4), {}, True),
    "much noise": (gl.Gaussian(30.0), {}, False),
    "a rank": (gl.Gaussian(1e-4), {"rank": 8}, False),
    "sites": (gl.StudentT(0.4), {}, False),
    "points": (gl.Gaussian(1e-4), {"preconditioner": "points"}, False),
    "both": (gl.Gaussian(30.0), {"preconditioner": "both"}, True),
}


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("name", CHOICES)
def test_neighbours_are_chosen_where_points_leave_much(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for constant, value in (("_LEAST_ROWS", N), ("_FEW", 3), ("_MANY", 12)):
        monkeypatch.setattr(neighbour_factors, constant, value)
    likelihood, options, expected = CHOICES[name]
    model = model_of(likelihood)
    model.basis.data_mean.set_data(X)
    solver = ConjugateGradients(**options)
    found = mean_run._neighbours_of(solver, model, tf.constant(X))
    assert (found is not None) == expected
    if options.get("preconditioner") == "both":
        assert found is not None and found._features is not None
        return
    monkeypatch.setattr(neighbour_factors, "_LEAST_ROWS", N + 1)
    assert mean_run._neighbours_of(solver, model, tf.constant(X)) is None


def test_another_preconditioner_is_refused() -> None:
    with pytest.raises(UnknownOptionError, match="'auto', 'points', 'neighbours', 'both'"):
        ConjugateGradients(preconditioner="nystrom")


@pytest.mark.parametrize("noise", [1e-2, 1e-12])
def test_the_gap_is_no_round_off_where_the_noise_is_little(noise: float) -> None:
    """Half the size of r in the metric of (Q + D)^-1, by the eigenvectors of Q."""
    system = system_of(np.full((N, 1), 1.0 / noise), TARGET[:, :1], 15)
    k = grams_of(matern(1.3, 0.8))
    left, sizes, _ = np.linalg.svd(np.linalg.solve(k.chol, k.K_xb.T).T, full_matrices=False)
    for r in (TARGET[:, 0], left[:, 0], 1e-3 * left[:, 0] + 1e-9 * TARGET[:, 0]):
        inside = left.T @ r
        outside = r - left @ inside
        exact = 0.5 * (np.sum(inside**2 / (sizes**2 + noise)) + np.sum(outside**2) / noise)
        found = system.gap(tf.constant(r[:, None]))
        assert exact * (1 - 1e-6) <= found <= exact * (1 + 1e-3)
    if noise == 1e-2:
        at = k.K_x, k.Q_x, np.full(N, 1.0 / noise), TARGET[:, 0]
        assert_allclose(system.gap(tf.constant(TARGET[:, :1])), dm.gap(*at, np.zeros(N)))
