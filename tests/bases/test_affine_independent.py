"""The affine-independent basis: its matrix in every structure, its divergence, its moments, and
what it refuses.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import AffineIndependentBasis
from gpflow_decoupled.bases.affine_independent import STRUCTURES
from gpflow_decoupled.errors import DataError, UnknownOptionError
from gpflow_decoupled.expectations.fourier import SiteGroup
from gpflow_decoupled.inducing import Weights
from tests.reference import affine_model as ref

D = 4
KERNEL = gpflow.kernels.Matern32(variance=1.3, lengthscales=0.8)
Z = np.linspace(-1.0, 1.0, D)[:, None]


def matrix(rng):
    return np.eye(D) + 0.5 * rng.normal(size=(D, D))


@pytest.mark.parametrize("structure", STRUCTURES)
def test_map(structure, rng):
    A, features = matrix(rng), rng.normal(size=(7, D))
    basis = AffineIndependentBasis(Z, structure=structure, A=A)
    found = basis.matrix().numpy()
    if structure == "lu":  # columns in the order of pivots
        assert_allclose(sorted(found.T.tolist()), sorted(A.T.tolist()), atol=1e-13)
    else:
        assert_allclose(found, A, atol=1e-13)
    assert_allclose(basis.map.log_det(), np.linalg.slogdet(found)[1], rtol=1e-10)
    group = SiteGroup(None, tf.constant(features), tf.zeros(7, tf.float64))
    assert_allclose(basis.projections(group).alpha, features @ found, atol=1e-12)
    new = matrix(rng)
    basis.map.assign_matrix(new)
    found = basis.matrix().numpy()
    assert_allclose(found @ found.T, new @ new.T, rtol=1e-10)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_divergence_of_a_normal_base_is_that_of_gaussians(structure, rng):
    b = rng.normal(size=D)
    basis = AffineIndependentBasis(Z, "normal", structure=structure, A=matrix(rng), b=b)
    A = basis.matrix().numpy()
    S = A @ A.T
    expected = 0.5 * (np.trace(S) + b @ b - D - np.linalg.slogdet(S)[1])
    assert_allclose(basis.divergence(), expected, rtol=1e-10)
    assert_allclose(basis.prior_kl(basis.factor(KERNEL)), expected, rtol=1e-10)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "base, theta",
    [("skew_normal", [3.0, -1.0, 0.5, -6.0]), ("generalized_normal", [1.2, 2.0, 3.0, 0.95])],
)
def test_divergence_by_sampling(base, theta, rng):
    theta = np.array(theta)[:, None]
    basis = AffineIndependentBasis(Z, base, A=matrix(rng), b=rng.normal(size=D), theta=theta)
    A, b = basis.matrix().numpy(), basis.b.numpy()
    w = basis.base.sample(40_000, basis.shapes, seed=1).numpy() @ A.T + b
    prior = lambda w: -0.5 * np.sum(w**2 + np.log(2.0 * np.pi), axis=1)  # noqa: E731
    mean, error = ref.monte_carlo_bound(prior, w, A, b, base, theta)
    assert abs(mean + basis.divergence()) < 4.5 * error < 0.1  # fails once in 10^5 seeds


def test_divergence_leaves_out_what_has_no_gaussian_prior(rng):
    A, b, kept = matrix(rng), rng.normal(size=D), np.array([1.0, 0.0, 1.0, 0.0])
    basis = AffineIndependentBasis(Z, A=A, b=b, gaussian=kept)
    moments = b**2 + np.sum(A**2, axis=1) + np.log(2.0 * np.pi)
    assert_allclose(basis.divergence() + basis.entropy(), 0.5 * np.sum(kept * moments))


def test_symmetries_of_a_skewed_base(rng):
    """Columns of A may change places with their shapes, and signs together with theirs."""
    A, theta = matrix(rng), rng.normal(size=(D, 1))
    order = rng.permutation(D)
    kinds = [(A, theta), (A[:, order], theta[order]), (-A, -theta)]
    features = tf.constant(rng.normal(size=(3, D)))
    kernels = []
    for A_, theta_ in kinds:
        basis = AffineIndependentBasis(Z, A=A_, theta=theta_)
        alpha = (features @ basis.matrix())[:, :, None] * tf.constant([0.3, 1.1, 2.0], tf.float64)
        phi = tf.reduce_prod(basis.base.characteristic(alpha, basis.shapes[:, None]), axis=1)
        kernels.append((basis.divergence().numpy(), phi.numpy()))
    for divergence, phi in kernels[1:]:
        assert_allclose(divergence, kernels[0][0], rtol=1e-12)
        assert_allclose(phi, kernels[0][1], atol=1e-12)


@pytest.mark.parametrize("weights", [False, True])
def test_moments_at_new_inputs(weights, rng):
    A, b = matrix(rng), rng.normal(size=D)
    kernel = (
        gpflow.kernels.Linear(variance=np.array([1.0, 2.0, 0.5])) + gpflow.kernels.Constant(3.0)
        if weights
        else KERNEL
    )
    X = rng.normal(size=(5, 3 if weights else 1))
    basis = AffineIndependentBasis(Weights(D) if weights else Z, A=A, b=b)
    state = basis.factor(kernel)
    mean, cov = basis.mean_and_cov(state, kernel, X, full_cov=True)
    if weights:
        phi = np.c_[X, np.ones(5)] * np.sqrt([1.0, 2.0, 0.5, 3.0])
        rest = np.zeros((5, 5))
    else:
        L = np.linalg.cholesky(kernel(Z).numpy() + 1e-6 * np.eye(D))
        phi = np.linalg.solve(L, kernel(Z, X).numpy()).T
        rest = kernel(X).numpy() - phi @ phi.T
    assert_allclose(mean[:, 0], phi @ b, atol=1e-9)
    assert_allclose(cov[0], rest + phi @ A @ A.T @ phi.T, atol=1e-9)
    _, variance = basis.mean_and_cov(state, kernel, X)
    assert_allclose(variance[:, 0], np.diag(cov[0]), atol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("options, message", [
    ({"A": np.ones((D, D))}, "A is singular"),
    ({"A": np.eye(3)}, "A has shape"),
    ({"A": np.ones(D)}, "A has shape"),
    ({"A": np.full((D, D), np.nan)}, "not finite"),
    ({"b": np.zeros(3)}, "b has shape"),
    ({"b": np.full(D, np.inf)}, "finite numbers"),
    ({"theta": np.ones((3, 1))}, "theta has shape"),
    ({"theta": np.full((D, 1), np.nan)}, "not finite"),
    ({"base": "student_t", "theta": np.full((D, 1), 1.9)}, "infinite"),
    ({"base": tfp.distributions.StudentT(2.0, 0.0, 1.0)}, "no finite variance"),
    ({"base": tfp.distributions.Cauchy(0.0, 1.0)}, "variance"),
    ({"non_normal": 0}, "from 1 to D = 4"),
    ({"non_normal": 5}, "from 1 to D = 4"),
    ({"non_normal": 2.0}, "from 1 to D = 4"),
    ({"non_normal": 2, "structure": "lu"}, "only structure='full'"),
    ({"non_normal": 2, "theta": np.ones((4, 1))}, r"\[k, P\] = \[2, 1\], k of D = 4"),
])  # fmt: skip
def test_bad_input(options, message):
    with pytest.raises(DataError, match=message):
        AffineIndependentBasis(Z, **options)


@pytest.mark.parametrize("options", [{"base": "cauchy"}, {"structure": "diagonal"}])
def test_unknown_options(options):
    with pytest.raises(UnknownOptionError, match="use one of"):
        AffineIndependentBasis(Z, **options)


def test_a_state_for_predictions_has_no_divergence():
    basis = AffineIndependentBasis(Z)
    with pytest.raises(ValueError, match="with_kl"):
        basis.prior_kl(basis.factor(KERNEL, with_kl=False))


@pytest.mark.parametrize(
    "points, structure, count", [(100, "full", 100), (101, "full", 20), (101, "lu", 101)]
)
def test_many_points_have_few_variables_that_are_not_normal(
    points: int, structure: str, count: int
) -> None:
    Z = np.arange(float(points))[:, None]
    basis = AffineIndependentBasis(Z, structure=structure)
    assert basis.non_normal == count
    assert basis.theta.shape == (count, 1)
    assert AffineIndependentBasis(Z, non_normal=100).non_normal == 100
