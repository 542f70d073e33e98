"""Counts, censored values and quantiles: densities, integrals, moments, refusals, models, names."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled import likelihoods as own
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import check_labels, site_loss
from gpflow_decoupled.likelihoods.registry import is_log_concave
from gpflow_decoupled.models import CVIGP, LCLGP, NNGP, ODVGP, AffineIndependentGP
from gpflow_decoupled.optimizers import LinearlyConstrainedLagrangian
from gpflow_decoupled.wrappers.sklearn import DecoupledGPRegressor
from tests.likelihoods.observed_cases import CASES, Case
from tests.likelihoods.test_likelihoods import CASES as OTHERS
from tests.reference import observed as ref

F = np.array([[0.4], [-1.0], [0.0], [2.7], [-3.0], [2.2]])
DEVIATION = np.array([[0.3], [0.9], [1.2], [0.5], [2.0], [0.05]])
NO_X = np.zeros((6, 1))
EAGER = {"compile": False, "progress": False}
each = pytest.mark.parametrize("name", CASES)
PLAIN = {
    name: Case("", make, np.vstack([Y, Y[:1]]), loss, ((), ()))
    for name, (make, Y, loss, _) in OTHERS.items()
}
EVERY = {**CASES, **PLAIN}
every = pytest.mark.parametrize("name", EVERY)


def _densities(name):
    return [CASES[name].density(*row) for row in CASES[name].Y]


@each
def test_log_density_at_f(name):
    case = CASES[name]
    expected = [float(density(f)) for density, f in zip(_densities(name), F[:, 0])]
    assert_allclose(case.make().log_prob(NO_X, F, case.Y), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.exhaustive
@each
def test_integrals_of_the_log_density(name):
    """E log p, and log E p, at usual deviations and at wide ones."""
    case = CASES[name]
    for factor in (1.0, 4.0):
        arguments = NO_X, F, (factor * DEVIATION) ** 2, case.Y
        rows = list(zip(_densities(name), F[:, 0], factor * DEVIATION[:, 0]))
        expected = [ref.log_predictive(*row) for row in rows]
        found = case.make().predict_log_density(*arguments)
        assert_allclose(found, expected, rtol=0.0, atol=1e-8 if factor == 1.0 else 1e-6)
        # of e^f at a deviation of 8 no digit of the integral is left
        kept = [n for n in range(6) if factor * DEVIATION[n, 0] < 5.0]
        expected = [ref.expectation(*rows[n]) for n in kept]
        found = case.make().variational_expectations(*arguments)
        assert_allclose(np.asarray(found)[kept], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.exhaustive
@each
def test_moments_are_sums_over_y(name):
    case, likelihood = CASES[name], CASES[name].make()
    y, weights = case.values
    densities = [case.density(v, *case.neutral) for v in ((y,) if case.of_arrays else y)]
    p = np.exp([np.squeeze([density(f) for density in densities]) for f in F[:3, 0]])
    assert_allclose(p @ weights, 1.0, rtol=1e-5)
    mean = p @ (weights * y)
    variance = p @ (weights * y**2) - mean**2
    assert_allclose(likelihood.conditional_mean(NO_X[:3], F[:3])[:, 0], mean, rtol=1e-5, atol=1e-9)
    assert_allclose(likelihood.conditional_variance(NO_X[:3], F[:3])[:, 0], variance, rtol=1e-5)


@pytest.mark.costly(keep=4)
@each
def test_predicted_moments_are_integrals_over_f(name):
    likelihood, z = CASES[name].make(), np.linspace(-12.0, 12.0, 20_001)
    weights = np.exp(-0.5 * z**2) / np.sum(np.exp(-0.5 * z**2))
    f = F + DEVIATION * z
    wide = np.zeros((6, 1))
    mean, variance = (
        np.asarray(of(wide, f))
        for of in (likelihood.conditional_mean, likelihood.conditional_variance)
    )
    expected = np.sum(weights * mean, axis=1)
    spread = np.sum(weights * (variance + (mean - expected[:, None]) ** 2), axis=1)
    found = likelihood.predict_mean_and_var(NO_X, F, DEVIATION**2)
    assert_allclose(found[0][:, 0], expected, rtol=1e-7, atol=1e-12)
    assert_allclose(found[1][:, 0], spread, rtol=1e-6)


@pytest.mark.exhaustive
@every
def test_outputs_are_summed_and_arguments_broadcast(name):
    case, likelihood = EVERY[name], EVERY[name].make()
    y, numbers = case.Y[:, :1], case.Y[:, 1:]
    other = np.minimum(y, 1.0)
    wide = np.hstack([F, 0.5 * F]), np.hstack([DEVIATION, 2.0 * DEVIATION])
    for method in (likelihood.variational_expectations, likelihood.predict_log_density):
        both = method(NO_X, *wide, np.hstack([y, other, numbers]))
        parts = [
            method(NO_X, *(part[:, [p]] for part in wide), np.hstack([column, numbers]))
            for p, column in enumerate((y, other))
        ]
        assert_allclose(both, parts[0] + parts[1], rtol=1e-11)
        batch = method(NO_X, np.stack([F, F + 1.0]), DEVIATION[None], np.stack([case.Y, case.Y]))
        assert_allclose(batch[1], method(NO_X, F + 1.0, DEVIATION, case.Y), rtol=1e-11)
    assert likelihood.predict_mean_and_var(NO_X, *wide)[1].shape == (6, 2)


@every
def test_far_out_nothing_is_nan(name):
    """Also in slopes of f and of the likelihood's Parameters."""
    case, likelihood = EVERY[name], EVERY[name].make()
    pairs = [(size, spread) for size in (30.0, 1e3, 1e150) for spread in (0.0, 1e-8, 1.0, 50.0)]
    mean = tf.constant(np.vstack([size * np.sign(F + 0.1) for size, _ in pairs]))
    variance = tf.constant(np.vstack([0.0 * F + spread**2 for _, spread in pairs]))
    X, Y = np.zeros((len(mean), 1)), np.tile(case.Y, (len(pairs), 1))
    with tf.GradientTape() as tape:
        tape.watch([mean, variance])
        bound = likelihood.variational_expectations(X, mean, variance, Y)
    results = [bound, likelihood.predict_log_density(X, mean, variance, Y)]
    slopes = tape.gradient(bound, [mean, variance, *likelihood.trainable_variables])
    results += [part for part in slopes if part is not None]
    results += likelihood.predict_mean_and_var(X, mean, variance)
    for part in results:
        assert not np.any(np.isnan(part)), np.argwhere(np.isnan(part))


@pytest.mark.exhaustive
@every
def test_single_precision(name):
    case, arguments = EVERY[name], (F, DEVIATION**2, EVERY[name].Y)

    def found(X, *rest):
        likelihood = case.make()
        return [
            likelihood.variational_expectations(X, *rest),
            likelihood.predict_log_density(X, *rest),
            *likelihood.predict_mean_and_var(X, *rest[:2]),
        ]

    expected = found(NO_X, *arguments)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        single = found(*(part.astype(np.float32) for part in (NO_X, *arguments)))
    for one, other in zip(single, expected):
        assert one.dtype == tf.float32
        assert_allclose(one, other, rtol=1e-3, atol=1e-3)


@each
def test_bad_observations_are_refused(name):
    case = CASES[name]
    check_labels(case.make(), case.Y)
    for row, words in case.bad:
        with pytest.raises(DataError) as raised:
            check_labels(case.make(), np.array([row]))
        assert words in str(raised.value), str(raised.value)
    assert is_log_concave(case.make()) == case.concave


@pytest.mark.exhaustive
@each
def test_site_loss_is_minus_the_expectation(name):
    case = CASES[name]
    loss = site_loss(case.make(), case.Y)
    h, sigma = tf.constant(F), tf.constant(DEVIATION)
    at = loss.expand(h, sigma)
    expected = case.make().variational_expectations(NO_X, F, DEVIATION**2, case.Y)
    assert_allclose(-at.value[:, 0], expected, rtol=1e-8)
    assert_allclose(loss.value(h, sigma), at.value, rtol=1e-12)
    step = 1e-4
    for field, second, (dh, ds) in (("d_h", "d_hh", (step, 0.0)), ("d_s", "d_ss", (0.0, step))):
        up, down = loss.expand(h + dh, sigma + ds), loss.expand(h - dh, sigma - ds)
        assert_allclose(
            getattr(at, field), (up.value - down.value) / (2 * step), rtol=1e-5, atol=1e-6
        )
        slopes = (getattr(up, field) - getattr(down, field)) / (2 * step)
        assert_allclose(getattr(at, second), slopes, rtol=1e-5, atol=1e-5)
    assert np.all((loss.lower <= at.d_h) & (at.d_h <= loss.upper))
    found = loss.expand(loss.start(at.d_h), 1e-3 * tf.ones_like(h))
    assert np.all(np.isfinite(found.d_h))


@pytest.mark.costly(keep=3)
@each
def test_range_of_slopes_and_curvature(name):
    """Against differences of the log density: S is no smaller, and c is the least but for 0.2 %."""
    case = CASES[name]
    loss, f = site_loss(case.make(), case.Y), np.linspace(-20.0, 20.0, 8001)
    for n, density in enumerate(_densities(name)):
        with np.errstate(all="ignore"):
            slope = np.diff(-density(f)) / (f[1] - f[0])
        slope = slope[np.isfinite(slope)]
        lower, upper, c = (
            float(np.asarray(x)[n, 0]) for x in (loss.lower, loss.upper, loss.curvature)
        )
        assert np.all((lower - 1e-8 <= slope) & (slope <= upper + 1e-8))
        if np.isfinite([lower, upper]).all() and not case.concave:
            assert_allclose([slope.min(), slope.max()], [lower, upper], rtol=2e-3, atol=2e-3)
        if not case.concave:
            bend = np.diff(slope) / (f[1] - f[0])
            assert_allclose(c, max(0.0, -bend.min()), rtol=2e-3, atol=1e-6)
        else:
            assert c == 0.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("make", [own.HurdlePoisson, own.HurdleNegativeBinomial])
def test_zeros_of_a_hurdle_are_left_out(make):
    """They add log w to the bound, and nothing to q."""
    X, Y = np.linspace(-2.0, 2.0, 9)[:, None], np.array([0.0, 2, 1, 0, 0, 4, 1, 0, 7])[:, None]
    kernel, method = gpflow.kernels.Matern32(), LinearlyConstrainedLagrangian(compile=False)
    some, models = Y[:, 0] > 0.0, []
    for rows in (some, some | True):
        models.append(LCLGP((X[rows], Y[rows]), kernel, make(0.3)))
        assert method.run(models[-1]).converged
    few, full = models
    assert_allclose(full.elbo() - few.elbo(), np.sum(~some) * np.log(0.3), atol=1e-5)
    for one, other in zip(full.predict_f(X), few.predict_f(X)):
        assert_allclose(one, other, atol=1e-3)
    assert_allclose(full.basis.alpha.numpy()[~some], 0.0, atol=0.0)


def _problem(name, rows=24):
    case = CASES[name]
    X = np.linspace(-2.0, 2.0, rows)[:, None]
    return X, np.tile(case.Y[[0, 1, 2, 5]], (rows // 4, 1))


@pytest.mark.exhaustive
@each
def test_models_agree_on_the_bound(name):
    """The best Gaussian q is one, whichever model finds it, and its bound is below the evidence."""
    X, Y = _problem(name)
    kernel, case = gpflow.kernels.Matern32(), CASES[name]
    full = CVIGP((X, Y), kernel, case.make())
    gpflow.set_trainable(full.kernel, False)
    gpflow.set_trainable(full.likelihood, False)
    best = gd.fit(full, steps=60, **EAGER).elbo
    near = NNGP((X, Y), kernel, case.make(), num_neighbours=23)
    gpflow.set_trainable(near.kernel, False)
    gpflow.set_trainable(near.likelihood, False)
    gd.fit(near, steps=20, **EAGER)
    assert_allclose(near.predict_f(X)[0], full.predict_f(X)[0], atol=2e-2)
    dual = LCLGP((X, Y), kernel, case.make())
    gpflow.set_trainable(dual.kernel, False)
    gpflow.set_trainable(dual.likelihood, False)
    gd.fit(dual, **EAGER)
    assert_allclose(dual.elbo(), best, rtol=1e-5)
    affine = AffineIndependentGP((X, Y), kernel, case.make())
    assert np.isfinite(float(affine.elbo())) and float(affine.elbo()) < best + 1e-3


@pytest.mark.exhaustive
@each
def test_built_by_name(name):
    """Parameters are learned, and predictions are of the outputs alone."""
    case, (X, Y) = CASES[name], _problem(name, 8)
    numbers = {case.make().number: Y[:, 1]} if case.neutral else {}
    model = gd.build(X, Y[:, 0], case.name, verbose=False, **numbers)
    assert type(model.model.likelihood) is type(case.make())
    before = [value.numpy() for value in model.model.likelihood.trainable_variables]
    gd.fit(model, steps=2, **EAGER)
    after = [value.numpy() for value in model.model.likelihood.trainable_variables]
    assert all(np.any(a != b) for a, b in zip(before, after))
    mean, variance = model.predict_y(X)
    assert mean.shape == variance.shape == (8, 1) and np.all(variance > 0.0)
    known = model.predict_log_density((X, Y)).numpy()
    alike = model.predict_log_density((X, np.hstack([np.minimum(Y[:, :1], 1.0)]))).numpy()
    assert np.all(np.isfinite(known)) and np.all(np.isfinite(alike))


@pytest.mark.costly(keep=1)
@each
def test_rows_with_weights_and_gaps(name):
    """They are factors of mean 1 of the log densities, also beside the likelihood's own number."""
    case, (X, Y) = CASES[name], _problem(name, 8)
    numbers = {case.make().number: Y[:, 1]} if case.neutral else {}
    weight = np.tile([1.0, 3.0], 4)
    model = gd.build(X, Y[:, 0], case.name, sample_weight=weight, verbose=False, **numbers)
    q = np.zeros((8, 1)), np.ones((8, 1))
    weighed = model.model.likelihood.variational_expectations(X, *q, model.model.data[1])
    rows = np.delete(model.model.data[1], 1, axis=1)  # without the weights
    plain = model.model.likelihood.likelihood.variational_expectations(X, *q, rows)
    assert_allclose(weighed, 0.5 * weight * plain)


@pytest.mark.exhaustive
@each
def test_estimator_and_points(name):
    case, (X, Y) = CASES[name], _problem(name)
    numbers = {case.make().number: Y[:, 1]} if case.neutral else {}
    estimator = DecoupledGPRegressor(
        likelihood=case.name, num_inducing=6, num_mean_points=4, steps=3
    )
    mean, std = estimator.fit(X, Y[:, 0], **numbers).predict(X, return_std=True)
    assert isinstance(estimator.model_, ODVGP) and mean.shape == std.shape == (24,)
    assert np.all(np.isfinite(mean)) and np.all(std > 0.0)


@pytest.mark.exhaustive
def test_a_limit_has_a_probability_whatever_the_units():
    """Y in other units changes the density of what was seen, and nothing of a limit."""
    X, Y = _problem("censored normal", 8)
    codes = Y[:, 1]
    scores = []
    for unit in (1.0, 1000.0):
        model = gd.build(X, unit * Y[:, 0], "tobit", censored=codes, verbose=False)
        score = model.predict_log_density((X, np.column_stack([unit * Y[:, 0], codes])))
        scores.append(np.asarray(score) + np.where(codes == 0.0, np.log(unit), 0.0))
        bound = float(model.elbo()) + np.sum(codes == 0.0) * np.log(unit)
        scores[-1] = np.append(scores[-1], bound)
    assert_allclose(scores[0], scores[1], rtol=1e-9)
    with pytest.raises(DataError, match="has a number of censored for each row"):
        gd.likelihoods.RowLikelihood(CASES["censored normal"].make(), ["weight"])


@pytest.mark.exhaustive
def test_scores_of_held_out_rows_are_of_shares():
    """The error of successes is that of their share of the trials."""
    X, Y = _problem("binomial", 8)
    model = CVIGP((X, Y), gpflow.kernels.Matern32(), CASES["binomial"].make())
    gpflow.set_trainable(model.kernel, False)
    result = gd.fit(model, steps=1, evaluation=(X, Y), **EAGER)
    errors = model.predict_y(X)[0].numpy() - Y[:, :1] / Y[:, 1:]
    assert result.history["rmse"][-1] == pytest.approx(np.sqrt(np.mean(errors**2)))


@pytest.mark.parametrize("power", [1.02, 1.5, 1.97])
def test_normaliser_of_amounts(power):
    """Where one term of its series counts, and where thousands do."""
    for dispersion in (1e-2, 50.0):
        y = np.array([[1e-6], [0.1], [30.0], [1000.0]])
        y = y[y ** (2.0 - power) < 1e5 * dispersion][:, None]
        found = own.Tweedie(dispersion, power).log_prob(np.zeros_like(y), np.log(y), y)
        expected = [
            float(ref.tweedie(value, dispersion, power)(np.log(value))) for value in y[:, 0]
        ]
        assert_allclose(found, expected, atol=1e-8, rtol=1e-9)
    with pytest.raises(DataError, match="power=2.5 must be a number between 1.01 and 1.99"):
        own.Tweedie(power=2.5)
    with pytest.raises(DataError, match="quantile=1.0 must be a number above 0 and below 1"):
        own.AsymmetricLaplace(1.0)
    with pytest.raises(DataError, match="zero_share=0.0 must be a number above 0 and below 1"):
        own.HurdlePoisson(0.0)
