"""Exponential families against numpy versions, TFP's densities and finite differences."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose

from gpflow_decoupled.distributions import families
from gpflow_decoupled.distributions.families import Gaussian
from gpflow_decoupled.errors import DataError
from tests.reference.exponential_families import FAMILIES, gaussian

PARAMETERS = {
    "Gamma": [[0.3, 2.0], [4.0, 0.5], [900.0, 7.0]],
    "InverseGamma": [[0.3, 2.0], [4.0, 0.5], [900.0, 7.0]],
    "Beta": [[0.4, 3.0], [20.0, 5.0], [800.0, 300.0]],
    "Dirichlet": [[0.1, 0.5, 3.0], [30.0, 5.0, 8.0], [900.0, 700.0, 0.2]],
    "Categorical": [[0.1, -0.5, 3.0], [0.0, 0.0, 0.0], [-2.0, 5.0, 1.0]],
}
"""Three members of each family, to be a batch."""
VECTORS = {"Dirichlet", "Categorical"}


def member(name: str):
    """The family, lambda of the batch, and the flat parameters [3, D]."""
    family, flat = getattr(families, name)(), np.array(PARAMETERS[name])
    arguments = (flat,) if name in VECTORS else tuple(flat.T)
    return family, family.natural(*arguments), flat


def flatten(name: str, natural) -> np.ndarray:
    return (
        natural[0].numpy() if name in VECTORS else np.stack([part.numpy() for part in natural], -1)
    )


def unflatten(name: str, rows: np.ndarray):
    return (
        (tf.constant(rows),) if name in VECTORS else tuple(tf.constant(column) for column in rows.T)
    )


def gaussians(M: int = 3):
    rng = np.random.default_rng(0)
    mean, root = rng.normal(size=(2, M)), rng.normal(size=(2, M, 2 * M))
    return Gaussian(), mean, root @ np.swapaxes(root, -1, -2)


@pytest.mark.parametrize("name", FAMILIES)
def test_parameters_are_those_of_the_formulas(name):
    family, natural, flat = member(name)
    reference = FAMILIES[name]
    assert_allclose(flatten(name, natural), [reference.natural(p) for p in flat], rtol=1e-14)
    assert_allclose(
        family.log_partition(natural), [reference.log_partition(p) for p in flat], rtol=1e-12
    )
    mu = family.expectation(natural)
    assert_allclose(
        flatten(name, mu), [reference.expectation(p) for p in flat], rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_fisher_solves_need_no_matrix(name, rng):
    family, natural, flat = member(name)
    g = rng.normal(size=flat.shape)
    if name == "Categorical":
        g -= g.mean(-1, keepdims=True)
    found = flatten(name, family.fisher_solve(natural, unflatten(name, g)))
    for p, x, row in zip(flat, found, g):
        fisher = FAMILIES[name].fisher(p)
        assert_allclose(fisher @ x, row, rtol=1e-9, atol=1e-9)
        if name != "Categorical":
            assert_allclose(x, np.linalg.solve(fisher, row), rtol=1e-8)


def _trigamma(n: int) -> Decimal:
    """psi'(n) = pi^2 / 6 - sum 1 / k^2 over k < n, to 40 digits."""
    pi = Decimal("3.14159265358979323846264338327950288419716939937510")
    return pi * pi / 6 - sum((1 / Decimal(k) ** 2 for k in range(1, n)), Decimal(0))


@pytest.mark.parametrize("a", [2, 28, 32, 20000])
def test_fisher_solves_keep_their_digits(a):
    """Where a psi'(a) - 1 and the denominator of (C35), computed as printed, lose the digits of
    a.
    """
    g_1, g_2 = Decimal("0.25"), Decimal("0.5")
    with localcontext() as context:
        context.prec = 45
        first, second, total = (_trigamma(k * a) for k in (1, 2, 3))
        gamma_solution = (a * g_1 - 2 * g_2) / (a * first - 1)  # (C33)
        excess = total * (g_1 / first + g_2 / second) / (1 - total * (1 / first + 1 / second))
        dirichlet_solution = [
            float((g_1 + excess) / first),
            float((g_2 + excess) / second),
        ]  # (C35)
    g = tf.constant([0.25, 0.5], tf.float64)
    gamma = families.Gamma()
    found = gamma.fisher_solve(gamma.natural(float(a), 2.0), (g[0], g[1]))
    assert_allclose(found[0], float(gamma_solution), rtol=1e-13)
    c = tf.constant([a, 2 * a], tf.float64)
    assert_allclose(families.dirichlet_fisher_solve(c, g), dirichlet_solution, rtol=1e-13)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FAMILIES)
def test_densities_entropies_and_divergences_are_tfps(name):
    family, natural, _ = member(name)
    distribution = family.distribution(natural)
    z = distribution.sample(4, seed=[1, 2])
    if name == "Beta":
        z = tf.clip_by_value(z, 1e-6, 1 - 1e-6)
    if name == "Dirichlet":
        z = (z + 1e-6) / tf.reduce_sum(z + 1e-6, -1, keepdims=True)
    assert_allclose(family.log_prob(z, natural), distribution.log_prob(z), rtol=1e-7, atol=1e-7)
    assert_allclose(family.entropy(natural), distribution.entropy(), rtol=1e-9, atol=1e-11)
    belief = families.Belief.at(family, natural)
    assert_allclose(belief.entropy(), family.entropy(natural))
    other = tuple(tf.reverse(part, [0]) for part in natural)
    if name == "InverseGamma":  # TFP has no divergence of these; theirs is that of 1/z
        theirs = [
            tfp.distributions.Gamma(*family.shape_and_scale(part)) for part in (natural, other)
        ]
    else:
        theirs = [family.distribution(part) for part in (natural, other)]
    assert_allclose(
        family.kl(natural, other), tfp.distributions.kl_divergence(*theirs), rtol=1e-9, atol=1e-12
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "Categorical"])
def test_samples_are_differentiable(name):
    """The average of the implicit gradients of <phi(z), t> over draws is I(lambda) t, within four
    standard errors.
    """
    family, natural, flat = member(name)
    natural, flat = tuple(part[1] for part in natural), flat[1]
    t = unflatten(name, np.array([[0.2, -0.1, 0.4][: len(flat)]]))
    with tf.GradientTape() as tape:
        tape.watch(natural)
        repeated = tuple(
            part + tf.zeros([20000] + [1] * rank, part.dtype)
            for part, rank in zip(natural, family.ranks)
        )
        repeated = tuple(tf.convert_to_tensor(part) for part in repeated)
        tape.watch(repeated)
        z = family.sample(repeated, 1, seed=[3, 4])[0]
        values = family.inner(family.sufficient(z), t)
    gradients = flatten(name, tape.gradient(values, repeated))
    expected = FAMILIES[name].fisher(flat) @ flatten(name, t)[0]
    error = gradients.std(0) / np.sqrt(len(gradients))
    assert np.all(np.abs(gradients.mean(0) - expected) <= 4 * error)
    assert np.all(error < 0.1 * np.max(np.abs(expected)))


def test_gaussian_against_its_formulas(rng):
    family, mean, cov = gaussians()
    natural = family.natural(mean, cov)
    g_1, g_2 = rng.normal(size=mean.shape), rng.normal(size=cov.shape)
    g_2 = g_2 + np.swapaxes(g_2, -1, -2)
    solved = family.fisher_solve(natural, (tf.constant(g_1), tf.constant(g_2)))
    mu = family.expectation(natural)
    for n in range(len(mean)):
        flat, A, expected, fisher = gaussian(mean[n], cov[n])
        assert_allclose(
            np.concatenate([part[n].numpy().ravel() for part in natural]), flat, rtol=1e-10
        )

        assert_allclose(family.log_partition(natural)[n], A, rtol=1e-12)
        assert_allclose(
            np.concatenate([part[n].numpy().ravel() for part in mu]), expected, rtol=1e-10
        )
        x = np.concatenate([part[n].numpy().ravel() for part in solved])
        assert_allclose(fisher @ x, np.concatenate([g_1[n], g_2[n].ravel()]), rtol=1e-8, atol=1e-8)
    theirs = tfp.distributions.MultivariateNormalTriL(mean, np.linalg.cholesky(cov))
    z = theirs.sample(5, seed=[0, 1])
    assert_allclose(family.log_prob(z, natural), theirs.log_prob(z), rtol=1e-9)
    assert_allclose(family.distribution(natural).log_prob(z), theirs.log_prob(z), rtol=1e-9)
    assert_allclose(family.entropy(natural), theirs.entropy(), rtol=1e-10)
    other = tuple(tf.reverse(part, [0]) for part in natural)
    assert_allclose(
        family.kl(natural, other), theirs.kl_divergence(family.distribution(other)), rtol=1e-9
    )


def test_gaussian_samples_are_differentiable(rng):
    """E <z z^T, T> by symmetric draws, whose gradient in lambda, solved, is the constant (0, T)."""
    family, mean, cov = gaussians(2)
    natural = family.natural(mean[0], cov[0])
    T = tf.constant(rng.normal(size=(2, 2)))
    with tf.GradientTape() as tape:
        tape.watch(natural)
        z = family.sample(natural, 200000, seed=[5, 6])
        value = tf.reduce_mean(tf.einsum("si,ij,sj->s", z, T, z))
    found = family.fisher_solve(natural, tape.gradient(value, natural))
    assert_allclose(found[0], [0.0, 0.0], atol=0.05)
    assert_allclose(found[1], 0.5 * (T + tf.transpose(T)), atol=0.05)


def test_domains():
    gamma, dirichlet, normal = families.Gamma(), families.Dirichlet(), Gaussian()
    assert_allclose(
        gamma.in_domain((tf.constant([-1.5, 0.0, 0.0]), tf.constant([-1.0, 1.0, -1.0]))), [0, 0, 1]
    )
    assert_allclose(dirichlet.in_domain((tf.constant([[-1.0, 0.0], [-0.9, 0.0]]),)), [0, 1])
    precisions = tf.constant([[[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])
    assert_allclose(normal.in_domain((tf.zeros([2, 2]), -0.5 * precisions)), [0, 1])


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: families.Gamma().natural(0.0, 1.0),
            "the shape of a Gamma must be above 0 and its least entry is 0",
        ),
        (
            lambda: families.Gamma().natural([1.0, np.nan], 1.0),
            "the shape of a Gamma has entries that are not finite",
        ),
        (
            lambda: families.InverseGamma().natural(1.0, -2.0),
            "the scale of an InverseGamma must be above 0",
        ),
        (lambda: families.Beta().natural(1.0, -2.0), "concentration0 of a Beta must be above 0"),
        (
            lambda: families.Dirichlet().natural([1.0]),
            r"concentration of a Dirichlet has shape \(1,\) and needs",
        ),
        (
            lambda: families.Categorical().natural(1.0),
            r"logits of a Categorical have shape \(\) and need",
        ),
        (
            lambda: Gaussian().natural(0.0, 1.0),
            r"shapes \(\) and \(\). A number is a vector with M = 1",
        ),
        (
            lambda: Gaussian().natural(np.zeros(2), -np.eye(2)),
            "covariance of a Gaussian is not positive definite",
        ),
    ],
)
def test_bad_parameters_are_refused(make, message):
    with pytest.raises(DataError, match=message):
        make()


def test_a_density_at_the_edge_of_the_support():
    """A coefficient of zero wins over a statistic that is infinite."""
    for belief, edge in (
        (families.Gamma().belief(1.0, 1.0), 0.0),
        (families.Beta().belief(1.0, 1.0), 1.0),
        (families.Dirichlet().belief([1.0, 1.0, 1.0]), [0.0, 0.0, 1.0]),
    ):
        found = belief.family.log_prob(tf.constant(edge, tf.float64), belief.natural)
        assert_allclose(
            found, belief.distribution.log_prob(tf.constant(edge, tf.float64)), atol=1e-12
        )
    gamma = families.Gamma()
    found = gamma.log_prob(
        tf.constant(0.0, tf.float64), gamma.natural([1.0, 2.0, 0.5], [3.0, 1.0, 1.0])
    )
    assert_allclose(found, [np.log(3.0), -np.inf, np.inf])


@pytest.mark.parametrize("outside", [np.nan, -0.5, 1.5])
def test_no_density_outside_of_the_support(outside):
    """Where every coefficient is zero too: the density of what is no number is not that of the
    uniform distribution.
    """
    z = tf.constant([outside, 1.0 - outside], tf.float64)
    for belief in (families.Beta().belief(1.0, 1.0), families.Dirichlet().belief([1.0, 1.0])):
        assert np.all(np.isnan(belief.family.log_prob(z, belief.natural))), belief.family.name


def test_a_covariance_that_is_not_symmetric_is_refused():
    with pytest.raises(DataError, match="the covariance of a Gaussian is not symmetric"):
        Gaussian().natural([0.0, 0.0], [[2.0, 1.9], [0.0, 1.0]])
    with pytest.raises(
        DataError, match="the covariance of a Gaussian is not symmetric"
    ):  # small in a batch
        Gaussian().natural([0.0, 0.0], [1e6 * np.eye(2), [[2.0, 1.9], [0.0, 1.0]]])
