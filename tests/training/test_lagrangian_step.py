"""`fit` of a model with multipliers: its gradients against finite differences, its multipliers, its
end, its refusals.
"""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras
from gpflow.utilities import set_trainable
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, NumericalError, UnknownOptionError
from gpflow_decoupled.models import LCLGLM, LCLGP
from gpflow_decoupled.optimizers import LinearlyConstrainedLagrangian
from gpflow_decoupled.training import Checkpoints, Schedule
from gpflow_decoupled.training.stages.full_gps import Multipliers
from tests.optimizers.lagrangian import lcl_problems as problems
from tests.reference import lcl
from tests.reference import lcl_sites as ref
from tests.training.problems import slope, turn, unchanged, values

Array = np.ndarray
RNG = np.random.default_rng(4)
LOSSES: dict[str, tuple[Callable, int | None]] = {
    "Gaussian": (lambda likelihood, y: ref.gaussian(y, float(likelihood.variance.numpy())), 40),
    "Poisson": (lambda likelihood, y: ref.poisson(y), 60),
    "Student-t": (
        lambda likelihood, y: ref.student_t(y, 4.0, float(likelihood.scale.numpy())),
        None,
    ),
}
"""At the likelihood's Parameters as they are, and the order of the reference's quadrature; None
integrates exactly.
"""


def _model(name: str, N: int = 8) -> LCLGP:
    """Off the optimum, where what is held makes a difference."""
    built = problems.model(name, N)
    problems.randomize(built)
    return built


def _gradient(model: LCLGP, hold: str) -> list[Array]:
    """What a step hands to its optimizer: with plain descent at rate 1, the change of the
    variables.
    """
    step = Multipliers(model, False, tf_keras.optimizers.SGD(1.0), hold, compile=False)
    before = [v.numpy() for v in step.variables]
    turn(step, model.data)
    after = [v.numpy() for v in step.others.moved]
    for v, old in zip(step.variables, before):
        v.assign(old)
    return [new - v.numpy() for new, v in zip(after, step.others.moved)]


def _functions(name: str, model: LCLGP) -> list[ref.SiteFunction]:
    make, order = LOSSES[name]

    def function(y: float) -> ref.SiteFunction:
        loss = make(model.likelihood, y)
        if order is None:
            return lambda h, sigma: ref.integral(loss, h, sigma, (y,))
        return lambda h, sigma: ref.hermite(loss, h, sigma, order)

    return [function(float(y)) for y in model.data[1].numpy()[:, 0]]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_the_slopes_of_the_bound(name):
    """At held sites, which are functions of f and not of f - m_0, and at held multipliers; in the
    reference.
    """
    model = _model(name)
    K, m_0 = problems.gram(model), problems.prior_mean(model)
    alpha, lam = model.basis.alpha.numpy()[:, 0], model.basis.lam.numpy()[:, 0]
    linear = lam * (m_0 - K @ alpha) - alpha

    def at_sites() -> float:
        K, m_0 = problems.gram(model), problems.prior_mean(model)
        precision = np.linalg.inv(K)
        V = np.linalg.inv(precision + np.diag(lam))
        return lcl.bound(K, m_0, V @ (linear + precision @ m_0), V, _functions(name, model))

    def at_multipliers() -> float:
        K, m_0 = problems.gram(model), problems.prior_mean(model)
        return lcl.bound(K, m_0, *lcl.posterior(K, m_0, alpha, lam), _functions(name, model))

    direction = [RNG.normal(size=v.shape) for v in model.trainable_variables]
    slopes = []
    for hold, bound in (("sites", at_sites), ("multipliers", at_multipliers)):
        ours = sum(float(np.sum(g * d)) for g, d in zip(_gradient(model, hold), direction))
        slopes.append(slope(model, bound, direction))
        assert_allclose(ours, slopes[-1], rtol=1e-5)
    assert abs(slopes[0] - slopes[1]) > 1e-3 * abs(slopes[0])


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", ["Poisson", "Student-t"])
def test_sites_follow_kernel_and_mean_function(name):
    """One step with the multipliers left alone: lambda and the site as a function of f stay; alpha
    follows.
    """
    model = _model(name)

    def sites() -> Array:
        state = model.basis.factor(model.kernel)
        return (model.basis.lam * (model.prior_mean() + state.mean) - model.basis.alpha).numpy()

    before, lam, m_0 = sites(), model.basis.lam.numpy(), problems.prior_mean(model)
    optimizer = tf_keras.optimizers.Adam(0.1)
    turn(Multipliers(model, False, optimizer, "sites", compile=False), model.data, 0.1)
    assert np.abs(problems.prior_mean(model) - m_0).min() > 0.01
    assert_allclose(model.basis.lam, lam, rtol=1e-12)
    assert_allclose(sites(), before, rtol=1e-9, atol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("noise", [False, True], ids=["noise fixed", "noise learned"])
def test_learning_with_gaussian_noise_is_that_of_the_exact_gp(noise):
    """Step by step: with fixed noise the bound at held sites is the evidence; else multipliers lag
    behind by one iteration.
    """
    model, rate = problems.model("Gaussian", 10), 0.05
    parts = [gpflow.utilities.deepcopy(part) for part in (model.kernel, model.mean_function)]
    exact = gpflow.models.GPR(model.data, *parts, noise_variance=problems.NOISE)
    for likelihood in (model.likelihood, exact.likelihood):
        set_trainable(likelihood, noise)
    result = gd.fit(
        model,
        steps=6,
        learning_rate=rate,
        schedule=Schedule(anneal=0.0),
        progress=False,
        compile=False,
    )
    adam, evidences = tf_keras.optimizers.Adam(rate), []
    for _ in range(6):
        with tf.GradientTape() as tape:
            loss = exact.training_loss()
        adam.apply_gradients(
            zip(tape.gradient(loss, exact.trainable_variables), exact.trainable_variables)
        )
        evidences.append(float(exact.log_marginal_likelihood()))
    tolerance = 5e-3 if noise else 1e-6
    assert_allclose(result.history["elbo"], evidences, atol=tolerance)
    assert_allclose(model.kernel.lengthscales, exact.kernel.lengthscales, atol=tolerance)
    assert_allclose(model.likelihood.variance, exact.likelihood.variance, atol=tolerance)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name, hold", [("Laplace", "multipliers"), ("Student-t", "sites")])
def test_bound_rises(name, hold):
    """In every step; and one iteration a step is nearly enough."""
    model = problems.model(name, 12)
    result = gd.fit(model, steps=5, learning_rate=0.1, hold=hold, progress=False, compile=False)
    assert np.all(np.diff(result.history["elbo"]) > -1e-3)
    assert result.history["elbo"][-1] > result.history["elbo"][0] + 0.1
    assert_allclose(model.elbo(), result.history["elbo"][-1], rtol=1e-9)
    best = LinearlyConstrainedLagrangian(compile=False).run(model).elbo
    assert_allclose(best, result.history["elbo"][-1], atol=0.03)


@pytest.mark.exhaustive
def test_weights_learn_their_prior():
    X = problems.inputs(30)
    model = LCLGLM((X, problems.labels("Poisson", X)), gpflow.likelihoods.Poisson())
    assert model.basis.form == "weight" and not model.trainable_variables
    set_trainable(model.kernel, True)
    elbo = gd.fit(model, steps=5, learning_rate=0.1, progress=False, compile=False).history["elbo"]
    assert np.all(np.diff(elbo) > 0.0)
    other = LCLGLM(
        (X, problems.labels("Poisson", X)), gpflow.likelihoods.Poisson(), form="function"
    )
    set_trainable(other.kernel, True)
    assert_allclose(
        gd.fit(other, steps=5, learning_rate=0.1, progress=False, compile=False).history["elbo"],
        elbo,
        atol=1e-3,
    )


@pytest.mark.exhaustive
def test_with_nothing_else_to_train_it_is_the_lagrangian():
    model, alone = problems.model("Poisson", 12), problems.model("Poisson", 12)
    set_trainable(model, False)
    result = gd.fit(model, steps=50, progress=False)
    found = LinearlyConstrainedLagrangian().run(alone)
    assert result.steps == 1 and result.reason == found.reason == "converged" and result.converged
    assert_allclose(result.history["elbo"], [found.elbo], atol=1e-6)
    assert_allclose(model.basis.alpha, alone.basis.alpha, atol=1e-4)


def test_precisions_that_the_new_kernel_does_not_allow_lose_their_negative_part():
    """A negative lambda takes V from the kernel that a large step leads to; the run goes on without
    it.
    """
    model = problems.model("Student-t", 8)
    model.basis.lam.assign(np.full((8, 1), -0.05))
    assert bool(model.basis.factor(model.kernel).ok)
    step = Multipliers(model, True, tf_keras.optimizers.SGD(0.0), "sites", compile=False)
    sites = tf.zeros_like(model.basis.lam)
    model.kernel.variance.assign(100.0)
    assert int(step._follow(sites, model.prior_mean())) == 1
    assert np.all(model.basis.lam.numpy() == 0.0) and bool(model.basis.factor(model.kernel).ok)


@pytest.mark.exhaustive
def test_a_resumed_fit_goes_on_to_the_same_trace(tmp_path):
    options = {"schedule": Schedule(anneal=0.0), "progress": False, "compile": False}
    expected = gd.fit(problems.model("Poisson", 8), steps=4, **options).history["elbo"]
    for steps in (2, 4):
        model = problems.model("Poisson", 8)
        result = gd.fit(model, steps=steps, checkpoint=Checkpoints(tmp_path, every=2), **options)
    assert_allclose(result.history["elbo"], expected, rtol=1e-10)
    assert_allclose(model.elbo(), expected[-1], rtol=1e-10)


DATA = (problems.inputs(4), problems.labels("Poisson", problems.inputs(4)))
BAD = {
    "data": (
        {"data": DATA},
        DataError,
        r"LCLGP owns its data: call fit\(model\), and build another model for more",
    ),
    "minibatch": (
        {"batch_size": 5},
        UnknownOptionError,
        (
            r"does not use batch_size=5 for LCLGP.* use optimizers.ConstraintSubset\(size,"
            r" batch_size\)"
        ),
    ),
    "hold": (
        {"hold": "moments"},
        UnknownOptionError,
        "hold='moments' is not known; use one of 'sites', 'multipliers'",
    ),
    "step": (
        {"natural_gradient": 1.5},
        UnknownOptionError,
        "does not use natural_gradient=1.5 for LCLGP.* no step size",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options_are_refused_with_nothing_changed(name):
    options, error, message = BAD[name]
    model = _model("Poisson")
    before = values(model)
    with pytest.raises(error, match=message):
        gd.fit(model, **{"steps": 1, "progress": False, **options})
    assert unchanged(before, model)


@pytest.mark.exhaustive
def test_nothing_to_train_and_losses_without_a_dual_are_refused():
    model = _model("Poisson")
    set_trainable(model, False)
    with pytest.raises(
        DataError, match="No Parameter of the model is trainable, and natural_gradient=None"
    ):
        gd.fit(model, natural_gradient=None, progress=False)
    data = problems.inputs(4), problems.labels("logit", problems.inputs(4))
    model = LCLGP(data, gpflow.kernels.Matern52(), gd.likelihoods.BernoulliLogit("piecewise"))
    with pytest.raises(DataError, match="cannot be maximised in the dual"):
        gd.fit(model, progress=False)


@pytest.mark.exhaustive
def test_a_failure_restores_what_was_there():
    model = _model("Poisson")
    with pytest.raises(
        NumericalError, match="^Step [012]: .* The model holds the last good parameters"
    ) as info:
        gd.fit(
            model, steps=3, progress=False, optimizer=tf_keras.optimizers.SGD(1e6), compile=False
        )
    assert info.value.result.reason == "numerical failure"
    assert all(np.all(np.isfinite(value)) for value in values(model).values())


def test_multipliers_outside_are_refused():
    model = _model("Poisson")
    model.basis.alpha.assign(-10.0 * np.ones((8, 1)))
    before = values(model)
    with pytest.raises(DataError, match="alpha.*is outside of S"):
        gd.fit(model, steps=3, progress=False, compile=False)
    assert unchanged(before, model)
