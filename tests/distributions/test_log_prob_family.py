"""Families without formulas: partition, moments and Fisher solves from a log density, against
formulas, sums, quadrature.
"""

from __future__ import annotations

import resource
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose

from gpflow_decoupled.distributions import families
from gpflow_decoupled.distributions import family as contract
from gpflow_decoupled.distributions.families import Gamma
from gpflow_decoupled.distributions.family import Family, LogProbFamily
from gpflow_decoupled.errors import DataError, ModelError
from gpflow_decoupled.models import Factor, FactorGraph, prior_factor
from tests.reference.exponential_families import weighted_moments

PARAMETERS: dict[str, Any] = {
    "Gamma": ([0.3, 4.0, 900.0], [2.0, 0.5, 7.0]),
    "InverseGamma": ([0.3, 4.0, 900.0], [2.0, 0.5, 7.0]),
    "Beta": ([0.4, 20.0, 800.0], [3.0, 5.0, 300.0]),
    "Dirichlet": ([[0.5, 0.5, 3.0], [30.0, 5.0, 8.0], [900.0, 700.0, 2.0]],),
    "Categorical": ([[0.1, -0.5, 3.0], [0.0, 0.0, 0.0], [-2.0, 5.0, 1.0]],),
    "Gaussian": ([[0.3, -1.0], [2.0, 0.0]], [[[1.0, 0.4], [0.4, 0.7]], [[5.0, -1.0], [-1.0, 0.3]]]),
}


class Plain(LogProbFamily):
    """A family of the package of which only TFP's density and draws are known."""

    def __init__(self, inner: Family, draws: int | None = None) -> None:
        super().__init__(draws)
        self.inner_family, self.statistics, self.ranks = inner, inner.statistics, inner.ranks
        self.reparameterized = inner.reparameterized

    def log_prob(self, z: tf.Tensor, natural: tuple) -> tf.Tensor:
        return self.inner_family.distribution(natural).log_prob(z)

    def sample(self, natural: tuple, n: int, seed: Any = None) -> tf.Tensor:
        return self.inner_family.sample(natural, n, seed)

    def sufficient(self, z: tf.Tensor) -> tuple:
        return self.inner_family.sufficient(z)

    def tangent(self, gradient: tuple) -> tuple:
        return self.inner_family.tangent(gradient)


class VonMises(LogProbFamily):
    """Angles; the package has no such family."""

    statistics, ranks = ("cos z", "sin z"), (0, 0)

    def _tfp(self, natural: tuple) -> Any:
        a, b = natural
        return tfp.distributions.VonMises(tf.atan2(b, a), tf.sqrt(a**2 + b**2))

    def log_prob(self, z: tf.Tensor, natural: tuple) -> tf.Tensor:
        return self._tfp(natural).log_prob(z)

    def sample(self, natural: tuple, n: int, seed: Any = None) -> tf.Tensor:
        return self._tfp(natural).sample(n, seed=seed)

    def sufficient(self, z: tf.Tensor) -> tuple:
        return tf.cos(z), tf.sin(z)


class Whole(LogProbFamily):
    """exp(a z + b z^2) on 0, 1, .., 9, whose draws have no gradients."""

    statistics, ranks, reparameterized = ("z", "z^2"), (0, 0), False
    points = np.arange(10.0)

    def _logits(self, natural: tuple) -> tf.Tensor:
        return natural[0][..., None] * self.points + natural[1][..., None] * self.points**2

    def log_prob(self, z: tf.Tensor, natural: tuple) -> tf.Tensor:
        return (
            natural[0] * z + natural[1] * z**2 - tf.reduce_logsumexp(self._logits(natural), axis=-1)
        )

    def sample(self, natural: tuple, n: int, seed: Any = None) -> tf.Tensor:
        return tf.cast(
            tfp.distributions.Categorical(self._logits(natural)).sample(n, seed=seed), tf.float64
        )

    def sufficient(self, z: tf.Tensor) -> tuple:
        return z, z**2


def _member(name: str, draws: int | None = None) -> tuple[Plain, Family, tuple]:
    known = getattr(families, name)()
    return Plain(known, draws), known, known.natural(*map(np.array, PARAMETERS[name]))


def _gradient(family: Family, natural: tuple) -> tuple:
    rng = np.random.default_rng(1)
    gradient = family.tangent(
        tuple(tf.constant(rng.standard_normal(part.shape)) for part in natural)
    )
    if family.name == "Categorical":
        gradient = (gradient[0] - tf.reduce_mean(gradient[0], -1, keepdims=True),)
    return gradient


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PARAMETERS)
def test_what_follows_from_a_density_is_what_formulas_say(name: str) -> None:
    plain, known, natural = _member(name)
    assert_allclose(
        plain.log_partition(natural), known.log_partition(natural), rtol=1e-10, atol=1e-10
    )
    for found, expected in zip(plain.expectation(natural), known.expectation(natural)):
        assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert_allclose(plain.entropy(natural), known.entropy(natural), rtol=1e-8, atol=1e-8)
    g = _gradient(known, natural)
    found, expected = plain.fisher_solve(natural, g), known.fisher_solve(natural, g)
    if name == "Categorical":  # both are solutions, up to a constant
        found, expected = (
            tuple(x - tf.reduce_mean(x, -1, keepdims=True) for x in side)
            for side in (found, expected)
        )
    for one, other in zip(found, expected):
        assert_allclose(one, other, rtol=1e-8, atol=1e-8 * float(tf.reduce_max(tf.abs(other))))
    assert np.all(plain.in_domain(natural))


def _dense(
    family: LogProbFamily, natural: tuple, statistics: np.ndarray, weights: np.ndarray
) -> None:
    """A, mu and a solve of the family against sums over points."""
    g = np.array([0.7, -0.4])
    solved = np.stack(
        [
            part.numpy()
            for part in family.fisher_solve(
                natural, tuple(tf.constant(v) + 0.0 * natural[0] for v in g)
            )
        ]
    )
    means = np.stack([part.numpy() for part in family.expectation(natural)])
    for place, member in enumerate(np.stack([part.numpy() for part in natural], -1)):
        A, mu, fisher = weighted_moments(statistics, member, weights)
        assert_allclose(family.log_partition(natural)[place], A, rtol=1e-10)
        assert_allclose(means[:, place], mu, rtol=1e-9, atol=1e-12)
        assert_allclose(solved[:, place], np.linalg.solve(fisher, g), rtol=1e-8)


def test_a_family_that_the_package_does_not_have_by_quadrature() -> None:
    angles = np.linspace(
        -np.pi, np.pi, 400, endpoint=False
    )  # the trapezoid rule is exact for periodic functions
    statistics = np.stack([np.cos(angles), np.sin(angles)], -1)
    family = VonMises()
    _dense(
        family, family.natural([2.0, -0.3, 20.0], 0.5), statistics, np.full(400, 2.0 * np.pi / 400)
    )


def test_a_family_that_the_package_does_not_have_by_enumeration() -> None:
    family, points = Whole(), Whole.points
    _dense(
        family,
        family.natural([0.5, 0.0, 9.0], [-0.2, 0.0, -1.0]),
        np.stack([points, points**2], -1),
        np.ones(10),
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Gamma", pytest.param("Dirichlet", marks=pytest.mark.exhaustive)])
def test_covariances_of_draws_agree_to_their_error(name: str) -> None:
    """With S draws the error of a solve is a few times cond / sqrt(S)."""
    plain, known, natural = _member(name, draws=100_000)
    natural = tuple(part[:2] for part in natural)
    g = _gradient(known, natural)
    for one, other in zip(plain.fisher_solve(natural, g), known.fisher_solve(natural, g)):
        assert np.max(np.abs(one - other)) < 0.05 * np.max(np.abs(other))
        assert np.max(np.abs(one - other)) > 0.0, "an estimate is not exact"


@pytest.mark.exhaustive
def test_no_matrix_is_formed_for_many_classes() -> None:
    """One of 200,000 statistics has 320 GB; what is used here is below 2 GB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rng, known = np.random.default_rng(0), families.Dirichlet()
    natural = known.natural(rng.uniform(0.5, 50.0, 200_000))
    g = (tf.constant(rng.standard_normal(200_000)),)
    (found,), (expected,) = Plain(known).fisher_solve(natural, g), known.fisher_solve(natural, g)
    assert np.max(np.abs(found - expected)) < 1e-8 * np.max(np.abs(expected))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2_000_000


@pytest.mark.exhaustive
def test_messages_of_a_factor_graph_are_those_of_the_formulas() -> None:
    """A Poisson rate with a log-normal factor, which is not conjugate: one message goes through a
    Fisher solve.
    """
    counts = np.array([3.0, 5.0, 2.0])

    def normal(z: families.Belief) -> tf.Tensor:
        variance = tf.math.polygamma(tf.constant(1.0, tf.float64), z.natural[0] + 1.0)
        return -0.5 * (z.expectation[0] ** 2 + variance)

    def messages(family: Family) -> dict:
        natural = Gamma().natural(2.0, 0.5)
        belief = families.Belief.at(family, natural)
        data = Factor(
            "z", lambda z, y: tf.reduce_sum(y * z.expectation[0] - z.expectation[1]), data=counts
        )
        factors = {"prior": prior_factor("z", belief), "data": data, "normal": Factor("z", normal)}
        graph = FactorGraph({"z": belief}, factors)
        seed = tf.constant([0, 0], tf.int32)
        return {
            key: graph.outgoing(key, {"z": natural}, ["z"], graph.data[key], seed)["z"]
            for key in graph.factors
        }

    ours, theirs = messages(Plain(Gamma())), messages(Gamma())
    for key in theirs:
        for one, other in zip(ours[key], theirs[key]):
            assert_allclose(one, other, rtol=1e-9, err_msg=key)


def test_what_is_outside_of_the_domain() -> None:
    plain, _, _ = _member("Gamma")
    natural = (
        tf.constant([-1.5, 0.0, 0.0], tf.float64),
        tf.constant([-1.0, 1.0, -1.0], tf.float64),
    )
    assert_allclose(plain.in_domain(natural), [0, 0, 1])


@pytest.mark.exhaustive
def test_a_solve_that_is_cut_short_is_not_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "_ITERATIONS", 1)
    family = Plain(families.Dirichlet())
    natural = families.Dirichlet().natural(np.array([0.5, 20.0, 3.0, 1.0]))
    assert np.all(
        np.isnan(family.fisher_solve(natural, (tf.constant([1.0, -2.0, 0.3, 5.0], tf.float64),))[0])
    )


def test_what_is_refused() -> None:
    with pytest.raises(DataError, match="draws=1 must be a whole number of at least 2"):
        VonMises(draws=1)
    with pytest.raises(
        DataError,
        match="VonMises has 2 natural parameters and got 1; pass the coefficients of cos z, sin z",
    ):
        VonMises().natural(1.0)
    with pytest.raises(DataError, match="the coefficient of sin z has entries that are not finite"):
        VonMises().natural(1.0, np.nan)
    with pytest.raises(
        ModelError, match="VonMises has no TFP distribution: use its log_prob and sample"
    ):
        VonMises().distribution(VonMises().natural(1.0, 0.0))
    narrow, natural = Plain(families.Dirichlet(), draws=3), families.Dirichlet().natural(np.ones(4))
    with pytest.raises(
        DataError,
        match="draws=3 of Plain give a singular covariance of 4 statistics; use many more than 4",
    ):
        narrow.fisher_solve(natural, (tf.zeros(4, tf.float64),))
