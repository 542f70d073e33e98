"""Runs of the Lagrangian and of its rivals: one bound for all, monotone ascent, the relations at
the solution.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

import gpflow_decoupled.optimizers.lagrangian.dual as objective
import gpflow_decoupled.optimizers.lagrangian.linearly_constrained as lcl_iterations
from gpflow_decoupled.errors import DataError, ModelError, NumericalError, UnknownOptionError
from gpflow_decoupled.expectations.logit_integrals import softplus_pieces
from gpflow_decoupled.likelihoods import BernoulliLogit, Laplace, QuadratureLoss, declare_site_loss
from gpflow_decoupled.models import CVIGP, LCLGP
from gpflow_decoupled.optimizers import (
    CholeskyKL,
    ConjugateComputation,
    ConstraintSubset,
    LinearlyConstrainedLagrangian,
    OpperArchambeau,
)
from tests.bounds.registry import matern
from tests.optimizers.lagrangian.lcl_problems import (
    KINDS,
    gram,
    inputs,
    labels,
    model,
    prior_mean,
    randomize,
    site_functions,
)
from tests.reference import conjugate as conj
from tests.reference import lcl

names = pytest.mark.parametrize("name", KINDS)


def lagrangian(**options) -> LinearlyConstrainedLagrangian:
    """A tight tolerance, eagerly: these problems are small."""
    return LinearlyConstrainedLagrangian(**{"tolerance": 1e-8, "compile": False, **options})


@pytest.mark.exhaustive
@names
def test_every_method_reaches_the_same_bound(name):
    """On 20 points, with a mean function; and for labels of GPflow's sites, conjugate
    computation.
    """
    found = {}
    rules = {
        "Lagrangian": lagrangian(compile=True),
        "CholeskyKL": CholeskyKL(tolerance=1e-9),
        # a small gain of an iteration does not mean that little is left
        "OpperArchambeau": OpperArchambeau(tolerance=1e-13, max_evaluations=3000),
    }
    for rule, optimizer in rules.items():
        built = model(name, 20)
        result = optimizer.run(built)
        found[rule] = result.elbo
        assert_allclose(built.elbo(), result.elbo, atol=1e-6)
        assert result.history["elbo"][0] <= result.elbo and "ELBO" in str(result)
    if name in ("Gaussian", "Poisson"):
        built = model(name, 20)
        other = CVIGP(
            (built.data[0].numpy(), built.data[1].numpy()),
            built.kernel,
            KINDS[name].make(),
            mean_function=built.mean_function,
        )
        ConjugateComputation().run(other, tolerance=1e-14)
        found["conjugate"] = float(other.elbo())
    assert max(found.values()) - min(found.values()) < 1e-6


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name, N", [("Poisson", 5), ("logit", 5), ("probit", 4), ("Gaussian", 4), ("Laplace", 2)]
)
def test_bound_is_that_of_the_best_gaussian(name, N):
    """By a general optimizer over mean and factor, in the reference."""
    built = model(name, N)
    result = lagrangian().run(built)
    K, m_0, f = gram(built), prior_mean(built), site_functions(name, built)
    root = np.linalg.cholesky(K)

    def value(t, V):
        return lcl.bound(K, m_0, m_0 + root @ t, root @ V @ root.T, f)

    assert_allclose(conj.best_gaussian(value, N)[2], result.elbo, atol=1e-6)


@pytest.mark.exhaustive
@names
@pytest.mark.parametrize("seed", range(2))
def test_ascent_is_monotone_from_random_starts(name, seed):
    """The true bound, and one limit: with theta 0.1 and the paper's 1."""
    ends = []
    for theta in (0.1, 1.0):
        built = model(name, 12)
        randomize(built, seed)
        result = lagrangian(theta=theta, compile=name in ("logit", "probit", "Student-t")).run(
            built
        )
        assert result.reason == "converged" and result.converged
        assert np.all(np.diff(result.history["elbo"]) >= -1e-9)
        ends.append(result.elbo)
    assert_allclose(ends[0], ends[1], atol=1e-6)


@pytest.mark.exhaustive
@names
def test_relations_at_the_solution(name):
    """Theorem 4.1: alpha = f_h, lambda = f_sigma / sigma; and the gradient (V16) of every
    subproblem is zero there.
    """
    built = model(name, 12, latents=2)
    lagrangian(tolerance=1e-11, compile=name in ("logit", "probit", "Student-t")).run(built)
    state, loss = built.basis.factor(built.kernel), built.site_loss()
    mean, sigma = built.prior_mean() + state.mean, tf.sqrt(state.variance)
    at = loss.expand(mean, sigma)
    assert_allclose(built.basis.alpha, at.d_h, atol=2e-5)
    assert_allclose(built.basis.lam, at.d_s / sigma, rtol=1e-4, atol=1e-5)
    if KINDS[name].concave:
        assert np.all(built.basis.lam.numpy() > 0.0)
    else:
        assert np.any(built.basis.lam.numpy() < 0.0)  # else the curvature terms were not tried


@pytest.mark.exhaustive
def test_gaussian_noise_is_done_in_one_subproblem():
    """The bound is the evidence, lambda the precision of the noise."""
    for start in ("fresh", "random"):
        built = model("Gaussian", 12)
        if start == "random":
            randomize(built)
        result = lagrangian().run(built)
        evidence = conj.log_evidence(
            gram(built), prior_mean(built), built.data[1].numpy()[:, 0], 0.3
        )
        assert_allclose(result.elbo, evidence, rtol=1e-10)
        if start == "fresh":
            assert result.steps <= 2
        assert_allclose(built.basis.lam, 1.0 / 0.3 * np.ones((12, 1)), rtol=1e-3)


@pytest.mark.exhaustive
def test_error_contracts_as_derived():
    """F* - F_k falls by 4/9 or more with theta = 1, and faster with 0.1."""
    factors = {}
    for theta in (1.0, 0.1):
        built = model("Poisson", 15, variance=3.0)
        randomize(built)
        history = (
            lagrangian(theta=theta, tolerance=1e-10, accelerate=False).run(built).history["elbo"]
        )
        gaps = history[-1] - history[1:-2]
        gaps = gaps[gaps > 1e-6]
        factors[theta] = np.max(gaps[2:] / gaps[1:-1])
    assert factors[1.0] < 4.0 / 9.0 + 0.05
    assert factors[0.1] < factors[1.0]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    [
        {"accelerate": False},
        {"inner": "lbfgs"},
        {"trust_region": 0.5},
        {"sweeps": 0},
        {"augmented": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["Poisson", "logit"])
def test_options_change_the_way_and_not_the_end(name, options):
    best = lagrangian().run(model(name, 12)).elbo
    assert_allclose(lagrangian(**options).run(model(name, 12)).elbo, best, atol=1e-6)


@pytest.mark.exhaustive
def test_acceleration_saves_iterations():
    steps = [
        lagrangian(accelerate=fast, tolerance=1e-9).run(_random("Poisson")).steps
        for fast in (False, True)
    ]
    assert steps[1] < steps[0]


def _random(name: str) -> LCLGP:
    built = model(name, 15, variance=3.0)
    randomize(built)
    return built


@pytest.mark.exhaustive
def test_without_curvature_terms_nothing_is_promised():
    """The best point is kept all the same, and with them it is at least as good."""
    ends = {}
    for label, options in {
        "terms": {},
        "none": {"curvature": False},
        "paper": {"curvature": False, "augmented": True},
    }.items():
        built = model("Student-t", 6)
        result = lagrangian(max_outer=3, compile=True, **options).run(built)
        ends[label] = result.elbo
        assert_allclose(built.elbo(), result.elbo, rtol=1e-9)
        assert result.elbo == np.max(result.history["elbo"])
    assert ends["terms"] >= max(ends.values()) - 1e-3


@pytest.mark.exhaustive
def test_a_compiled_run_is_traced_once():
    """No subproblem and no outer iteration makes another graph."""
    traces, original = [], objective.DualProblem._point
    objective.DualProblem._point = lambda *arguments: (traces.append(1), original(*arguments))[1]
    try:
        result = lagrangian(compile=True, sweeps=0, accelerate=False).run(model("Poisson", 12))
    finally:
        objective.DualProblem._point = original
    assert result.inner_steps > 4
    assert len(traces) <= 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Gaussian", "Poisson", "logit"])
def test_extreme_multipliers_are_no_obstacle(name):
    """Next to both ends of S, and lambda from 1e-6 to 1e3."""
    built = model(name, 10)
    best = lagrangian().run(model(name, 10)).elbo
    loss, rng = built.site_loss(), np.random.default_rng(0)
    low, high = np.maximum(loss.lower, -3.0), np.minimum(loss.upper, 3.0)
    share = np.where(rng.uniform(size=low.shape) < 0.5, 1e-6, 1.0 - 1e-6)
    built.basis.alpha.assign(low + share * (high - low))
    built.basis.lam.assign(10.0 ** rng.uniform(-6, 3, size=low.shape))
    result = lagrangian(compile=True).run(built)
    assert np.all(np.diff(result.history["elbo"]) >= -1e-9)
    assert_allclose(result.elbo, best, atol=1e-5)


@pytest.mark.parametrize("rule", [lagrangian(), OpperArchambeau(compile=False)])
def test_multipliers_outside_are_refused(rule):
    built = model("Poisson", 6)
    built.basis.alpha.assign(-10.0 * np.ones((6, 1)))
    with pytest.raises(DataError, match="alpha\\[0, 0\\] = -10 is outside of S = "):
        rule.run(built)
    built.basis.alpha.assign(0.5 * np.ones((6, 1)))
    built.basis.lam.assign(-np.ones((6, 1)))
    with pytest.raises(DataError, match="lam\\[0, 0\\] = -1 is below"):
        rule.run(built)
    assert np.all(built.basis.lam.numpy() == -1.0)


def test_kernel_that_is_not_positive_definite():
    class Negative(gpflow.kernels.Constant):
        def K(self, X, X2=None):
            return -super().K(X, X2)

        def K_diag(self, X):
            return -super().K_diag(X)

    built = LCLGP((inputs(6), labels("Poisson", inputs(6))), Negative(), gl.Poisson())
    with pytest.raises(NumericalError, match="The kernel matrix K"):
        lagrangian().run(built)
    assert not np.any(built.basis.lam.numpy())


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"inner": "adam"}, UnknownOptionError, "inner='adam'"),
        ({"theta": -0.5}, DataError, "theta=-0.5"),
        ({"theta": np.nan}, DataError, "theta=nan"),
        ({"tolerance": 0.0}, DataError, "tolerance=0.0"),
        ({"trust_region": -1.0}, DataError, "trust_region=-1.0"),
        ({"sweeps": -1}, DataError, "sweeps=-1"),
    ],
)
def test_settings_out_of_range_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        LinearlyConstrainedLagrangian(**options)


def test_rivals_check_their_settings():
    for rival in (OpperArchambeau, CholeskyKL):
        with pytest.raises(DataError, match="tolerance=-1"):
            rival(tolerance=-1.0)


@pytest.mark.parametrize(
    "optimizer",
    [
        LinearlyConstrainedLagrangian(),
        OpperArchambeau(),
        CholeskyKL(),
        ConstraintSubset(3),
    ],
    ids=lambda one: type(one).__name__,
)
def test_models_of_another_family_are_refused(optimizer):
    """The message names the class that is taken, and what trains the model that was given."""
    X, Y = inputs(6), labels("Poisson", inputs(6))
    sites = CVIGP((X, Y), matern(1.0, 1.0), gl.Poisson())
    sparse = gpflow.models.SVGP(matern(1.0, 1.0), gl.Poisson(), X)
    for wrong, advice in ((sites, "ConjugateComputation"), (sparse, "NaturalGradient")):
        with pytest.raises(
            ModelError,
            match=f"{type(optimizer).__name__}.run takes a model of the class LCLGP.*{advice}",
        ):
            optimizer.run(wrong)
    if isinstance(optimizer, LinearlyConstrainedLagrangian):
        for method in (optimizer.prepare, optimizer.inner_solver):
            with pytest.raises(ModelError, match="takes a model of the class LCLGP"):
                method(sites)


def test_theta_of_zero_is_refused_where_a_penalty_is_needed():
    built = model("Laplace", 6)
    with pytest.raises(DataError, match="theta must be above 0: Laplace"):
        lagrangian(theta=0.0).run(built)


class StraightLines(gl.ScalarLikelihood):
    """Laplace noise by quadrature, whose second derivatives are all zero."""

    def _scalar_log_prob(self, X, F, Y):
        return -tf.abs(Y - F) - np.log(2.0)

    def _conditional_mean(self, X, F):
        return F

    def _conditional_variance(self, X, F):
        return 2.0 * tf.ones_like(F)


class LogisticNoise(gl.ScalarLikelihood):
    """Logistic noise of scale 0.1 by quadrature."""

    def _scalar_log_prob(self, X, F, Y):
        return -10.0 * (Y - F) - 2.0 * tf.math.softplus(-10.0 * (Y - F)) + np.log(10.0)

    def _conditional_mean(self, X, F):
        return tf.identity(F)

    def _conditional_variance(self, X, F):
        return (0.1 * np.pi) ** 2 / 3.0 * tf.ones_like(F)


def _logistic_loss(likelihood, Y):
    return QuadratureLoss(
        likelihood, Y, -10.0, 10.0, start=lambda alpha: Y + 0.2 * tf.atanh(0.0999 * alpha)
    )


declare_site_loss(LogisticNoise, _logistic_loss)


@pytest.mark.exhaustive
def test_site_fixed_points_help_where_a_subproblem_finds_no_step(rng):
    """Outliers far beyond the noise: the first multipliers are at the edge of S, where no step of
    the subproblem rises.
    """
    X = np.sort(rng.uniform(0.0, 6.0, (20, 1)), axis=0)
    Y = np.sin(2.0 * X) + 0.3 * rng.standard_normal(X.shape)
    Y[[3, 11]] += [[8.0], [-6.0]]
    dual = LCLGP((X, Y), gpflow.kernels.Matern52(), LogisticNoise())
    assert lagrangian().run(dual).converged
    sites = CVIGP((X, Y), gpflow.kernels.Matern52(), LogisticNoise())
    ConjugateComputation().run(sites, tolerance=1e-14)
    assert_allclose(dual.elbo(), sites.elbo(), atol=1e-5)


@pytest.mark.exhaustive
def test_singular_subproblems_are_solved():
    """At the start no site of small Laplace noise bends, so that the Hessian is 1/2 V * V, which is
    singular to round-off.
    """
    rng, kernel = np.random.default_rng(0), gpflow.kernels.SquaredExponential(10.0, 2.0)
    X = np.sort(rng.uniform(0.0, 3.0, (25, 1)), axis=0)
    Y = 2.0 * np.sin(3.0 * X) + 0.05 * rng.normal(size=X.shape)
    result = LinearlyConstrainedLagrangian().run(LCLGP((X, Y), kernel, Laplace(0.03)))
    best = ConjugateComputation().run(CVIGP((X, Y), kernel, Laplace(0.03)), tolerance=1e-10)
    assert result.converged
    assert_allclose(result.elbo, best.elbo, atol=1e-2)


@pytest.mark.exhaustive
def test_a_run_that_stalls_says_so(monkeypatch):
    """No step is found although the subproblem is not solved: the gap is in the warning."""
    monkeypatch.setattr(
        lcl_iterations, "newton_solve", lambda problem, sub, at, point, *_: (at, point, 0)
    )
    with pytest.warns(UserWarning, match=r"is not the best one: .* a duality gap of .* nats"):
        result = lagrangian(accelerate=False).run(model("Laplace", 12))
    assert not result.converged


def with_an_outlier() -> LCLGP:
    """Laplace noise in GPflow's float; alpha of row 7 is at the end of S."""
    X = np.linspace(0.0, 3.0, 30)[:, None]
    Y = np.sin(3.0 * X) + 40.0 * (np.arange(30) == 7)[:, None]
    data = tuple(array.astype(gpflow.default_float()) for array in (X, Y))
    return LCLGP(data, gpflow.kernels.Matern52(), Laplace(0.3))


@pytest.mark.exhaustive
def test_single_precision_has_jitters_and_margins_above_its_round_off():
    """K has a Cholesky factor, a run can go on from where another ended, and both bounds are those
    of double precision.
    """
    best = lagrangian(compile=True).run(with_an_outlier()).elbo
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        built = with_an_outlier()
        rule = LinearlyConstrainedLagrangian()
        first = rule.run(built)
        assert np.all(np.abs(built.basis.alpha.numpy()) < built.site_loss().upper.numpy())
        ends = [first.elbo, rule.run(built).elbo, CholeskyKL().run(with_an_outlier()).elbo]
    assert_allclose(ends, best, atol=1e-2)


def test_a_matrix_that_is_no_kernel_gets_advice_that_helps():
    bad = tf.constant([[[1.0, 2.0], [2.0, 1.0]]], tf.float64)
    with pytest.raises(NumericalError, match="Likely fixes: another formula of the kernel"):
        model("Poisson", 6).basis.geometry.triangular_root(bad)


declare_site_loss(StraightLines, lambda likelihood, Y: QuadratureLoss(likelihood, Y, -1.0, 1.0))


@pytest.mark.costly(keep=1)
@pytest.mark.filterwarnings(
    "ignore:The bound of .* is not accurate"
)  # the nodes know nothing of the kink
@pytest.mark.parametrize(
    "options", [{}, {"augmented": True}, {"inner": "lbfgs", "augmented": True}], ids=str
)
@pytest.mark.parametrize(
    "likelihood, message",
    [
        (BernoulliLogit("piecewise"), 'not convex: .* Use BernoulliLogit.expectation="exact".'),
        (StraightLines(), "second derivatives of this likelihood's site loss are zero"),
    ],
    ids=["pieces", "lines"],
)
def test_losses_without_a_dual_are_refused(likelihood, message, options):
    built = LCLGP((inputs(6), labels("logit", inputs(6))), matern(1.0, 1.0), likelihood)
    with pytest.raises(DataError, match=message):
        lagrangian(**options).run(built)
    assert not np.any(built.basis.alpha.numpy()) and not np.any(built.basis.lam.numpy())
    assert np.isfinite(OpperArchambeau(compile=False, max_evaluations=2).run(built).elbo)


@pytest.mark.exhaustive
@pytest.mark.parametrize("variance", [1.0, 400.0])
def test_convex_pieces_ascend_to_the_best_bound_within_their_gap(variance):
    X = inputs(30)
    data = X, labels("logit", X)
    built, other, exact = (
        LCLGP(data, matern(variance, 0.8), BernoulliLogit(kind))
        for kind in ("piecewise_convex", "piecewise_convex", "exact")
    )
    result = lagrangian().run(built)
    assert result.converged and np.all(np.diff(result.history["elbo"]) > -1e-10)
    assert_allclose(result.elbo, CholeskyKL(tolerance=1e-10).run(other).elbo, atol=1e-6)
    best = lagrangian().run(exact).elbo
    assert best - 30 * softplus_pieces(20, convex=True).gap < result.elbo < best


@pytest.mark.exhaustive
def test_unwhitened_factor_ends_where_the_whitened_one_does():
    """On few points; with more it takes thousands of evaluations."""
    built = model("Poisson", 5)
    whitened = CholeskyKL(tolerance=1e-10, compile=False).run(model("Poisson", 5))
    assert_allclose(
        CholeskyKL(False, tolerance=1e-10, compile=False).run(built).elbo, whitened.elbo, atol=1e-6
    )


@pytest.mark.exhaustive
def test_outliers_of_laplace_noise_do_not_stall_the_first_subproblem(rng):
    """Their lambda is next to zero, and a penalty in proportion to it would be no penalty."""
    X = np.sort(rng.uniform(0, 3, size=(60, 1)), axis=0)
    Y = 1.2 * np.sin(3 * X) + 0.5 * rng.laplace(size=X.shape)
    ends = []
    for optimizer in (lagrangian(compile=True, tolerance=1e-7), CholeskyKL(tolerance=1e-9)):
        built = LCLGP((X, Y), gpflow.kernels.SquaredExponential(2.0, 0.3), KINDS["Laplace"].make())
        ends.append(optimizer.run(built).elbo)
    assert_allclose(ends[0], ends[1], atol=1e-6)


@pytest.mark.exhaustive
def test_prepared_functions_follow_kernel_mean_and_likelihood():
    """Nothing is compiled twice, and the end is that of functions made anew; S has moved away from
    some multipliers.
    """
    X = inputs(20)
    Y = labels("Gaussian", X)
    models = [
        LCLGP((X, Y), matern(1.0, 1.0), Laplace(0.4), mean_function=gpflow.functions.Constant(0.0))
        for _ in range(2)
    ]
    rule = LinearlyConstrainedLagrangian(tolerance=1e-9)
    prepared = rule.prepare(models[0])
    rule.run(models[0], prepared=prepared)
    traces = prepared.problem.marginals.traces
    for one in models:
        one.kernel.variance.assign(2.5)
        one.likelihood.scale.assign(0.7)
        one.mean_function.c.assign(0.3)
    found = rule.run(models[0], prepared=prepared)
    assert found.elbo == pytest.approx(rule.run(models[1]).elbo, abs=1e-7)
    assert found.elbo == pytest.approx(float(models[0].elbo()), abs=1e-9)
    assert prepared.problem.marginals.traces == traces
    at = tf.constant(Y), tf.ones_like(Y)
    assert_allclose(prepared.problem.expand(*at).d_s, models[0].site_loss().expand(*at).d_s)
    with pytest.raises(DataError, match="made for another model"):
        rule.run(models[1], prepared=prepared)
