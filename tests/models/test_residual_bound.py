"""bound="tight": (N6) in every basis, between the classical bound and the evidence; what q it
belongs to, its gradients and minibatches, and where it is refused.
"""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.kernels import LinearCoregionalization, SeparateIndependent
from numpy.testing import assert_allclose
from scipy.special import gammaln

import gpflow_decoupled as gd
from gpflow_decoupled.bases import (
    CoupledBasis,
    DecoupledBasis,
    HybridBasis,
    OrthogonalBasis,
    SolveBasis,
)
from gpflow_decoupled.bases import inducing as inducing_basis
from gpflow_decoupled.errors import ModelError, UnknownOptionError
from gpflow_decoupled.inducing.variables import as_inducing
from gpflow_decoupled.models import ODVGP, BasisGP
from gpflow_decoupled.optimizers import NaturalGradient, collapsed_elbo, optimal_parameters
from gpflow_decoupled.optimizers.natural_gradient import evaluate_in_turn
from gpflow_decoupled.optimizers.natural_steps import evaluate
from tests.bounds.registry import matern, randomize
from tests.optimizers.data_mean.problems import grams_of
from tests.optimizers.problems import BETA, GAMMA, NOISE, TREND, X, observations
from tests.reference import evidence_bounds as eb
from tests.reference import residual_bound as rb
from tests.training.problems import slope

Y = observations(gl.Gaussian(NOISE), 2)
N = len(X)
BASES = {
    "coupled": lambda kernel, L: CoupledBasis(as_inducing(BETA, "beta", kernel), L),
    "hybrid": lambda kernel, L: HybridBasis(*_points(kernel), L),
    "orthogonal": lambda kernel, L: OrthogonalBasis(*_points(kernel), L),
    "solve": lambda kernel, L: SolveBasis(*_points(kernel), L),
    "decoupled": lambda kernel, L: DecoupledBasis(*_points(kernel), L, covariance="coupled"),
    "inverse": lambda kernel, L: DecoupledBasis(*_points(kernel), L, covariance="inverse"),
}


def _points(kernel: Any) -> list[Any]:
    return [as_inducing(one, name, kernel) for one, name in ((GAMMA, "gamma"), (BETA, "beta"))]


def _model(name: str = "coupled", bound: str = "tight", latents: int = 1, **parts: Any) -> BasisGP:
    parts = {"kernel": matern(1.3, 0.8), "likelihood": gl.Gaussian(NOISE), **parts}
    options = {"mean_function": TREND, "num_data": N, "bound": bound}
    return BasisGP(
        parts["kernel"], parts["likelihood"], BASES[name](parts["kernel"], latents), **options
    )


def _two() -> SeparateIndependent:
    return SeparateIndependent([matern(1.3, 0.8), matern(0.6, 1.4)])


def _dense(kernel: Any, column: int, points: np.ndarray = BETA) -> tuple[np.ndarray, ...]:
    k = grams_of(kernel, column, points, X)
    return k.K_x, k.Q_x, np.full(N, NOISE), Y[:, column] - TREND(X).numpy()[:, 0]


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("latents, own", [(1, False), (2, False), (2, True)])
def test_the_bound_is_above_the_classical_one_by_the_gain_of_the_reference(
    name: str, latents: int, own: bool, rng: np.random.Generator
) -> None:
    kernel, data = _two() if own else matern(1.3, 0.8), (X, Y[:, :latents])
    tight, classical = (
        _model(name, bound, latents, kernel=kernel) for bound in ("tight", "classical")
    )
    randomize(tight.basis, rng, 0.3)
    gpflow.utilities.multiple_assign(classical, gpflow.utilities.read_values(tight))
    gain = exact = 0.0
    points = np.concatenate([BETA, GAMMA]) if name == "solve" else BETA
    for column in range(latents):
        K, Q, D, y = _dense(kernel, column, points)
        dets = eb.log_determinants(K, Q, D, [[]] * N)
        gain += 0.5 * (dets["elbo"] - dets["diagonal"])
        exact += eb.evidence(K, D, y)
    assert gain > 0.1
    assert_allclose(float(tight.elbo(data)) - float(classical.elbo(data)), gain, rtol=1e-8)
    best = [float(collapsed_elbo(model, data)) for model in (tight, classical)]
    assert_allclose(best[0] - best[1], gain, rtol=1e-8)
    assert best[0] < exact
    optimum = optimal_parameters(tight, data)
    optimum.assign(tight)
    assert_allclose([optimum.elbo, tight.elbo(data)], best[0], rtol=1e-9)


def test_the_best_q_of_the_coupled_basis_has_the_published_bound() -> None:
    K, Q, D, y = _dense(matern(1.3, 0.8), 0)
    expected = eb.lower_bounds(K, Q, D, y, np.zeros(N), [[]] * N)["diagonal"]
    assert_allclose(collapsed_elbo(_model(), (X, Y[:, :1])), expected, rtol=1e-9)


@pytest.mark.exhaustive
def test_a_natural_gradient_step_ends_at_the_same_q() -> None:
    data, ends = (X, Y[:, :1]), []
    for bound in ("tight", "classical"):
        model = _model(bound=bound)
        NaturalGradient(1.0).minimize(model, data)
        ends.append(model)
    assert_allclose(ends[0].q_mu, ends[1].q_mu, rtol=1e-10)
    assert_allclose(ends[0].predict_f(X[:3])[1], ends[1].predict_f(X[:3])[1], rtol=1e-10)
    assert_allclose(ends[0].elbo(data), collapsed_elbo(ends[0], data), rtol=1e-9)


def test_minibatches_average_to_the_bound() -> None:
    model, data = _model(), (X, Y[:, :1])
    halves = [float(model.elbo((X[i::2], Y[i::2, :1]))) for i in range(2)]
    sizes = np.array([len(X[i::2]) for i in range(2)]) / N
    assert_allclose(np.sum(sizes * halves), model.elbo(data), rtol=1e-10)


POSITIVE = np.exp(0.3 * Y[:, :1])
CONCAVE: dict[str, tuple[Any, np.ndarray]] = {
    "counts": (gl.Poisson, np.round(np.exp(Y[:, :1]))),
    "negative binomial": (gd.likelihoods.NegativeBinomial, np.round(np.exp(Y[:, :1]))),
    "exponential": (gl.Exponential, POSITIVE),
    "gamma": (lambda: gl.Gamma(shape=3.0), POSITIVE),
    "Tweedie": (gd.likelihoods.Tweedie, POSITIVE),
    "logit": (gd.likelihoods.BernoulliLogit, np.heaviside(Y[:, :1], 0.0)),
    "probit": (gd.likelihoods.BernoulliProbit, np.heaviside(Y[:, :1], 0.0)),
    "Laplace": (lambda: gd.likelihoods.Laplace(0.1), Y[:, :1]),
    "Ordinal": (lambda: gd.likelihoods.Ordinal([0.0, 0.5]), np.round(POSITIVE).clip(0, 2)),
    "Weibull": (
        lambda: gd.likelihoods.Weibull(2.0), np.hstack([POSITIVE, np.heaviside(Y[:, :1], 0.0)]),
    ),
    "classes": (
        lambda: gd.likelihoods.CategoricalLogit(3), np.digitize(Y[:, :1], [-0.5, 0.5]) + 0.0,
    ),
}  # fmt: skip


@pytest.mark.costly(keep=4)
@pytest.mark.parametrize("which", ["counts", "elbo", "collapsed", *list(CONCAVE)[1:]])
def test_gradients_are_finite_differences(which: str, rng: np.random.Generator) -> None:
    """Of other likelihoods, shares of the variances are constant in the gradient, and the best."""
    make, labels = CONCAVE.get(which, (lambda: gl.Gaussian(NOISE), Y[:, :1]))
    latents = 3 if which == "classes" else 1
    model, data = _model("orthogonal", latents=latents, likelihood=make()), (X, labels)
    if latents > 1:
        model.mean_function = gpflow.functions.Zero(latents)
    function = collapsed_elbo if which == "collapsed" else lambda model, data: model.elbo(data)
    with tf.GradientTape() as tape:
        value = function(model, data)
    variables = model.trainable_variables
    gradient = tape.gradient(value, variables, unconnected_gradients="zero")
    direction = [rng.normal(size=variable.shape) for variable in variables]
    expected = slope(model, lambda: float(function(model, data)), direction)
    found = sum(np.sum(np.asarray(g) * d) for g, d in zip(gradient, direction))
    assert_allclose(found, expected, rtol=1e-4)


def _passes(model: BasisGP, data: Any) -> list[list[np.ndarray]]:
    """Bound and gradients of the passes that `fit` and `elbo` make."""
    variables = list(model.trainable_variables)
    X_, Y_ = (tf.constant(part) for part in data)
    with tf.GradientTape() as tape:
        value = model.elbo(data)
    found = [[value, *tape.gradient(value, variables, unconnected_gradients="zero")]]
    held = evaluate(model, (X_, Y_), variables, hold_sites=model.basis.holds_sites)
    found.append([held.elbo, *held.gradients])
    turn, _ = evaluate_in_turn(
        model, (X_, Y_), NaturalGradient(0.5), variables, hold_sites=model.basis.holds_sites
    )
    found.append([turn.elbo, *turn.gradients])
    return [[np.asarray(part) for part in each if part is not None] for each in found]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name, latents, counts",
    [
        ("coupled", 2, False),
        ("orthogonal", 1, True),
        ("coupled", 1, True),
        ("hybrid", 1, False),
        ("solve", 1, True),
        ("decoupled", 1, False),
    ],
)
def test_passes_share_the_projection(
    name: str, latents: int, counts: bool, rng: np.random.Generator, monkeypatch: Any
) -> None:
    """Their numbers are those with a projection of its own, and they make none."""
    kernel = _two() if latents == 2 else matern(1.3, 0.8)
    likelihood = {"likelihood": gl.Poisson()} if counts else {}
    model = _model(name, latents=latents, kernel=kernel, **likelihood)
    randomize(model.basis, rng, 0.3)
    data = (X, LABELS["counts"][1] if counts else Y[:, :latents])
    with monkeypatch.context() as patch:
        patch.setattr(BasisGP, "left_variances", lambda *_: None)
        expected = _passes(model, data)
    monkeypatch.setattr(inducing_basis, "project", None)
    for found, own in zip(_passes(model, data), expected, strict=True):
        for one, other in zip(found, own, strict=True):
            assert_allclose(one, other, rtol=1e-6, atol=1e-9 * max(np.abs(other).max(), 1.0))


def test_the_collapsed_bound_shares_the_projection(monkeypatch: Any) -> None:
    model, data = _model(latents=2, kernel=_two()), (X, Y)
    variables = [*model.kernel.trainable_variables, *model.likelihood.trainable_variables]
    variables += model.basis.beta.trainable_variables
    found = []
    for bound in (
        lambda: optimal_parameters(model, data).elbo,
        lambda: collapsed_elbo(model, data),
    ):
        with tf.GradientTape() as tape:
            value = bound()
        found.append([value, *tape.gradient(value, variables)])
        monkeypatch.setattr(inducing_basis, "project", None)
    for expected, one in zip(*found, strict=True):
        assert_allclose(one, expected, rtol=1e-6, atol=1e-8)


def test_blocks_of_rows_add_up(monkeypatch: Any) -> None:
    model, data = _model(), (X, Y[:, :1])
    whole = float(model.elbo(data))
    monkeypatch.setattr("gpflow_decoupled.models.basis_gp.EAGER_ROWS", 7)
    assert_allclose(model.elbo(data), whole, rtol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [{}, {"optimizer": "lbfgs"}])
def test_fit_climbs_it(options: dict[str, Any]) -> None:
    model = ODVGP(matern(1.3, 0.8), gl.Gaussian(1.0), GAMMA, BETA, bound="tight")
    before = float(collapsed_elbo(model, (X, Y[:, :1])))
    result = gd.fit(model, (X, Y[:, :1]), steps=60, progress=False, **options)
    assert float(model.elbo((X, Y[:, :1]))) > before
    assert np.isfinite(result.elbo)


LABELS: dict[str, Any] = {  # likelihood, labels, and log p(y | f) without constants
    "logit": (
        gd.likelihoods.BernoulliLogit,
        np.heaviside(Y[:, :1], 0.0),
        lambda y, f: -np.logaddexp(0.0, (1.0 - 2.0 * y) * f),
    ),
    "counts": (
        gl.Poisson,
        np.round(np.exp(Y[:, :1])),
        lambda y, f: y * f - np.exp(f) - gammaln(y + 1.0),
    ),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LABELS)
def test_other_likelihoods_have_the_best_shares_of_the_reference(
    name: str, rng: np.random.Generator
) -> None:
    make, labels, log_p = LABELS[name]
    tight, classical = (_model(bound=bound, likelihood=make()) for bound in ("tight", "classical"))
    randomize(tight.basis, rng, 0.3)
    gpflow.utilities.multiple_assign(classical, gpflow.utilities.read_values(tight))
    values = [float(model.elbo((X, labels))) for model in (tight, classical)]
    k = grams_of(tight.kernel, 0, BETA, X)
    A = k.features
    root = tight.q_sqrt.numpy()[0]
    q = A, np.diag(k.K_x - k.Q_x), tight.q_mu.numpy()[:, 0], root @ root.T

    def log_density(f: np.ndarray) -> np.ndarray:
        return log_p(labels, f + TREND(X).numpy())

    expected = [rb.bound(log_density, *q, v) for v in (rb.best_shares(log_density, *q), np.ones(N))]
    assert_allclose(values[1], expected[1], rtol=1e-6)
    gain = expected[0] - expected[1]
    assert gain > 0.05
    assert_allclose(values[0] - values[1], gain, rtol=1e-6)


def test_several_latents_and_mixed_outputs_gain(rng: np.random.Generator) -> None:
    mixed = LinearCoregionalization([matern(1.3, 0.8), matern(0.6, 1.4)], W=rng.normal(size=(2, 2)))
    points = as_inducing(BETA, "beta", mixed)
    problems = [
        (mixed, gl.Gaussian(NOISE), CoupledBasis(points, 2), Y),
        (
            matern(1.3, 0.8),
            gd.likelihoods.CategoricalLogit(3),
            CoupledBasis(BETA, 3),
            np.digitize(Y[:, :1], [-0.5, 0.5]).astype(float),
        ),
    ]
    for kernel, likelihood, basis, labels in problems:
        values = [
            float(BasisGP(kernel, likelihood, basis, num_data=N, bound=bound).elbo((X, labels)))
            for bound in ("classical", "tight")
        ]
        assert values[0] + 0.1 < values[1]


@pytest.mark.exhaustive
def test_a_natural_gradient_climbs_it_for_counts() -> None:
    make, labels, _ = LABELS["counts"]
    model = _model(likelihood=make())
    bounds = [float(model.elbo((X, labels)))]
    for _ in range(8):
        NaturalGradient(0.7).minimize(model, (X, labels))
        bounds.append(float(model.elbo((X, labels))))
    assert bounds[-1] > bounds[0] + 1.0
    assert abs(bounds[-1] - bounds[-2]) < 1e-4


class OfUser(CoupledBasis):
    """One that says nothing of f given u."""

    keeps_conditional = False


REFUSED: dict[str, tuple[Any, Any, Any]] = {
    "labels": (matern(1.3, 0.8), gl.Bernoulli(), CoupledBasis(BETA)),
    "shares": (matern(1.3, 0.8), gl.Beta(), CoupledBasis(BETA)),
    "outliers": (matern(1.3, 0.8), gl.StudentT(), CoupledBasis(BETA)),
    "basis": (matern(1.3, 0.8), gl.Gaussian(NOISE), OfUser(BETA)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_where_it_is_no_bound_of_this_kind(name: str) -> None:
    with pytest.raises(ModelError, match='use bound="classical"'):
        BasisGP(*REFUSED[name], bound="tight")
    BasisGP(*REFUSED[name])


def test_draws_are_refused_where_the_gain_depends_on_q() -> None:
    draws = {"expectations": gd.models.MonteCarlo(10), "bound": "tight"}
    basis = CoupledBasis(BETA)
    with pytest.raises(ModelError, match="expectations=MonteCarlo"):
        BasisGP(matern(1.3, 0.8), gl.Poisson(), basis, **draws)
    BasisGP(matern(1.3, 0.8), gl.Gaussian(NOISE), basis, **draws)


def test_another_bound_is_refused() -> None:
    with pytest.raises(UnknownOptionError, match="'classical', 'tight'"):
        _model(bound="tighter")
