"""The package's likelihoods as GPflow uses them: densities, moments, predictions, training,
summaries.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import expit

from gpflow_decoupled import likelihoods as own
from gpflow_decoupled.errors import DataError, UnknownOptionError
from gpflow_decoupled.models import CVIGP, LCLGP, NNGP, ODVGP, AffineIndependentGP, StateSpaceGP
from gpflow_decoupled.optimizers import ConjugateComputation
from gpflow_decoupled.training import fit
from tests.reference import lcl_sites as ref

EDGES = [-1.0, 0.2, 1.5]
GRADES = np.array([[1.0], [0.0], [3.0], [3.0], [2.0]])
BINARY = np.array([[0.0], [1.0], [1.0], [0.0], [1.0]])
COUNTS = np.array([[0.0], [1.0], [3.0], [7.0], [2.0]])
REAL = np.array([[-1.2], [0.1], [0.7], [3.0], [-0.4]])
F = np.array([[0.4], [-1.0], [0.0], [1.7], [-3.0]])
VARIANCE = np.array([[0.3], [0.9], [1.2], [0.5], [2.0]])
NO_X = np.zeros((5, 1))


def _grade_moments(f):
    grades = np.arange(4.0)
    p = np.exp([-ref.ordinal(grade, EDGES, 1.6)(f) for grade in grades])
    mean = np.tensordot(grades, p, 1)
    return mean, np.tensordot(grades**2, p, 1) - mean**2


CASES = {
    # the likelihood, Y, the loss of a label, the conditional mean and variance at f
    "Laplace": (
        lambda: own.Laplace(0.7),
        REAL,
        lambda y: ref.laplace(y, 0.7),
        lambda f: (f, 0.98 + 0.0 * f),
    ),
    "logit": (
        own.BernoulliLogit,
        BINARY,
        ref.bernoulli_logit,
        lambda f: (expit(f), expit(f) * expit(-f)),
    ),
    "logit, piecewise": (
        lambda: own.BernoulliLogit("piecewise"),
        BINARY,
        ref.bernoulli_logit,
        lambda f: (expit(f), expit(f) * expit(-f)),
    ),
    "logit, convex": (
        lambda: own.BernoulliLogit("piecewise_convex"),
        BINARY,
        ref.bernoulli_logit,
        lambda f: (expit(f), expit(f) * expit(-f)),
    ),
    "probit": (
        own.BernoulliProbit,
        BINARY,
        ref.bernoulli_probit,
        lambda f: (stats.norm.cdf(f), stats.norm.cdf(f) * stats.norm.cdf(-f)),
    ),
    "ordinal": (
        lambda: own.Ordinal(EDGES, 1.6),
        GRADES,
        lambda y: ref.ordinal(y, EDGES, 1.6),
        lambda f: _grade_moments(f),
    ),
    "negative binomial": (
        lambda: own.NegativeBinomial(2.5),
        COUNTS,
        lambda y: ref.negative_binomial(y, 2.5),
        lambda f: (np.exp(f), np.exp(f) + np.exp(2.0 * f) / 2.5),
    ),
}
each = pytest.mark.parametrize("name", CASES)
GAPS = {"logit, piecewise": 1.4215e-4, "logit, convex": 3.0407e-4}


@pytest.mark.costly(keep=4)
@each
def test_density_and_conditional_moments(name):
    make, Y, loss, moments = CASES[name]
    likelihood = make()
    expected = [-float(loss(y)(f)) for y, f in zip(Y[:, 0], F[:, 0])]
    assert_allclose(likelihood.log_prob(NO_X, F, Y), expected, rtol=1e-12)
    mean, variance = moments(F)
    assert_allclose(likelihood.conditional_mean(NO_X, F), mean, rtol=1e-12)
    assert_allclose(likelihood.conditional_variance(NO_X, F), variance, rtol=1e-12)


@pytest.mark.exhaustive
@each
def test_expectations_and_predictions(name):
    make, Y, loss, moments = CASES[name]
    likelihood = make()
    sigma = np.sqrt(VARIANCE)
    expected = [
        -ref.integral(loss(y), h, s, (y,)) for y, h, s in zip(Y[:, 0], F[:, 0], sigma[:, 0])
    ]
    found = likelihood.variational_expectations(NO_X, F, VARIANCE, Y)
    if name in GAPS:
        assert np.all(found <= expected) and np.all(found > np.array(expected) - GAPS[name])
    else:
        assert_allclose(found, expected, rtol=1e-9)
    expected = [ref.log_predictive(loss(y), h, s) for y, h, s in zip(Y[:, 0], F[:, 0], sigma[:, 0])]
    assert_allclose(likelihood.predict_log_density(NO_X, F, VARIANCE, Y), expected, atol=2e-7)
    z = np.linspace(-12.0, 12.0, 20_001)
    weights = stats.norm.pdf(z) * 24.0 / 20_000
    mean, variance = moments(F + sigma * z)
    total = np.sum(weights * mean, axis=1)
    second = np.sum(weights * (variance + mean**2), axis=1)
    found = likelihood.predict_mean_and_var(NO_X, F, VARIANCE)
    assert_allclose(found[0][:, 0], total, rtol=1e-9, atol=1e-14)
    assert_allclose(found[1][:, 0], second - total**2, rtol=1e-8)


def test_predictions_of_the_logit_at_large_variances():
    """Where GPflow's own are off: the probability of 1 at a mean of 5 and a deviation of 50, and
    the far tail.
    """
    mean, variance = np.array([[5.0], [-500.0], [-40.0]]), np.array([[2500.0], [2500.0], [1.0]])
    ours, theirs = own.BernoulliLogit(), gl.Bernoulli(invlink=tf.sigmoid)
    exact = [
        ref.log_predictive(ref.bernoulli_logit(1.0), h, s)
        for h, s in zip(mean[:, 0], np.sqrt(variance[:, 0]))
    ]
    ones = np.ones((3, 1))
    assert_allclose(ours.predict_log_density(NO_X[:3], mean, variance, ones), exact, rtol=1e-8)
    found, theirs_found = (
        lik.predict_mean_and_var(NO_X[:3], mean, variance)[0] for lik in (ours, theirs)
    )
    assert_allclose(found[:, 0], np.exp(exact), rtol=1e-8, atol=1e-15)
    assert abs(theirs_found[0, 0] - np.exp(exact[0])) > 1e-3
    value = ours.variational_expectations(NO_X[:3], mean, variance, ones)
    integrals = [
        -ref.integral(ref.bernoulli_logit(1.0), h, s)
        for h, s in zip(mean[:, 0], np.sqrt(variance[:, 0]))
    ]
    assert_allclose(value, integrals, rtol=1e-11)


def test_options_of_the_logit():
    with pytest.raises(
        UnknownOptionError,
        match="='best' is not known; use one of 'exact', 'piecewise', 'piecewise_",
    ):
        own.BernoulliLogit("best")


@pytest.mark.parametrize("edges", [[1.0, 0.0], [0.0, 0.0], [], [[0.0]], [0.0, np.inf], 1.0])
def test_edges_of_grades_increase(edges):
    with pytest.raises(DataError, match="bin_edges=.*finite numbers in increasing order"):
        own.Ordinal(edges)


OF_EDGES = {
    "AffineIndependentGP": AffineIndependentGP,
    "LCLGP": LCLGP,
    "CVIGP": CVIGP,
    "StateSpaceGP": StateSpaceGP,
    "ODVGP": lambda data, kernel, likelihood: ODVGP(
        kernel, likelihood, data[0][:1], data[0][1:3], num_data=5
    ),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OF_EDGES)
def test_every_model_sees_the_gradient_of_the_edges(name):
    likelihood = own.Ordinal(EDGES, 1.6)
    data = np.linspace(0.0, 1.0, 5)[:, None], GRADES
    model = OF_EDGES[name](data, gpflow.kernels.Matern32(), likelihood)
    arguments = [data] if name == "ODVGP" else []
    variable = likelihood.bin_edges.unconstrained_variable
    with tf.GradientTape() as tape:
        bound = model.elbo(*arguments)
    found, at = tape.gradient(bound, variable).numpy(), variable.numpy()
    assert likelihood.trainable_parameters == (likelihood.bin_edges,)
    direction, values = np.array([1.0, 2.0, -1.0]), []
    for step in (1e-4, -1e-4):
        variable.assign(at + step * direction)
        values.append(float(model.elbo(*arguments)))
    assert_allclose(found @ direction, (values[0] - values[1]) / 2e-4, rtol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("neighbours", [None, 3])
def test_edges_without_inputs_that_tell_are_the_shares_of_the_grades(neighbours):
    """The best edges of f = 0 are quantiles of the noise, wherever they start."""
    Y, likelihood = np.repeat(np.arange(4.0), [3, 9, 4, 4])[:, None], own.Ordinal([5.0, 5.1, 9.0])
    data, kernel = (np.arange(20.0)[:, None], Y), gpflow.kernels.Matern12(variance=1e-6)
    gpflow.set_trainable(kernel, False)
    if neighbours is None:
        model = CVIGP(data, kernel, likelihood)
    else:
        model = NNGP(data, kernel, likelihood, num_neighbours=neighbours)
    fit(model, progress=False)
    assert_allclose(likelihood.bin_edges, stats.norm.ppf([0.15, 0.6, 0.8]), atol=1e-3)
    shares = likelihood.probabilities(np.zeros((1, 1)), np.zeros((1, 1)))
    assert_allclose(shares[0], [0.15, 0.45, 0.2, 0.2], atol=1e-3)


def test_grades_are_those_of_gpflow_where_its_edges_are_finite():
    """Between the outermost grades, up to the 1e-6 that GPflow adds."""
    F, Y = np.linspace(-2.0, 2.0, 9)[:, None], np.repeat([1.0, 2.0, 1.0], 3)[:, None]
    theirs = np.exp(gl.Ordinal(np.array(EDGES)).log_prob(np.zeros((9, 1)), F, Y))
    assert_allclose(np.exp(own.Ordinal(EDGES).log_prob(np.zeros((9, 1)), F, Y)), theirs, atol=2e-3)


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("f", [1e9, -1e9, 1e17, -1e17, 1e150])
def test_grades_far_from_the_edges_keep_their_density(f):
    """Where log Phi of both edges rounds to one number: -inf before, with a slope of NaN."""
    F, Y = tf.constant(np.full((4, 1), f)), np.arange(4.0)[:, None]
    with tf.GradientTape() as tape:
        tape.watch(F)
        density = own.Ordinal(EDGES, 1.6).log_prob(np.zeros((4, 1)), F, Y)
    inner, slopes = [1, 2], tape.gradient(density, F).numpy()
    assert_allclose(density.numpy()[inner], -0.5 * (f / 1.6) ** 2, rtol=1e-8)
    assert_allclose(slopes[inner, 0], -f / 1.6**2, rtol=1e-8)
    assert np.isfinite(slopes).all()


@pytest.mark.parametrize("make, name", [(own.Laplace, "scale"), (own.NegativeBinomial, "size")])
def test_parameters(make, name, capsys):
    likelihood = make(0.7)
    parameter = getattr(likelihood, name)
    assert_allclose(parameter, 0.7, rtol=1e-12)
    assert likelihood.trainable_parameters == (parameter,)
    gpflow.utilities.print_summary(likelihood)
    printed = capsys.readouterr().out
    assert f"{type(likelihood).__name__}.{name}" in printed and "0.7" in printed
    copy = gpflow.utilities.deepcopy(likelihood)
    getattr(copy, name).assign(1.5)
    assert_allclose(parameter, 0.7, rtol=1e-12)
    per_row = make(np.full((5, 1), 0.7))
    arguments = (NO_X, F, VARIANCE, COUNTS)
    expected = likelihood.variational_expectations(*arguments)
    assert_allclose(per_row.variational_expectations(*arguments), expected, rtol=1e-12)
    shared = gpflow.Parameter(0.4)
    assert getattr(make(shared), name) is shared
    with pytest.raises(DataError, match=f"{name}=True is no size; pass a number"):
        make(True)


def _data(name):
    rng = np.random.default_rng(1)
    X = rng.uniform(-2.0, 2.0, size=(25, 1))
    f = np.sin(2.0 * X)
    if name == "negative binomial":
        return X, rng.poisson(np.exp(f)).astype(float)
    return X, (
        f + rng.laplace(size=f.shape)
        if name == "Laplace"
        else (f + rng.normal(size=f.shape) > 0).astype(float)
    )


def _variables(model):
    return [model.q_mu.unconstrained_variable, model.q_sqrt.unconstrained_variable]


@pytest.mark.exhaustive
@each
def test_in_models_of_gpflow_and_in_cvi(name):
    """The same bound from all three at the same q, and training raises it."""
    X, Y = _data(name)
    make = CASES[name][0]
    cvi = CVIGP((X, Y), gpflow.kernels.Matern52(), make())
    ConjugateComputation().run(cvi)
    mean, cov = (np.asarray(moment) for moment in cvi.predict_f(X, full_cov=True))
    jitter = 1e-6 * np.eye(25)
    svgp = gpflow.models.SVGP(gpflow.kernels.Matern52(), make(), X, whiten=False, num_latent_gps=1)
    svgp.q_mu.assign(mean)
    svgp.q_sqrt.assign(np.linalg.cholesky(cov + jitter))
    best = float(cvi.elbo())
    assert_allclose(svgp.elbo((X, Y)), best, rtol=1e-3)
    vgp = gpflow.models.VGP((X, Y), gpflow.kernels.Matern52(), make())
    start = float(vgp.elbo())
    gpflow.optimizers.Scipy().minimize(
        vgp.training_loss,
        _variables(vgp),
        options={"maxiter": 40},
        tf_fun_args={"autograph": False},
    )
    assert start < float(vgp.elbo()) <= best + 1e-4 * abs(best)
    assert_allclose(vgp.elbo(), best, rtol=2e-3)
    new = np.linspace(-3.0, 3.0, 4)[:, None]
    for model in (vgp, svgp, cvi):
        mean, variance = model.predict_y(new)
        assert mean.shape == variance.shape == (4, 1) and np.all(variance > 0)
        assert np.all(np.isfinite(model.predict_log_density((new, Y[:4]))))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Laplace", "negative binomial"])
def test_parameters_are_learned(name):
    X, Y = _data(name)
    model = gpflow.models.SVGP(gpflow.kernels.Matern52(), CASES[name][0](), X[::3], num_data=25)
    (parameter,) = model.likelihood.trainable_parameters
    before, start = float(parameter.numpy()), float(model.elbo((X, Y)))
    loss = model.training_loss_closure((X, Y), compile=False)
    gpflow.optimizers.Scipy().minimize(
        loss, model.trainable_variables, options={"maxiter": 15}, tf_fun_args={"autograph": False}
    )
    assert abs(float(parameter.numpy()) - before) > 0.01 and float(model.elbo((X, Y))) > start
