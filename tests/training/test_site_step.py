"""`fit` of a model that owns its data: its gradients against finite differences, its sites, its
end, its refusals.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.keras import tf_keras
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, NumericalError, UnknownOptionError
from gpflow_decoupled.models import CVIGP
from gpflow_decoupled.optimizers import ConjugateComputation
from gpflow_decoupled.training import Checkpoints, Schedule
from gpflow_decoupled.training.stages.full_gps import Sites
from tests.reference import conjugate as ref
from tests.training.problems import slope, turn, unchanged, values

RNG = np.random.default_rng(2)
X = RNG.uniform(-1, 1, (14, 2))
Y = np.sin(3.0 * X[:, :1]) + 0.2 * RNG.normal(size=(14, 1)) + 1.0
LIKELIHOODS = {
    "gaussian": (lambda: gl.Gaussian(0.1), Y),
    "logit": (lambda: gl.Bernoulli(tf.sigmoid), (Y > 1.0).astype(float)),
    "poisson": (gl.Poisson, np.round(2.0 * Y**2)),
}


def _model(likelihood: str = "gaussian", steps: int = 2) -> CVIGP:
    """Some steps away from the fixed point, where the two ways to hold q differ."""
    build, labels = LIKELIHOODS[likelihood]
    trend = gpflow.functions.Linear(np.array([[0.4], [-0.2]]), np.array([0.3]))
    model = CVIGP(
        (X, labels), gpflow.kernels.Matern52(lengthscales=0.8), build(), mean_function=trend
    )
    for _ in range(steps):
        ConjugateComputation(0.4).minimize(model)
    return model


def _gradient(model: CVIGP, hold: str) -> list[np.ndarray]:
    """What the step hands to its optimizer: with plain descent at rate 1, the change of the
    variables.
    """
    step = Sites(model, None, tf_keras.optimizers.SGD(1.0), hold, compile=False)
    before = [v.numpy() for v in step.others.moved]
    sites = model.basis.nu.numpy(), model.basis.tau.numpy()
    turn(step, model.data)
    gradient = [v.numpy() - old for v, old in zip(step.others.moved, before)]
    for v, old in zip(step.others.moved, before):
        v.assign(old)
    model.basis.nu.assign(sites[0])
    model.basis.tau.assign(sites[1])
    return gradient


def _prior(model: CVIGP) -> tuple[np.ndarray, np.ndarray]:
    return model.kernel(X).numpy(), model.mean_function(X).numpy()[:, 0]


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_gradient_at_held_sites_is_the_slope_of_the_bound(likelihood):
    """Sites on f, not on f - m_0: in the reference, and by what the step does to nu when the mean
    function moves.
    """
    model = _model(likelihood)
    _, m_0 = _prior(model)
    tau = model.basis.tau.numpy()[:, 0]
    sites = ref.Sites(model.basis.nu.numpy()[:, 0] + tau * m_0, tau)

    def bound() -> float:
        K, prior_mean = _prior(model)
        mean, variance = ref.marginals(K, prior_mean, sites)
        args = (X, tf.constant(mean[:, None]), tf.constant(variance[:, None]), model.data[1])
        expected = float(tf.reduce_sum(model.likelihood.variational_expectations(*args)))
        return expected - ref.site_kl(K, prior_mean, sites)

    direction = [RNG.normal(size=v.shape) for v in model.trainable_variables]
    ours = sum(float(np.sum(g * d)) for g, d in zip(_gradient(model, "sites"), direction))
    assert_allclose(ours, slope(model, bound, direction), rtol=1e-5)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_gradient_at_held_moments_is_the_slope_of_the_bound(likelihood):
    model = _model(likelihood)
    K, m_0 = _prior(model)
    tau = model.basis.tau.numpy()[:, 0]
    mean, cov = ref.posterior(K, m_0, ref.Sites(model.basis.nu.numpy()[:, 0] + tau * m_0, tau))

    def bound() -> float:
        args = (
            X,
            tf.constant(mean[:, None]),
            tf.constant(np.diag(cov)[:, None].copy()),
            model.data[1],
        )
        expected = model.likelihood.variational_expectations(*args).numpy()
        return ref.textbook_bound(*_prior(model), mean, cov, expected.sum())

    direction = [RNG.normal(size=v.shape) for v in model.trainable_variables]
    moments, sites = (
        sum(float(np.sum(g * d)) for g, d in zip(_gradient(model, hold), direction))
        for hold in ("moments", "sites")
    )
    found = slope(model, bound, direction)
    assert_allclose(moments, found, rtol=1e-5)
    assert abs(sites - found) > 1e-3 * abs(found)


def test_bound_at_held_sites_is_the_evidence_for_gaussian_noise():
    model = _model(steps=0)
    ConjugateComputation().minimize(model)
    model.likelihood.variance.assign(0.1)
    exact = gpflow.models.GPR((X, Y), model.kernel, model.mean_function, noise_variance=0.1)
    for lengthscale in (0.3, 2.0):
        model.kernel.lengthscales.assign(lengthscale)
        assert_allclose(model.elbo(), exact.log_marginal_likelihood(), rtol=1e-10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("hold", ["sites", "moments"])
def test_fit_reaches_the_optimum_of_the_exact_gp(hold):
    model = _model(steps=0)
    trend = gpflow.functions.Linear(np.array([[0.4], [-0.2]]), np.array([0.3]))
    exact = gpflow.models.GPR(
        (X, Y), gpflow.kernels.Matern52(lengthscales=0.8), trend, noise_variance=0.1
    )
    gpflow.optimizers.Scipy().minimize(
        exact.training_loss, exact.trainable_variables, tf_fun_args={"autograph": False}
    )
    result = gd.fit(model, steps=800, hold=hold, learning_rate=0.05, progress=False)
    assert result.history["elbo"][-1] > result.history["elbo"][0]
    assert_allclose(model.elbo(), exact.log_marginal_likelihood(), atol=0.05)


@pytest.mark.exhaustive
def test_sites_follow_the_mean_function():
    """One step: the site as a function of f is that of conjugate computation alone, though m_0
    moved.
    """
    model, alone = _model(), _model()
    ConjugateComputation(0.4).minimize(alone)
    rule = ConjugateComputation(0.4)
    turn(Sites(model, rule, tf_keras.optimizers.Adam(0.3), "sites"), model.data, 0.3)
    assert np.abs(_prior(model)[1] - _prior(alone)[1]).min() > 0.01
    of_f = [
        m.basis.nu.numpy()[:, 0] + m.basis.tau.numpy()[:, 0] * _prior(m)[1] for m in (model, alone)
    ]
    assert_allclose(of_f[0], of_f[1], rtol=1e-9)
    assert_allclose(model.basis.tau, alone.basis.tau, rtol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:The bound of .* is not accurate")
@pytest.mark.parametrize("policy", ["damp", "clip"])
def test_a_likelihood_that_is_not_log_concave_does_not_lower_the_bound(policy):
    """Steps of 0.5 from the prior, with noise far below the spread of the data, at a kernel that
    stays.
    """
    model = CVIGP((X, Y), gpflow.kernels.Matern52(lengthscales=0.3), gl.StudentT(0.02))
    gpflow.set_trainable([model.kernel, model.likelihood], False)
    bounds = gd.fit(
        model, steps=15, negative_precision=policy, compile=False, progress=False
    ).history["elbo"]
    assert np.diff(bounds).min() >= -1e-9 * abs(bounds[-1])
    assert bounds[-1] > bounds[0]


@pytest.mark.exhaustive
def test_sites_alone_end_where_they_have_converged(tmp_path):
    """12 rows of sin 3x under a narrow Student-t: 200 steps were taken, at the optimum from the
    twentieth on, and called "steps done".
    """
    line = np.linspace(-2.0, 2.0, 12)[:, None]
    made = [CVIGP((line, np.sin(3.0 * line)), gpflow.kernels.Matern52(), gl.StudentT(0.02))]
    made.append(gpflow.utilities.deepcopy(made[0]))
    for model in made:
        gpflow.set_trainable([model.kernel, model.likelihood], False)
    best = ConjugateComputation().run(made[0])
    options = {"natural_gradient": 1.0, "compile": False, "progress": False, "checkpoint": tmp_path}
    result = gd.fit(made[1], steps=200, **options)
    assert result.converged and result.reason == "converged" and result.steps < 60
    assert_allclose(result.elbo, best.elbo, atol=1e-6)
    # a step more has nothing to do; while hyperparameters move, no tolerance ends the run
    assert gd.fit(made[1], steps=200, **options).steps == result.steps
    gpflow.set_trainable(made[0].kernel, True)
    moving = gd.fit(made[0], steps=2, learning_rate=1e-9, compile=False, progress=False)
    assert not moving.converged and moving.reason == "steps done"


@pytest.mark.exhaustive
def test_a_resumed_fit_goes_on_to_the_same_trace(tmp_path):
    straight = _model("logit", steps=0)
    expected = gd.fit(straight, steps=8, progress=False).history["elbo"]
    gd.fit(
        _model("logit", steps=0),
        steps=4,
        schedule=Schedule(anneal=0.0),
        progress=False,
        checkpoint=Checkpoints(tmp_path, every=2),
    )
    again = gd.fit(
        _model("logit", steps=0),
        steps=8,
        schedule=Schedule(anneal=0.0),
        progress=False,
        checkpoint=Checkpoints(tmp_path, every=2),
    )
    assert_allclose(again.history["elbo"][:5], expected[:5], rtol=1e-12)
    assert again.steps == 8


BAD = {
    "data": (
        {"data": (X, Y)},
        DataError,
        r"CVIGP owns its data: call fit\(model\), and model.update\(data\)",
    ),
    "minibatch": (
        {"batch_size": 5},
        UnknownOptionError,
        "batch_size=5 for CVIGP. Every step takes all data; for minibatches",
    ),
    "hold": (
        {"hold": "whitened"},
        UnknownOptionError,
        "hold='whitened' is not known; use one of 'sites', 'moments'",
    ),
    "step": (
        {"natural_gradient": 1.5},
        DataError,
        "natural_gradient=1.5 must be a number above 0 and at most 1",
    ),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", BAD)
def test_bad_options_are_refused_with_nothing_changed(name):
    options, error, message = BAD[name]
    model = _model()
    before = values(model)
    with pytest.raises(error, match=message):
        gd.fit(model, **{"steps": 1, "progress": False, **options})
    assert unchanged(before, model)


@pytest.mark.exhaustive
def test_a_failure_restores_what_was_there():
    model = _model("poisson")
    before = values(model)
    with pytest.raises(NumericalError, match="holds the last good parameters"):
        gd.fit(
            model,
            steps=3,
            learning_rate=1e6,
            progress=False,
            optimizer=tf_keras.optimizers.SGD(1e6),
        )
    after = values(model)
    assert (
        all(np.all(np.isfinite(value)) for value in after.values())
        and before.keys() == after.keys()
    )
