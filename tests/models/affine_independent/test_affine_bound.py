"""The bound of affine-independent models: against sampling, finite differences, special cases and
its own other routes.
"""

from __future__ import annotations

import math

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose

from gpflow_decoupled.expectations.fourier import Integration
from gpflow_decoupled.likelihoods import BernoulliLogit, BernoulliProbit, Laplace
from gpflow_decoupled.models import AffineIndependentGLM
from gpflow_decoupled.optimizers import AffineIndependentAscent
from tests.models.affine_independent.affine_problems import logistic_data, randomize, toy_model
from tests.reference import affine_model as ref

tfd = tfp.distributions
BASES = ["skew_normal", "generalized_normal"]


def small_model(likelihood, base="skew_normal", prior=None, **options):
    """Five observations, three weights and an intercept."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(5, 3))
    if isinstance(likelihood, (BernoulliLogit, BernoulliProbit, gpflow.likelihoods.Bernoulli)):
        Y = rng.integers(0, 2, size=(5, 1)).astype(float)
    else:
        Y = rng.poisson(2.0, size=(5, 1)).astype(float)
    options = {"intercept_variance": 4.0, **options}
    model = AffineIndependentGLM((X, Y), likelihood, base=base, prior=prior, **options)
    randomize(model, rng)
    if (
        model.site_groups()[0].site.kernel is None
    ):  # expectations of exp(f) must be finite, and of moderate size
        model.basis.map.assign_matrix(0.2 * model.basis.matrix().numpy())
    return model


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("name", ["sparse far", "logistic 1", "robust"])
def test_bound_by_sampling(name, base, rng):
    """E_q log p(w, y) - log q(w), in the weights themselves."""
    model, log_p = toy_model(name, base=base), ref.toy_problems()[name][0]
    randomize(model, rng)
    basis = model.basis
    scale = {"s": 0.16, "l": np.sqrt(10.0), "r": 1.0}[name[0]]
    A, b, theta = scale * basis.matrix().numpy(), scale * basis.b.numpy(), basis.shapes.numpy()
    w = basis.base.sample(40_000, basis.shapes, seed=3).numpy() @ A.T + b
    mean, error = ref.monte_carlo_bound(log_p, w, A, b, base, theta)
    assert abs(mean - model.elbo()) < 4.5 * error  # fails once in 10^5 seeds
    assert error < 0.2


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize(
    "likelihood, prior, structure",
    [
        (BernoulliLogit(), None, "full"),
        (BernoulliLogit(), None, "lu"),
        (Laplace(0.7), tfd.Laplace(np.float64(0.1), np.float64(0.5)), "full"),
        (
            gpflow.likelihoods.StudentT(scale=0.6),
            tfd.StudentT(np.float64(4.0), np.float64(0.0), np.float64(0.5)),
            "lu",
        ),
        (gpflow.likelihoods.Poisson(), None, "full"),
    ],
    ids=["logit", "logit, lu", "Laplace", "Student-t, lu", "Poisson"],
)
@pytest.mark.parametrize("base", BASES)
def test_gradient_is_that_of_finite_differences(likelihood, prior, structure, base):
    """In every coordinate of A, b and theta: central differences."""
    model = small_model(likelihood, base, prior, structure=structure, memory=2.0**26)
    groups, how = model.site_groups(), model.integration._replace(frequencies=128)
    variables = [
        p.unconstrained_variable
        for p in [*model.basis.map.parameters, model.basis.b, model.basis.theta]
    ]

    def bound():
        return model.bound(groups, how)

    with tf.GradientTape() as tape:
        value = bound()
    gradients = tape.gradient(value, variables)
    run, rng = tf.function(bound, autograph=False), np.random.default_rng(0)
    for variable, gradient in zip(variables, gradients):
        held = variable.numpy()
        for _ in range(3):
            direction = rng.normal(size=held.shape)
            values = []
            for step in (-2e-4, -1e-4, 1e-4, 2e-4):
                variable.assign(held + step * direction)
                values.append(run().numpy())
            difference = (values[0] - 8.0 * values[1] + 8.0 * values[2] - values[3]) / 1.2e-3
            variable.assign(held)
            assert_allclose(np.sum(gradient.numpy() * direction), difference, rtol=1e-6, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("likelihood", [BernoulliLogit(), Laplace(0.7)], ids=["logit", "Laplace"])
@pytest.mark.parametrize("base", ["skew_normal", "generalized_normal", "laplace"])
def test_routes_agree(likelihood, base):
    model = small_model(likelihood, base)
    groups = model.site_groups()
    expected = model.bound(groups, Integration("frequency_sum", 512))
    assert_allclose(model.elbo(), expected, atol=1e-6)
    assert_allclose(model.bound(groups, Integration("spectral", points=8192)), expected, atol=1e-6)
    assert_allclose(model.bound(groups, Integration("lattice", points=4096)), expected, atol=1e-4)


@pytest.mark.exhaustive
def test_both_logits_are_one():
    bounds = [
        small_model(each).elbo()
        for each in (BernoulliLogit(), gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid))
    ]
    assert_allclose(*bounds, rtol=1e-14)


def test_blocks_change_nothing():
    model = small_model(BernoulliLogit())
    groups = model.site_groups()
    whole, memory = model.integration, 2.0 * 16 * 4 * 64 * model.basis.base.work
    assert_allclose(
        model.bound(groups, whole._replace(memory=memory)), model.bound(groups, whole), rtol=1e-13
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("base, theta", [("skew_normal", 0.0), ("generalized_normal", 2.0)])
@pytest.mark.parametrize(
    "likelihood", [BernoulliLogit(), Laplace(0.7), gpflow.likelihoods.Poisson()]
)
def test_a_normal_shape_is_a_normal_base(likelihood, base, theta):
    model = small_model(likelihood, base)
    model.basis.theta.assign(np.full((4, 1), theta))
    found = model.elbo()
    model.basis.assign_base("normal")
    assert_allclose(found, model.elbo(), atol=1e-8)


def test_normal_base_by_quadrature(rng):
    """The Gaussian KL bound, each site by adaptive quadrature."""
    X, Y = logistic_data(6, 3)
    model = AffineIndependentGLM((X, Y), BernoulliLogit(), base="normal", intercept=False)
    randomize(model, rng)
    log_sigmoid = lambda y, n: -np.logaddexp(0.0, -(2.0 * Y[n, 0] - 1.0) * y)  # noqa: E731
    expected = ref.gaussian_bound(
        X, log_sigmoid, model.basis.b.numpy(), model.basis.matrix().numpy()
    )
    assert_allclose(model.elbo(), expected, atol=1e-8)


@pytest.mark.exhaustive
def test_laplace_is_a_special_case_of_two_bases():
    bounds = []
    for base, theta in (("laplace", None), ("generalized_normal", 1.0)):
        model = small_model(BernoulliLogit(), base)
        if theta is not None:
            model.basis.theta.assign(np.full((4, 1), theta))
        rng = np.random.default_rng(5)
        model.basis.map.assign_matrix(np.eye(4) + 0.3 * rng.normal(size=(4, 4)))
        model.basis.b.assign(rng.normal(size=4))
        bounds.append(model.bound(model.site_groups(), Integration(frequencies=512)).numpy())
    assert_allclose(bounds, bounds[0], atol=1e-7)


def test_a_base_of_the_family_of_the_posterior_is_exact():
    """A Laplace prior and no data: log Z = 0."""
    prior = tfd.Laplace(np.array([0.3, -1.0]), np.array([0.5, 2.0]))
    X = np.random.default_rng(0).normal(size=(3, 2))
    model = AffineIndependentGLM(
        (X, X[:, :1]), Laplace(), prior=prior, base="laplace", intercept=False
    )
    model.basis.map.assign_matrix(np.sqrt(2.0) * np.eye(2))
    groups = model.site_groups()[1:]
    assert_allclose(model.bound(groups, Integration("spectral", points=2**16)), 0.0, atol=1e-6)


def test_gaussian_sites_alone_give_the_evidence(rng):
    X, y = rng.normal(size=(6, 3)), rng.normal(size=(6, 1))
    model = AffineIndependentGLM(
        (X, y), gpflow.likelihoods.Gaussian(0.3), base="normal", intercept=False
    )
    precision = np.eye(3) + X.T @ X / 0.3
    S = np.linalg.inv(precision)
    model.basis.map.assign_matrix(np.linalg.cholesky(S))
    model.basis.b.assign(S @ X.T @ y[:, 0] / 0.3)
    evidence = tfd.MultivariateNormalFullCovariance(
        np.zeros(6), X @ X.T + 0.3 * np.eye(6)
    ).log_prob(y[:, 0])
    assert_allclose(model.elbo(), evidence, rtol=1e-10)


def test_half_normal_limit():
    """theta to infinity: the entropy falls by log 2, less the logarithm of the standard
    deviation.
    """
    model = small_model(BernoulliLogit())
    model.basis.theta.assign(np.full((4, 1), 1e6))
    half_normal = 0.5 * np.log(2.0 * np.pi * np.e) - np.log(2.0) - 0.5 * np.log(1.0 - 2.0 / np.pi)
    assert_allclose(model.basis.base.entropy(model.basis.shapes), half_normal, atol=1e-5)
    assert np.isfinite(model.elbo())


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "likelihood",
    [
        gpflow.likelihoods.Bernoulli(),
        BernoulliProbit(),
        gpflow.likelihoods.Exponential(),
        gpflow.likelihoods.Gamma(),
    ],
    ids=lambda likelihood: type(likelihood).__name__,
)
def test_any_likelihood_by_the_spectral_route(likelihood):
    """Against the likelihood's own quadrature where the base is normal, and a thousand times finer
    where it is not.
    """
    model = small_model(likelihood)
    if not isinstance(likelihood, (BernoulliProbit, gpflow.likelihoods.Bernoulli)):
        model.data = (model.data[0], model.data[1] + 0.5)
    groups = model.site_groups()
    assert_allclose(model.elbo(), model.bound(groups, Integration(points=8192)), atol=1e-7)
    model.basis.assign_base("normal")
    mean, variance = model.predict_f(model.data[0])
    likelihood.quadrature = gpflow.quadrature.NDiagGHQuadrature(1, 100)
    expected = likelihood.variational_expectations(model.data[0], mean, variance, model.data[1])
    assert_allclose(model.elbo(), np.sum(expected) - model.basis.divergence(), atol=1e-5)


@pytest.mark.exhaustive
def test_gradient_reaches_parameters_of_the_likelihood_through_blocks():
    for likelihood, parameter in (
        (Laplace(0.7), "scale"),
        (gpflow.likelihoods.Gamma(shape=1.3), "shape"),
    ):
        model = small_model(likelihood)
        model.data = (model.data[0], model.data[1] + 0.5)
        gradients = []
        for memory in (2.0**26, 16.0 * 4 * 513 * 2 * model.basis.base.work):
            how = Integration(memory=memory)
            variable = getattr(likelihood, parameter).unconstrained_variable
            with tf.GradientTape() as tape:
                value = model.bound(model.site_groups(), how)
            gradients.append(tape.gradient(value, variable).numpy())
        assert_allclose(gradients[1], gradients[0], rtol=1e-10)
        assert np.abs(gradients[0]) > 1e-3


@pytest.mark.exhaustive
def test_expectations_that_do_not_exist_are_minus_infinity():
    """Poisson counts: E exp(alpha v) is finite below sqrt 2 for a Laplace base, never for
    Student-t, always for a normal.
    """
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(4, 1)), rng.poisson(2.0, size=(4, 1)).astype(float)
    model = AffineIndependentGLM(
        (X / np.max(np.abs(X)), Y), gpflow.likelihoods.Poisson(), base="laplace", intercept=False
    )
    model.basis.map.assign_matrix([[0.5]])
    slope = 0.5 * X[:, 0] / np.max(np.abs(X))
    sites = -np.sum(1.0 / (1.0 - 0.5 * slope**2)) - np.sum([math.lgamma(y + 1.0) for y in Y[:, 0]])
    assert_allclose(model.elbo(), sites - model.basis.divergence(), atol=1e-4)
    for base, scale in (("laplace", 1.5), ("student_t", 0.01), ("skew_normal", 8.0)):
        model.basis.assign_base(base)
        model.basis.map.assign_matrix([[scale]])
        with pytest.warns(
            UserWarning, match="density of Poisson does not exist, or q is so wide.*'skew_normal'"
        ):
            assert np.isneginf(model.elbo().numpy())
    model.basis.assign_base("student_t")
    result = AffineIndependentAscent().run(model)
    assert result.kept == "gaussian" and np.isfinite(model.elbo())
    assert "no finite bound" in result.reason and not result.converged


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "likelihood", [BernoulliLogit(), BernoulliProbit()], ids=["logit", "probit"]
)
def test_two_variables_that_are_not_normal(likelihood):
    """They cost two dimensions a site, and are the others with a shape of zero: bound, gradients,
    predictions, samples.
    """
    full, part = small_model(likelihood), small_model(likelihood, non_normal=2)
    part.basis.map.assign_matrix(full.basis.matrix().numpy())
    part.basis.b.assign(full.basis.b)
    part.basis.theta.assign([[2.0], [-4.0]])
    full.basis.theta.assign([[2.0], [-4.0], [0.0], [0.0]])
    group = part.site_groups()[0]
    assert part.basis.projections(group).alpha.shape == [5, 2]
    gradients = []
    for model in (full, part):
        variables = [model.basis.map.A.unconstrained_variable, model.basis.b.unconstrained_variable]
        variables.append(model.basis.theta.unconstrained_variable)
        with tf.GradientTape() as tape:
            value = model.bound(model.site_groups())
        gradients.append([value, *tape.gradient(value, variables)])
    for left, right in zip(*gradients):
        assert_allclose(left[:2] if left.shape == (4, 1) else left, right, atol=1e-8)
    X, Y = part.data
    for verb in (
        lambda model: model.predict_f(X, full_cov=True),
        lambda model: model.predict_y(X),
        lambda model: model.predict_log_density((X, Y)),
        lambda model: model.predict_f_quantiles(X, [0.1, 0.6]),
        lambda model: model.predict_f_density(X, np.linspace(-3.0, 3.0, 5)),
    ):
        for left, right in zip(verb(part), verb(full)):
            assert_allclose(left, right, atol=1e-7)
    draws = part.basis.sample(40_000, seed=3).numpy()
    A = part.basis.matrix().numpy()
    assert_allclose(draws.mean(axis=0), part.basis.b, atol=5.0 * np.max(np.abs(A)) * 2.0 / 200.0)
    assert_allclose(np.cov(draws.T), A @ A.T, atol=0.06 * np.max(A @ A.T))
    v = np.linalg.solve(A, (draws - part.basis.b.numpy()).T)
    skewness = np.mean(v**3, axis=1)
    assert (
        skewness[0] > 0.3 and skewness[1] < -0.6 and np.all(np.abs(skewness[2:]) < 0.07)
    )  # 5 standard errors


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", ["sparse near", "logistic 0", "robust"])
def test_it_is_a_bound_for_random_parameters(name, rng):
    model, evidence = toy_model(name), ref.log_evidence(ref.toy_problems()[name][0])
    for _ in range(4):
        randomize(model, rng)
        assert model.elbo() < evidence


@pytest.mark.exhaustive
def test_a_distribution_of_ones_own_is_a_base():
    found = small_model(BernoulliLogit(), tfd.Logistic(np.float64(1.0), np.float64(2.0)))
    known = small_model(BernoulliLogit(), "logistic")
    assert_allclose(found.elbo(), known.elbo(), atol=1e-5)
    X = known.data[0]
    assert_allclose(
        found.predict_f_quantiles(X, [0.05, 0.5]),
        known.predict_f_quantiles(X, [0.05, 0.5]),
        atol=1e-4,
    )
    assert found.predict_f_samples(X, 3).shape == (3, 5, 1)
