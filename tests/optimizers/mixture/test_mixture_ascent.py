"""Mixtures of Gaussians: a lower bound of log Z by quadrature, the Gaussian bound as a special
case, and predictions.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose

from gpflow_decoupled.errors import DataError, ModelError, UnknownOptionError
from gpflow_decoupled.likelihoods import BernoulliLogit
from gpflow_decoupled.models import CVIGP, AffineIndependentGLM, AffineIndependentGP
from gpflow_decoupled.optimizers import AffineIndependentAscent, MixtureAscent, MixturePosterior
from gpflow_decoupled.optimizers import mixture as optimizer
from tests.reference import affine_model, normal_mixture

pytestmark = [
    pytest.mark.filterwarnings("ignore:There is one observation"),
    pytest.mark.filterwarnings("ignore:.* is constant"),
]
tfd = tfp.distributions


def parts(posterior: MixturePosterior) -> list[np.ndarray]:
    """Weights, means and covariances."""
    return [one.numpy() for one in (posterior.weights, posterior.means, posterior.covariances)]


TOYS = affine_model.toy_problems()
DEFICIT = 1.0 - np.log(2.0)
"""What the entropy "jensen" lacks for one Gaussian of two weights, in nats."""


def logistic():
    """The model, and its log joint density of whitened w."""
    log_p, data = TOYS["logistic 0"]
    prior = tfd.MultivariateNormalDiag(np.zeros(2), np.full(2, 10.0**0.5))
    model = AffineIndependentGLM(
        (5.0 * data["X"], data["Y"][:, None]), BernoulliLogit(), prior=prior, intercept=False
    )
    return model, lambda w: log_p(10.0**0.5 * w) + np.log(10.0)


def sparse():
    """With Laplace priors, which are sites; w in units of their scale."""
    log_p, data = TOYS["sparse near"]
    prior = tfd.Laplace(np.float64(0.0), np.float64(0.16))
    likelihood = gpflow.likelihoods.Gaussian(0.05)
    model = AffineIndependentGLM(
        (data["X"], data["Y"][:, None]), likelihood, prior=prior, intercept=False
    )
    scale = model.projections(np.eye(2)).alpha.numpy()
    assert_allclose(scale, scale[0, 0] * np.eye(2), atol=1e-12)
    return model, lambda w: log_p(scale[0, 0] * w) + 2.0 * np.log(scale[0, 0])


@pytest.mark.exhaustive
@pytest.mark.parametrize("problem, least_gain", [
    (logistic, 0.03),
    pytest.param(sparse, 0.002, marks=pytest.mark.exhaustive),
])  # fmt: skip
def test_the_objective_is_a_lower_bound(problem, least_gain):
    """Objective <= E_q log p - log q by a grid <= log Z, above the Gaussian bound; the estimate is
    the second of them.
    """
    model, log_p = problem()
    before = [parameter.numpy() for parameter in model.parameters]
    result = MixtureAscent(2, starts=2).run(model)
    exact = normal_mixture.bound(log_p, *parts(result.posterior))
    evidence = affine_model.log_evidence(log_p)
    assert result.gaussian_elbo + least_gain < result.elbo < exact < evidence
    # of the grid, at the kinks
    assert abs(result.elbo_estimate - exact) < 4.0 * result.standard_error + 1e-5
    assert result.kept == "mixture" and len(result.start_elbos) == 2
    assert (
        result.elbo == max(result.start_elbos) and result.gain == result.elbo - result.gaussian_elbo
    )
    assert result.converged and result.steps == len(result.history["elbo"])
    assert set(result.history["stage"]) == {0.0, 1.0, 2.0}
    for parameter, held in zip(model.parameters, before):
        assert_allclose(parameter, held, rtol=0.0)


@pytest.mark.exhaustive
def test_one_component_is_the_best_gaussian():
    model, log_p = logistic()
    result = MixtureAscent(1).run(model)
    low = MixtureAscent(1, entropy="jensen").run(model)
    gaussian = AffineIndependentAscent(tolerance=1e-8).run(model)
    assert_allclose([result.elbo, result.elbo_estimate], gaussian.gaussian_elbo, atol=1e-5)
    assert_allclose(normal_mixture.bound(log_p, *parts(result.posterior)), result.elbo, atol=1e-6)
    assert_allclose(result.elbo - low.elbo, DEFICIT, atol=1e-5)
    assert low.gain < 0.0 and low.kept == "mixture" and len(low.start_elbos) == 1


INPUTS = np.linspace(-2.0, 2.0, 7)[:, None]
LABELS = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0])[:, None]
NEW = np.array([[-1.7], [0.1], [3.0]])


def process(base: str = "skew_normal") -> AffineIndependentGP:
    """A classifier with inducing points and a mean function, whose features leave a part of the
    variance.
    """
    options = {
        "mean_function": gpflow.functions.Constant(0.4),
        "inducing_variable": INPUTS[::2].copy(),
        "base": base,
    }
    kernel = gpflow.kernels.Matern32(variance=9.0)
    return AffineIndependentGP((INPUTS, LABELS), kernel, BernoulliLogit(), **options)


@pytest.mark.exhaustive
def test_predictions_of_one_component_are_those_of_the_model():
    model, rng = process("normal"), np.random.default_rng(0)
    mean = rng.standard_normal(4)
    root = np.tril(0.3 * rng.standard_normal((4, 4))) + 0.5 * np.eye(4)
    model.basis.map.assign_matrix(root), model.basis.b.assign(mean)
    posterior = MixturePosterior(model, np.zeros(1), mean[None], root[None])
    values = np.linspace(-3.0, 3.0, 5)
    for found, expected in zip(posterior.predict_f(NEW), model.predict_f(NEW)):
        assert_allclose(found, expected, rtol=1e-9)
    for found, expected in zip(posterior.predict_y(NEW), model.predict_y(NEW)):
        assert_allclose(found, expected, atol=1e-7)
    density = model.predict_f_density(NEW, values)
    assert_allclose(posterior.predict_f_density(NEW, values), density, atol=1e-8)
    data = NEW, np.array([[1.0], [0.0], [1.0]])
    assert_allclose(posterior.predict_log_density(data), model.predict_log_density(data), atol=1e-6)


@pytest.mark.exhaustive
def test_predictions_of_two_components_are_integrals_of_their_density():
    rng = np.random.default_rng(1)
    roots = np.tril(0.3 * rng.standard_normal((2, 4, 4))) + 0.4 * np.eye(4)
    posterior = MixturePosterior(process(), np.log([0.3, 0.7]), rng.standard_normal((2, 4)), roots)
    values = np.linspace(-40.0, 40.0, 8001)
    density, cell = posterior.predict_f_density(NEW, values).numpy(), 0.01
    assert_allclose(cell * density.sum(1), 1.0, rtol=1e-9)
    mean, variance = (part.numpy()[:, 0] for part in posterior.predict_f(NEW))
    assert_allclose(
        [mean, variance], [cell * density @ values, cell * density @ values**2 - mean**2], rtol=1e-7
    )
    probability = cell * density @ (1.0 / (1.0 + np.exp(-values)))
    assert_allclose(posterior.predict_y(NEW)[0][:, 0], probability, rtol=1e-5)
    ones = NEW, np.ones((3, 1))
    assert_allclose(posterior.predict_log_density(ones), np.log(probability), rtol=1e-5)
    w = posterior.distribution.sample(4000, seed=1).numpy()
    weights, means, covariances = parts(posterior)
    assert_allclose(w.mean(0), weights @ means, atol=0.1)
    log_q = normal_mixture.log_density(w, weights, means, covariances)
    assert_allclose(posterior.distribution.log_prob(w), log_q, rtol=1e-9)
    assert repr(posterior) == "MixturePosterior(components=2, coordinates=4)"
    with pytest.raises(DataError, match=r"grid has shape \(2, 3\); it must be \[G\], or \[N, G\]"):
        posterior.predict_f_density(NEW, np.zeros((2, 3)))


@pytest.mark.exhaustive
def test_the_gaussian_is_kept_where_it_is_better(monkeypatch):
    """Where no climb gets above it; with the entropy "jensen" the two bounds are not comparable."""

    def climb(function, start, *_):
        return start, function(start)[0] - 50.0, "given up"

    monkeypatch.setattr(optimizer, "climb", climb)
    model, _ = logistic()
    result = MixtureAscent(3, starts=1).run(model)
    assert result.kept == "gaussian" and result.elbo == result.gaussian_elbo
    assert not result.converged and result.posterior.weights.shape == (1,)
    assert result.elbo_estimate == pytest.approx(result.elbo, abs=1e-9)
    assert MixtureAscent(3, entropy="jensen", starts=1).run(model).kept == "mixture"


BAD = [{"components": 0}, {"components": 2.5}, {"starts": 0}, {"tolerance": 0.0}, {"draws": -1}]


@pytest.mark.parametrize("options", [*BAD, {"max_evaluations": 0}, {"entropy": "exact"}])
def test_settings_are_checked(options: dict) -> None:
    error = UnknownOptionError if "entropy" in options else DataError
    with pytest.raises(error, match=next(iter(options))):
        MixtureAscent(**options)


def test_models_of_other_families_are_refused():
    model = CVIGP((INPUTS, LABELS), gpflow.kernels.Matern52(), BernoulliLogit())
    with pytest.raises(ModelError, match="takes a model of .*AffineIndependentGP.*got CVIGP"):
        MixtureAscent().run(model)


@pytest.mark.exhaustive
def test_a_seed_repeats_a_run():
    model, _ = logistic()
    first, second = (MixtureAscent(2, starts=1, draws=50, seed=3).run(model) for _ in range(2))
    assert first.elbo == second.elbo and first.elbo_estimate == second.elbo_estimate
    assert tf.reduce_all(first.posterior.means == second.posterior.means)
