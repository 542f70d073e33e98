"""Parallel, damped passes: the fixed points of EP one site after the other, exact Gaussians,
limits.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose
from scipy import stats

from gpflow_decoupled.likelihoods import BernoulliLogit, Laplace, RowLikelihood
from gpflow_decoupled.models import CVIGP
from gpflow_decoupled.optimizers import ConjugateComputation, ExpectationPropagation
from gpflow_decoupled.optimizers.tilted import Densities, tilted
from tests.bounds.registry import matern
from tests.models.conjugate_problems import (
    X,
    conjugate_model,
    gram,
    prior_mean,
    separate,
    sites_on_f,
    trend,
)
from tests.optimizers.approximations.evidence_problems import (
    CASES,
    evidence_model,
    labels_of,
    sites_of,
)
from tests.reference import expectation_propagation as ep


@pytest.mark.exhaustive
@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.parametrize("name", CASES)
def test_fixed_point_is_that_of_one_site_after_the_other(name, power):
    model = evidence_model(name)
    result = ExpectationPropagation(power).run(model, tolerance=1e-9)
    assert result.converged and result.skipped_sites == 0
    expected = ep.power_ep(
        gram(model), prior_mean(model), labels_of(model), CASES[name][1].log_prob, power
    )
    assert_allclose(result.evidence_estimate, expected.evidence, rtol=1e-8)
    for found, other in zip(sites_on_f(model), expected.sites):
        assert_allclose(found, other, rtol=1e-6, atol=1e-6)
    assert_allclose(result.elbo, model.elbo(), rtol=1e-10)
    assert_allclose(result.history["evidence_estimate"][-1], result.evidence_estimate)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["probit", "Poisson", "Student-t"])
def test_small_powers_approach_conjugate_computation(name):
    best = evidence_model(name)
    bound, gaps = ConjugateComputation().run(best, tolerance=1e-20).elbo, []
    for power in (1.0, 0.1, 0.01):
        model = evidence_model(name)
        result = ExpectationPropagation(power).run(model)
        assert model.elbo() <= bound + 1e-9
        distance = max(
            np.abs(left - right).max() for left, right in zip(sites_of(model), sites_of(best))
        )
        gaps.append((distance, abs(result.evidence_estimate - bound)))
    assert np.all(np.diff(gaps, axis=0) < 0.0)
    assert np.all(np.array(gaps[-1]) < 0.05 * np.array(gaps[0])), "in proportion to the power"


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["probit", "GPflow's probit", "Student-t", "Poisson"])
def test_moments_of_tilted_distributions(name):
    """From narrow and wide cavities, near the label and far from it."""
    if name == "GPflow's probit":
        model = conjugate_model(gl.Bernoulli())

        def log_density(y, f):
            return np.logaddexp(np.log(0.998) + CASES["probit"][1].log_prob(y, f), np.log(0.001))
    else:
        model, log_density = evidence_model(name), CASES[name][1].log_prob
    m, v = np.linspace(-6.0, 6.0, len(X)), np.geomspace(0.01, 20.0, len(X))
    found = tilted(Densities(model, "test"), 1.0, m[:, None], v[:, None], 200)
    for n, y in enumerate(labels_of(model)):
        offset = prior_mean(model)[n]
        mass, mean, variance = ep.tilted_moments(lambda f: log_density(y, offset + f), m[n], v[n])  # noqa: B023
        assert_allclose(found.log_mass[n, 0], mass, rtol=1e-8, atol=1e-9)
        assert_allclose(m[n] + v[n] * found.first[n, 0], mean, rtol=1e-7, atol=1e-8)
        assert_allclose(v[n] + v[n] ** 2 * found.second[n, 0], variance, rtol=1e-6)


@pytest.mark.exhaustive
def test_latent_functions_of_a_factorised_likelihood_are_apart():
    Y = np.random.default_rng(0).poisson(2.0, size=(len(X), 2)).astype(float)
    trends = trend(2)
    both = CVIGP((X, Y), separate(), gl.Poisson(), mean_function=trends)
    result, total = ExpectationPropagation().run(both), 0.0
    for latent, kernel in enumerate(separate().kernels):
        own = gpflow.functions.Linear(
            trends.A.numpy()[:, latent : latent + 1], trends.b.numpy()[latent : latent + 1]
        )
        one = CVIGP((X, Y[:, latent : latent + 1]), kernel, gl.Poisson(), mean_function=own)
        total += ExpectationPropagation().run(one).evidence_estimate
        assert_allclose(both.basis.tau.numpy()[:, latent], one.basis.tau.numpy()[:, 0], rtol=1e-6)
    assert_allclose(result.evidence_estimate, total, rtol=1e-9)


def _two_points():
    """The second site takes away what the first one adds, so that the cavity of the first has no
    variance.
    """
    model = CVIGP(
        ([[0.0], [0.1]], [[0.5], [0.6]]),
        gpflow.kernels.SquaredExponential(),
        gl.StudentT(scale=0.3),
    )
    model.basis.tau.assign([[2.0], [-1.5]])
    return model


@pytest.mark.exhaustive
def test_sites_whose_cavity_has_no_variance_stay_and_are_counted():
    model = _two_points()
    probe = ExpectationPropagation().compiled_probe(model)(*sites_of(model))
    assert probe.ok and int(probe.dropped) == 1 and np.isnan(probe.evidence)
    assert float(probe.goal[1][0, 0]) == 2.0 and float(probe.goal[1][1, 0]) > 0.0


@pytest.mark.exhaustive
def test_a_run_goes_on_when_all_cavities_have_a_variance_again():
    model = _two_points()
    result = ExpectationPropagation().run(model)
    assert result.converged and result.skipped_sites > 0 and "skipped sites" in str(result)
    assert np.isfinite(result.evidence_estimate)


LABELS, MEANS, VARIANCES = [0.0, 1.0, -3.0, 20.0], [0.1, 0.5, 0.2, 0.0], [0.5, 2.0, 0.01, 30.0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.parametrize("scale", [0.01, 0.3, 5.0])
def test_moments_under_laplace_noise(scale: float, power: float) -> None:
    """Near and far from the kink, by integration on both of its sides."""
    data = np.arange(4.0)[:, None], np.reshape(LABELS, (4, 1))
    densities = Densities(CVIGP(data, matern(1.0, 1.0), Laplace(scale)), "EP")
    m, v = (tf.constant(part, tf.float64)[:, None] for part in (MEANS, VARIANCES))
    found = tilted(densities, power, m, v, 0)
    mean, variance = m + v * found.first, v + v**2 * found.second
    for n, (y, m_c, v_c) in enumerate(zip(LABELS, MEANS, VARIANCES)):

        def log_density(u: float, y: float = y) -> float:
            return power * (-abs(u - y) / scale - np.log(2.0 * scale))

        expected = ep.integrate_with_kink(log_density, y, m_c, v_c, scale / power)
        np.testing.assert_allclose(
            [found.log_mass[n, 0], mean[n, 0], variance[n, 0] / expected[2]],
            [*expected[:2], 1.0],
            rtol=1e-7,
            atol=1e-9,
        )


def test_the_evidence_of_far_labels_under_laplace_noise_is_exact() -> None:
    X, Y = np.array([[0.0], [1e4]]), np.array([[0.7], [-2.0]])
    result = ExpectationPropagation().run(CVIGP((X, Y), matern(1.3, 1.0), Laplace(0.2)))
    expected = sum(
        ep.integrate_with_kink(lambda u, y=y: -abs(u - y) / 0.2 - np.log(0.4), y, 0.0, 1.3, 0.2)[0]
        for y in Y[:, 0]
    )
    assert_allclose(result.evidence_estimate, expected, atol=1e-8)


class NarrowLaplace(gpflow.likelihoods.ScalarLikelihood):
    """Laplace noise of scale 0.01, without its closed forms."""

    def _scalar_log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return -tf.abs(Y - F) / 0.01 - np.log(0.02)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:The bound of")
def test_too_few_nodes_are_noticed():
    model = conjugate_model(NarrowLaplace())  # it has a kink
    match = r"tilted moments of NarrowLaplace are not accurate.*nodes=80\)"
    with pytest.warns(UserWarning, match=match):
        ExpectationPropagation(nodes=20).run(model, steps=2)


ROWS = {
    # numbers of a row, its Y, and log p(y | f) with them
    "weight": (gl.Poisson, ["weight", "offset"], [3.0, 0.7, 0.5],
               lambda f: 0.7 * stats.poisson.logpmf(3.0, np.exp(f + 0.5))),
    "trials": (BernoulliLogit, ["trials"], [2.0, 5.0],
               lambda f: stats.binom.logpmf(2.0, 5.0, 1.0 / (1.0 + np.exp(-f)))),
    "noise": (lambda: gl.Gaussian(0.1), ["noise"], [1.5, 0.4],
              lambda f: stats.norm.logpdf(1.5, f, np.sqrt(0.5))),
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:Y")  # both rows are alike
@pytest.mark.parametrize("name", ROWS)
def test_rows_with_numbers_that_are_apart_are_exact(name: str) -> None:
    """Of one observation EP has the exact evidence and moments, here by sums over f; two rows far
    from each other are two of these.
    """
    make, numbers, row, log_density = ROWS[name]
    likelihood = RowLikelihood(make(), numbers)
    x = np.array([[0.0], [1e4]])
    model = CVIGP((x, np.array([row, row])), gpflow.kernels.Matern32(), likelihood)
    result = ExpectationPropagation().run(model, steps=60)
    f = np.linspace(-10.0, 10.0, 20_001)
    mass = stats.norm.pdf(f) * np.exp(log_density(f))
    total = np.sum(mass)
    mean = np.sum(mass * f) / total
    assert_allclose(result.evidence_estimate, 2.0 * np.log(total * 1e-3), rtol=1e-6)
    found = [float(part.numpy()[0, 0]) for part in model.predict_f(x)]
    assert_allclose(found, [mean, np.sum(mass * (f - mean) ** 2) / total], rtol=1e-6)
