"""Models whose variables have another base in each block: the bound by quadrature and sampling, and
what is as before.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.utilities import deepcopy
from numpy.testing import assert_allclose

from gpflow_decoupled.distributions import BlockBase
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.expectations.fourier import Integration
from gpflow_decoupled.likelihoods import BernoulliLogit, Laplace
from gpflow_decoupled.models import AffineIndependentGLM
from gpflow_decoupled.optimizers import AffineIndependentAscent
from tests.models.affine_independent.affine_problems import randomize, toy_model
from tests.reference import affine_independent as quadrature
from tests.reference import affine_model as ref

tfd = tfp.distributions
MIXED = [("skew_normal", 1), ("generalized_normal", 1), ("laplace", 1)]


def model_of(base, likelihood=None, **options):
    """Four observations of three weights, whose A and b are nowhere special."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(4, 3))
    Y = rng.integers(0, 2, size=(4, 1)).astype(float)
    likelihood = BernoulliLogit() if likelihood is None else likelihood
    model = AffineIndependentGLM((X, Y), likelihood, base=base, intercept=False, **options)
    randomize(model, rng)
    return model


def gradients(model, bound) -> tuple[tf.Tensor, list[tf.Tensor]]:
    variables = [
        p.unconstrained_variable
        for p in [*model.basis.map.parameters, model.basis.b, model.basis.theta]
    ]
    with tf.GradientTape() as tape:
        value = bound()
    return value, tape.gradient(value, variables)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("route", ["frequency_sum", "spectral", "lattice"])
def test_bound_by_quadrature(route):
    """Entropies and expectations of each site by the densities themselves, over a grid of the three
    variables.
    """
    model = model_of(BlockBase(MIXED))
    A, b, theta = model.basis.matrix().numpy(), model.basis.b.numpy(), model.basis.shapes.numpy()
    kinds = [quadrature.DENSITIES[name](row) for (name, _), row in zip(MIXED, theta)]
    densities = [quadrature.standardised(kind) for kind in kinds]
    expected = np.linalg.slogdet(A)[1] + sum(quadrature.entropy(density) for density in densities)
    expected -= 0.5 * (b @ b + np.sum(A**2) + 3.0 * np.log(2.0 * np.pi))
    for x, label in zip(*(array.numpy() for array in model.data)):
        log_sigmoid = lambda y, sign=2.0 * label[0] - 1.0: -np.logaddexp(0.0, -sign * y)  # noqa: E731
        expected += quadrature.expectation(log_sigmoid, densities, x @ A, x @ b)
    how = Integration(route, 256, 8192)
    assert_allclose(
        model.bound(model.site_groups(), how), expected, atol=1e-4 if route == "lattice" else 2e-5
    )  # the rule's own error is 5e-6


@pytest.mark.exhaustive
@pytest.mark.parametrize("route", ["frequency_sum", "spectral", "lattice"])
@pytest.mark.parametrize("family", ["skew_normal", "generalized_normal"])
def test_blocks_of_one_family_are_one_base(family, route):
    """Bound, gradients and predictions."""
    both = [model_of(base, route=route) for base in (family, BlockBase([(family, 1), (family, 2)]))]
    (one, slopes), (other, same) = (gradients(model, model.elbo) for model in both)
    assert_allclose(other, one, rtol=1e-10)
    for left, right in zip(slopes, same):
        assert_allclose(left, right, rtol=1e-9, atol=1e-10)
    X, grid = both[0].data[0], np.linspace(-2.0, 2.0, 5)
    for left, right in zip(
        *([m.predict_f_density(X, grid), m.predict_f_quantiles(X), *m.predict_y(X)] for m in both)
    ):
        assert_allclose(left, right, rtol=1e-8, atol=1e-10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("structure", ["full", "lu"])
@pytest.mark.parametrize(
    "prior", [None, tfd.Laplace(np.float64(0.1), np.float64(0.5))], ids=["normal", "Laplace"]
)
def test_gradient_is_that_of_finite_differences(structure, prior):
    """In random directions of A, b and theta, whose last block has shapes that the others have
    not.
    """
    blocks = BlockBase([("skew_normal", 1), ("generalized_normal", 1), ("normal_mixture", 1)])
    model = model_of(blocks, Laplace(0.7), prior=prior, structure=structure)
    groups, how = model.site_groups(), model.integration._replace(frequencies=256)
    _, slopes = gradients(model, lambda: model.bound(groups, how))
    variables = [
        p.unconstrained_variable
        for p in [*model.basis.map.parameters, model.basis.b, model.basis.theta]
    ]
    run, rng = (
        tf.function(lambda: model.bound(groups, how), autograph=False),
        np.random.default_rng(0),
    )
    for variable, slope in zip(variables, slopes):
        held, direction, values = variable.numpy(), rng.normal(size=variable.shape), []
        for step in (-2e-4, -1e-4, 1e-4, 2e-4):
            variable.assign(held + step * direction)
            values.append(run().numpy())
        variable.assign(held)
        difference = (values[0] - 8.0 * values[1] + 8.0 * values[2] - values[3]) / 1.2e-3
        assert_allclose(np.sum(slope.numpy() * direction), difference, rtol=1e-6, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["sparse far", "logistic 1", "robust"])
def test_bound_by_sampling_and_below_the_evidence(name, rng):
    """E_q log p - log q from draws of q, and log Z by quadrature over the plane."""
    blocks = [("generalized_normal", 1), ("skew_normal", 1)]
    model, log_p = toy_model(name, base=BlockBase(blocks)), ref.toy_problems()[name][0]
    basis, scale = model.basis, {"s": 0.16, "l": np.sqrt(10.0), "r": 1.0}[name[0]]
    evidence = ref.log_evidence(log_p)
    for _ in range(3):
        randomize(model, rng)
        assert model.elbo() < evidence
    w = scale * basis.sample(40_000, seed=3).numpy()
    A, b = scale * basis.matrix().numpy(), scale * basis.b.numpy()
    mean, error = ref.monte_carlo_bound(
        log_p, w, A, b, [kind for kind, _ in blocks], basis.shapes.numpy()
    )
    assert abs(mean - model.elbo()) < 4.5 * error < 0.9  # fails once in 10^5 seeds


@pytest.mark.exhaustive
def test_predictions_are_those_of_samples():
    model, draws = model_of(BlockBase(MIXED)), 40_000
    X = model.data[0]
    f = model.predict_f_samples(X, draws, full_cov=True).numpy()[:, :, 0]
    mean, variance = model.predict_f(X)
    assert np.all(np.abs(f.mean(axis=0) - mean[:, 0]) < 5.0 * np.sqrt(variance[:, 0] / draws))
    assert_allclose(f.var(axis=0), variance[:, 0], rtol=0.06)
    levels = np.array([0.02, 0.3, 0.8])
    below = np.mean(f[:, :, None] < model.predict_f_quantiles(X, levels), axis=0)
    assert np.all(np.abs(below - levels) < 5.0 * 0.5 / np.sqrt(draws))
    grid = np.linspace(-30.0, 30.0, 6001)
    density = model.predict_f_density(X, grid).numpy()
    assert_allclose(np.sum(density, axis=1) * 0.01, 1.0, atol=1e-3)
    assert_allclose(
        np.sum(density[:, :3100], axis=1) * 0.01,
        np.mean(f < grid[3099] + 0.005, axis=0),
        atol=0.0125,
    )


@pytest.mark.exhaustive
def test_some_variables_have_blocks_and_the_others_are_normal():
    part = model_of(BlockBase([("skew_normal", 1), ("laplace", 1)]), non_normal=2)
    full = model_of(BlockBase([("skew_normal", 1), ("laplace", 1), ("normal", 1)]))
    assert part.basis.shapes.shape == (2, 1) and full.basis.shapes.shape == (3, 1)
    full.basis.map.assign_matrix(part.basis.matrix().numpy())
    full.basis.b.assign(part.basis.b)
    full.basis.theta.assign(np.append(part.basis.shapes, [[0.0]], axis=0))
    assert_allclose(part.elbo(), full.elbo(), atol=1e-8)
    assert_allclose(deepcopy(full).elbo(), full.elbo(), rtol=1e-13)


SKEWED_AND_PEAKED = np.array([[5.0, 0.1], [-4.0, 0.05]]), np.array([[1.0], [0.0]])
"""Labels bend the posterior of the first weight; that of the second is nearly its prior,
Laplace's.
"""


def peaked(base, **options):
    prior = tfd.Laplace(np.float64(0.0), np.float64(0.5))
    return AffineIndependentGLM(
        SKEWED_AND_PEAKED, BernoulliLogit(), prior=prior, base=base, intercept=False, **options
    )


def evidence_of_the_peaked() -> float:
    X, Y = SKEWED_AND_PEAKED
    likelihood, prior = ref.logistic(X, Y[:, 0]), ref.laplace(np.eye(2), np.zeros(2), 0.5)
    return ref.log_evidence(lambda w: likelihood(w) + prior(w))


@pytest.mark.exhaustive
def test_the_ascent_is_between_the_gaussian_and_the_evidence():
    model = peaked(BlockBase([("skew_normal", 1), ("laplace", 1)]))
    result = AffineIndependentAscent(tolerance=1e-2).run(model)
    assert result.gaussian_elbo + 0.05 < result.elbo < evidence_of_the_peaked()
    assert result.kept == "affine" and np.isnan(result.predicted_gain)  # no rule for Laplace


@pytest.mark.exhaustive
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("rotate", [True, False])
def test_a_family_for_each_variable_is_better_than_one_for_both(order, rotate):
    """Whichever family comes first: the start finds which direction belongs to it."""
    families, ascent = ["skew_normal", "generalized_normal"], AffineIndependentAscent(rotate=rotate)
    blocks = BlockBase([(family, 1) for family in families[::order]])
    *single, both = [ascent.run(peaked(base)) for base in (*families, blocks)]
    assert both.elbo <= evidence_of_the_peaked()
    assert both.elbo > max(one.elbo for one in single) + 0.01
    assert min(one.gain for one in (*single, both)) >= 0.0


@pytest.mark.exhaustive
def test_the_structure_lu_is_never_below_the_gaussian():
    model = peaked(BlockBase([("generalized_normal", 1), ("skew_normal", 1)]), structure="lu")
    result = AffineIndependentAscent(tolerance=1e-4).run(model)
    assert result.gaussian_elbo <= result.elbo <= evidence_of_the_peaked()


def test_sizes_that_do_not_fit_are_refused_and_nothing_changes():
    blocks = BlockBase([("skew_normal", 2), ("laplace", 2)])
    for call in (lambda: peaked(blocks), lambda: model_of(blocks, non_normal=2)):
        with pytest.raises(
            DataError, match="have 4 variables together, and there are 2: .*non_normal"
        ):
            call()
    model = model_of("skew_normal")
    before = model.elbo()
    for theta in (None, np.zeros((3, 1))):
        with pytest.raises(DataError, match="have 4 variables together, and there are 3"):
            model.basis.assign_base(blocks, theta)
    assert model.basis.base.name == "skew_normal" and model.elbo() == before
