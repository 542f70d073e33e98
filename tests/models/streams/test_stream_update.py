"""A stream ends where all data together end; what it says is the reference's; what it cannot do it
refuses.
"""

from __future__ import annotations

import copy

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose, assert_array_equal

import gpflow_decoupled as gd
from gpflow_decoupled.bases import CoupledBasis, DecoupledBasis, MeanOnDataBasis
from gpflow_decoupled.errors import DataError, ModelError, NumericalError
from gpflow_decoupled.inducing import LinearWeights, Weights
from gpflow_decoupled.models import BasisGP, MonteCarlo, SparseCVIGP
from gpflow_decoupled.models import streams as site_climb
from gpflow_decoupled.optimizers import NaturalGradient, collapsed_elbo, optimal_parameters, sweep
from tests.bounds.registry import matern, numpy_kernel, variational
from tests.models.streams.problems import (
    BASES,
    BATCHES,
    X,
    model_of,
    moments_of,
    observations,
    stream_into,
)
from tests.optimizers.problems import BETA, GAMMA, JITTER, NOISE, TREND
from tests.reference import streams as st


@pytest.fixture(autouse=True)
def _jitter():
    gpflow.config.set_default_jitter(JITTER)


def _grams(model, points, rows):
    """K_b with jitter, K_bx, diag K of the data, y less the mean, noise: of one latent."""
    kernel, x = numpy_kernel(model.kernel, 0), X[rows]
    y = (observations()[rows] - model.mean_function(x).numpy())[:, 0]
    return (
        kernel(points, points) + JITTER * np.eye(len(points)),
        kernel(points, x),
        np.diag(kernel(x, x)),
        y,
        NOISE,
    )


def _raw(model):
    """The factor of the memory of one latent, in the values of f(beta)."""
    chol = np.linalg.inv(model.memory.chol[0].numpy())
    theta, Lambda = model.memory.theta.numpy()[:, 0], model.memory.precision[0].numpy()
    return chol.T @ theta, chol.T @ Lambda @ chol, float(model.memory.constant)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["one", "two", "separate"])
@pytest.mark.parametrize("basis", BASES)
def test_gaussian_batches_end_where_all_data_together_end(basis, kind):
    streamed, whole = (model_of(basis, kind=kind) for _ in range(2))
    Y = observations(streamed.num_latent_gps)
    record, once = stream_into(streamed, Y), whole.update((X, Y))
    assert record.converged and record.shortened == 0 and abs(record.forgotten) < 1e-9
    assert_allclose(moments_of(streamed), moments_of(whole), rtol=1e-9, atol=1e-10)
    assert_allclose(record.bound, once.bound, rtol=1e-10)
    best = float(collapsed_elbo(model_of(basis, kind=kind), (X, Y)))
    if basis in ("coupled", "coupled-unwhitened", "solve"):
        assert_allclose(record.bound, best, rtol=1e-9)
    else:  # the closed form adds jitter to the system of the coefficients, and so ends a little lower  # noqa: E501
        assert best - 1e-9 < record.bound < best + 2e-3
    if basis != "orthogonal-rows":
        assert_allclose(float(streamed.elbo((X, Y))), record.bound, rtol=1e-10)
        variables = [parameter.unconstrained_variable for parameter in variational(streamed.basis)]
        with tf.GradientTape() as tape:
            bound = streamed.elbo((X, Y))
        assert max(np.abs(slope).max() for slope in tape.gradient(bound, variables)) < 1e-6


@pytest.mark.exhaustive
def test_factor_of_a_stream_is_the_reference():
    factor, trend = st.nothing(len(BETA)), copy.deepcopy(TREND)
    model = SparseCVIGP(matern(1.3, 0.8), gl.Gaussian(NOISE), BETA, mean_function=trend)
    for rows in BATCHES:
        record = model.update((X[rows], observations()[rows]))
        grams = _grams(model, BETA, rows)
        factor = st.absorbed(*grams, factor)
        for mine, theirs in zip(_raw(model), factor):
            assert_allclose(mine, theirs, rtol=1e-8, atol=1e-8)
        m, S = st.best(grams[0], factor)
        assert_allclose(record.bound, st.bound(grams[0], m, S, factor), rtol=1e-10)
        state = model.basis.factor(model.kernel)
        assert_allclose((state.chol[0] @ state.mean)[:, 0], m, rtol=1e-8)
        assert_allclose(model.sites()[1][0], factor.Lambda, rtol=1e-6, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("moves", [1.0, 1.4], ids=["kernel-stays", "kernel-moves"])
@pytest.mark.parametrize("grown", [True, False], ids=["points-grow", "points-move"])
def test_points_and_kernel_that_move_are_the_reference(grown, moves):
    model, Y = model_of(), observations()
    first, last = slice(0, 10), slice(10, 24)
    model.update((X[first], Y[first]))
    factor = st.absorbed(*_grams(model, BETA, first), st.nothing(len(BETA)))
    model.kernel.variance.assign(moves * model.kernel.variance)
    model.kernel.lengthscales.assign(moves * model.kernel.lengthscales)
    new = np.concatenate([BETA, GAMMA]) if grown else np.concatenate([BETA[:2], GAMMA + 0.1])
    record = model.update((X[last], Y[last]), beta=new)
    kernel = numpy_kernel(model.kernel, 0)
    equal = np.all(BETA[:, None] == new[None], axis=-1)
    K_a, K_ab = kernel(BETA, BETA) + JITTER * np.eye(len(BETA)), kernel(BETA, new) + JITTER * equal
    grams = _grams(model, new, last)
    held = st.projected(K_a, K_ab, grams[0], factor)
    assert_allclose(record.forgotten, factor.c - held.c, atol=1e-8)
    assert (abs(record.forgotten) < 1e-8) == grown
    total = st.absorbed(*grams, held)
    assert_allclose(record.bound, st.bound(grams[0], *st.best(grams[0], total), total), rtol=1e-9)
    joint = np.concatenate([BETA, X[last]])
    K = kernel(joint, joint)
    K[:4, :4] += JITTER * np.eye(4)
    assert record.bound < st.evidence(K, 4, grams[3], NOISE, factor)
    assert model.sizes == {"beta": len(new)} and model.basis.beta is not None


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name, remembers",
    [("coupled", False), ("coupled", True), ("orthogonal", True), ("solve", True)],
)
def test_what_q_was_trained_on_before_is_told_from_q_or_remembered(name, remembers):
    Y, (first, last) = observations(), (slice(0, 10), slice(10, 24))
    model, trained = model_of(name), model_of(name)
    once = model.update((X, Y))
    optimal_parameters(trained, (X[first], Y[first])).assign(trained)
    if remembers:
        before = moments_of(trained)
        trained.remember((X[first], Y[first]))
        assert_array_equal(before, moments_of(trained))
    record = trained.update((X[last], Y[last]))
    assert_allclose(
        moments_of(trained),
        moments_of(model),
        rtol=1e-3 if name == "orthogonal" else 1e-8,
        atol=1e-6,
    )
    if remembers:
        assert_allclose(record.bound, once.bound, rtol=1e-6)


@pytest.mark.exhaustive
def test_batches_without_rows_and_batches_twice():
    Y, model, twice, once = observations(), model_of("orthogonal"), model_of(), model_of()
    nothing = model.update((X[:0], Y[:0]))
    assert_allclose(nothing.bound, 0.0, atol=1e-9)
    model.update((X, Y))
    before, bound = moments_of(model), stream_into(model, Y, [slice(0, 0)]).bound
    assert_allclose(moments_of(model), before, rtol=1e-10)
    assert_allclose(bound, float(model.elbo((X, Y))), rtol=1e-9)
    stream_into(twice, Y, [slice(0, 9), slice(0, 9)])
    once.update((np.tile(X[:9], (2, 1)), np.tile(Y[:9], (2, 1))))
    assert_allclose(moments_of(twice), moments_of(once), rtol=1e-9)


@pytest.mark.exhaustive
def test_a_power_below_one_forgets():
    Y, model = observations(), model_of()
    model.update((X[:9], Y[:9]))
    model.update((X[9:], Y[9:]), keep=0.25)
    first, second = (_grams(model, BETA, rows) for rows in (slice(0, 9), slice(9, 24)))
    old = st.Factor(*(0.25 * part for part in st.absorbed(*first, st.nothing(4))))
    for mine, theirs in zip(_raw(model), st.absorbed(*second, old)):
        assert_allclose(mine, theirs, rtol=1e-8, atol=1e-8)


LIKELIHOODS = {
    "poisson": gl.Poisson,
    "bernoulli": gl.Bernoulli,
    "student-t": lambda: gl.StudentT(scale=0.4, df=3.0),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("basis", ["coupled", "orthogonal", "solve"])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_other_likelihoods_stay_within_a_nat_of_all_data_together(name, basis):
    """One batch is the optimum of the bound; a stream of three loses what its old sites are not
    those of the last q.
    """
    Y, streamed, whole = (
        observations(kind=name),
        model_of(basis, LIKELIHOODS[name]()),
        model_of(basis, LIKELIHOODS[name]()),
    )
    record = whole.update((X, Y), tolerance=1e-10)
    assert record.converged
    best = float(whole.elbo((X, Y)))
    assert_allclose(record.bound, best, rtol=1e-9)
    whole.memory = None
    if basis != "solve":
        assert sweep(whole, (X, Y), passes=3).elbo - best < 1e-6
    stream_into(streamed, Y)
    reached = float(streamed.elbo((X, Y)))
    assert best - 1.0 < reached < best + 1e-6, best - reached


@pytest.mark.exhaustive
def test_weights_of_a_linear_model_and_mixed_latents():
    Y = observations()
    streamed, whole = (
        BasisGP(LinearWeights(np.eye(2)), gl.Gaussian(NOISE), CoupledBasis(Weights(2)))
        for _ in range(2)
    )
    stream_into(streamed, Y)
    whole.update((X, Y))
    assert_allclose(moments_of(streamed), moments_of(whole), rtol=1e-9)
    mixed = gpflow.kernels.LinearCoregionalization(
        [gpflow.kernels.Matern32(), gpflow.kernels.Matern12()], np.eye(3, 2) + 0.2
    )
    points = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(BETA)
    )
    model = BasisGP(mixed, gl.Gaussian(NOISE), CoupledBasis(points, 2), num_data=24)
    Y = observations(3)
    assert stream_into(model, Y).converged
    once = BasisGP(mixed, gl.Gaussian(NOISE), CoupledBasis(points, 2), num_data=24)
    assert_allclose(float(model.elbo((X, Y))), once.update((X, Y)).bound, atol=0.5)


@pytest.mark.exhaustive
def test_refusals_change_nothing():
    Y, model = observations(), model_of()
    model.update((X[:9], Y[:9]))
    before, memory = moments_of(model), model.memory
    bad = Y.copy()
    bad[3] = np.nan
    for data, options in [
        ((X, bad), {}),
        ((X, Y[:, 0]), {}),
        ((X[:, :1], Y), {}),
        ((X, Y), {"learn": -1}),
        ((X, Y), {"keep": 0.0}),
        ((X, Y), {"steps": 0}),
        ((X, Y), {"tolerance": 0.0}),
        ((X, Y), {"gamma": GAMMA}),
        ((X, Y), {"beta": BETA[:, :1]}),
        ((X, Y), {"beta": np.repeat(BETA, 2, axis=0)}),
    ]:
        with pytest.raises(DataError):
            model.update(data, **options)
    gpflow.utilities.set_trainable(model, False)
    with pytest.raises(DataError, match="learn"):
        model.update((X, Y), learn=1)
    with pytest.raises(NumericalError):
        model.update((X, 1e200 * Y))
    assert_array_equal(before, moments_of(model))
    assert model.memory is memory


@pytest.mark.exhaustive
def test_what_cannot_stream_says_why():
    Y, data = observations(), (X, observations())
    with pytest.raises(ModelError, match="DecoupledBasis cannot take in a stream"):
        model_of(DecoupledBasis(GAMMA, BETA)).update(data)
    with pytest.raises(ModelError, match="A mean on all data .* cannot take in a stream"):
        model_of(MeanOnDataBasis(BETA)).update(data)
    with pytest.raises(ModelError, match="draws"):
        model_of(likelihood=gl.Poisson(), expectations=MonteCarlo(4)).update(
            (X, np.abs(np.round(Y)))
        )
    trained = model_of("orthogonal")
    NaturalGradient().minimize(trained, data)
    with pytest.raises(ModelError, match="remember"):
        trained.update(data)
    model = model_of()
    model.update((X[:9], Y[:9]))
    for train in (
        lambda: gd.fit(model, data, steps=1),
        lambda: sweep(model, data),
        lambda: NaturalGradient().minimize(model, data),
        lambda: optimal_parameters(model, data),
    ):
        with pytest.raises(ModelError, match="forget"):
            train()
    model.memory = None
    NaturalGradient().minimize(model, data)
    weights = BasisGP(LinearWeights(np.eye(2)), gl.Gaussian(NOISE), CoupledBasis(Weights(2)))
    weights.update(data)
    with pytest.raises(ModelError, match="kernel that moves"):
        weights.update(data, learn=1)
    assert tf.reduce_all(tf.math.is_finite(weights.basis.q_mu))


def test_a_shortened_step_must_gain_less_to_be_the_last(monkeypatch):
    """Of a quadratic whose target overshoots, so that half a step leaves 0.95 of the distance."""

    def point(model, frame, batch, old, sites):
        target = site_climb.Sites(-2.9 * sites.nu, sites.tau)
        return site_climb._Point(-(float(sites.nu[0, 0]) ** 2), None, sites, target, True)

    monkeypatch.setattr(site_climb, "_point", point)
    one, tolerance = tf.ones([1, 1], tf.float64), 0.01
    batch, old = site_climb.Batch(one, one, one), site_climb.Quadratic(one, one, one)
    end = site_climb.climb(None, None, batch, old, site_climb.Sites(one, one), 200, tolerance)
    assert end.converged and end.shortened > 0
    last_gain = -end.bound * (0.95**-2 - 1.0)
    assert last_gain <= 0.5 * tolerance
