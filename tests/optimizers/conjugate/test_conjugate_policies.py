"""Steps that cannot be made in full, the record of a run, and options that are refused."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled.errors import DataError, NumericalError, UnknownOptionError
from gpflow_decoupled.models import CVIGP
from gpflow_decoupled.optimizers import ConjugateComputation
from tests.bounds.registry import matern
from tests.models.conjugate_problems import (
    X,
    conjugate_model,
    gram,
    observations,
    random_sites,
    sites_on_f,
)
from tests.reference import conjugate as conj

SCALE = 0.2


def _outliers() -> tuple[CVIGP, np.ndarray]:
    """Student-t noise, gross errors and a narrow q; with the precisions that a full step would lead
    to.
    """
    Y = np.where(np.arange(len(X)) % 4 == 0, 0.1, 1.5)[:, None]
    model = conjugate_model(gl.StudentT(scale=SCALE, df=3.0), Y=Y, mean_function=None)
    model.basis.tau.assign(np.full((len(X), 1), 50.0))
    mean, variance = conj.marginals(gram(model), np.zeros(len(X)), sites_on_f(model))
    rule = conj.quadrature(conj.student_t(3.0, SCALE), Y[:, 0], 4000, conj.trapezoid_expectation)
    _, _, h = rule(mean, variance)
    assert np.sum(h > 0) > 3
    return model, -2.0 * h


def _smallest(model: CVIGP, tau: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(np.linalg.inv(gram(model)) + np.diag(tau))[0])


def _values(model: CVIGP) -> list[np.ndarray]:
    return [model.basis.nu.numpy(), model.basis.tau.numpy()]


def test_damping_halves_the_step_until_the_posterior_exists():
    model, goal = _outliers()
    halvings = next(
        k for k in range(20) if _smallest(model, 50.0 * (1 - 0.5**k) + 0.5**k * goal) > 0
    )
    assert halvings > 0
    report = ConjugateComputation(1.0).minimize(model)
    assert report.ok and report.shortened == 1 and report.clipped == 0
    assert_allclose(
        model.basis.tau.numpy()[:, 0], 50.0 * (1 - 0.5**halvings) + 0.5**halvings * goal, rtol=1e-8
    )


def test_clipping_drops_negative_precisions_and_counts_them():
    model, goal = _outliers()
    report = ConjugateComputation(1.0, negative_precision="clip").minimize(model)
    assert report.ok and report.shortened == 0 and report.clipped == np.sum(goal < 0)
    assert_allclose(model.basis.tau.numpy()[:, 0], np.maximum(goal, 0.0), rtol=1e-8, atol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("rows", [None, list(range(len(X)))], ids=["all data", "minibatch"])
def test_raising_leaves_everything_as_it_was(rows):
    model, _ = _outliers()
    before, optimizer = _values(model), ConjugateComputation(1.0, negative_precision="raise")
    with pytest.raises(NumericalError, match='smaller step_size, negative_precision="clip"'):
        optimizer.minimize(model, rows)
    assert not tf.function(lambda: optimizer.minimize(model, rows).ok, autograph=False)()
    with pytest.raises(NumericalError, match="step of the sites failed"):
        optimizer.run(model, steps=3, batch_size=None if rows is None else len(X))
    for left, right in zip(_values(model), before):
        np.testing.assert_array_equal(left, right)


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", ["damp", "clip"])
def test_each_policy_is_counted_in_the_record(policy):
    model, _ = _outliers()
    start = float(model.elbo())
    result = ConjugateComputation(1.0, negative_precision=policy).run(model)
    assert result.elbo > start and result.reason == "converged"
    assert (result.clipped_sites > 0) == ("clipped" in str(result)) == (policy == "clip")
    if policy == "damp":
        assert result.shortened_steps > 0 and "halvings" in str(result)
        assert np.all(np.diff(result.history["elbo"]) >= -1e-8)  # clipped steps need not ascend


@pytest.mark.exhaustive
def test_negative_sites_have_the_higher_bound():
    """An outlier among good data leaves its site negative at the optimum; clipped, it is another
    optimum.
    """
    inputs, found = np.linspace(0, 1, 16)[:, None], {}
    Y = np.where(np.arange(16) == 7, 4.0, 0.1 * (-1.0) ** np.arange(16))[:, None]
    for policy in ("damp", "clip"):
        model = CVIGP((inputs, Y), matern(1.0, 1.0), gl.StudentT(scale=SCALE, df=3.0))
        found[policy] = (
            ConjugateComputation(0.5, negative_precision=policy).run(model, tolerance=1e-18).elbo
        )
        assert np.any(model.basis.tau.numpy() < 0) == (policy == "damp")
    assert found["damp"] > found["clip"] + 1e-6


@pytest.mark.exhaustive
def test_probit_with_a_floor_is_not_log_concave():
    """GPflow's default link cannot fall below 0.001, so a gross error pushes less the further off
    it is.
    """
    model = conjugate_model(
        gl.Bernoulli(), Y=(np.arange(len(X)) > 0).astype(float)[:, None], mean_function=None
    )
    model.kernel.variance.assign(20.0)
    model.basis.tau.assign(np.ones((len(X), 1)))
    model.basis.nu.assign(np.full((len(X), 1), -6.0))
    before = _values(model)
    clip = ConjugateComputation(negative_precision="clip").minimize(model)
    assert clip.ok and clip.clipped > 0 and np.all(model.basis.tau.numpy() >= 0)
    model.basis.nu.assign(before[0])
    model.basis.tau.assign(before[1])
    assert ConjugateComputation(0.9).minimize(model).ok
    model.basis.nu.assign(before[0])
    result = ConjugateComputation().run(model)
    assert np.isfinite(result.elbo) and np.all(np.diff(result.history["elbo"]) >= -1e-8)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("compiled", [False, True])
def test_a_kernel_that_is_not_finite_changes_nothing(compiled):
    model = conjugate_model(gl.Poisson())
    random_sites(model)
    before, optimizer = _values(model), ConjugateComputation()
    model.kernel.variance.unconstrained_variable.assign(np.nan)
    if compiled:
        assert not tf.function(lambda: optimizer.minimize(model).ok, autograph=False)()
    else:
        for act in (optimizer.minimize, optimizer.run):
            with pytest.raises(NumericalError, match="step of the sites failed"):
                act(model)
    for left, right in zip(_values(model), before):
        np.testing.assert_array_equal(left, right)


KERNELS = [
    gpflow.kernels.Matern12,
    gpflow.kernels.Matern52,
    gpflow.kernels.SquaredExponential,
    gpflow.kernels.Linear,
]
NOISES = {
    "Gaussian": lambda rng: (
        gl.Gaussian(10.0 ** rng.uniform(-3, 1)),
        lambda f: f + rng.normal(size=f.shape),
    ),
    "Student-t": lambda rng: (
        gl.StudentT(scale=10.0 ** rng.uniform(-2, 0), df=rng.uniform(2.1, 6.0)),
        lambda f: f + rng.standard_t(1.5, size=f.shape),
    ),
    "probit": lambda rng: (
        gl.Bernoulli(),
        lambda f: (f + rng.normal(size=f.shape) > 0).astype(float),
    ),
    # a plain sigmoid is 1 to all digits above f = 37, and the log likelihood there is -inf in
    # GPflow
    "logit": lambda rng: (
        gl.Bernoulli(invlink=lambda f: 1e-9 + (1 - 2e-9) * tf.sigmoid(f)),
        lambda f: (f > 0).astype(float),
    ),
    "Poisson": lambda rng: (
        gl.Poisson(),
        lambda f: rng.poisson(np.exp(np.clip(f, -3, 3))).astype(float),
    ),
}


def _random_problem(number: int) -> CVIGP:
    rng = np.random.default_rng(number)
    inputs = rng.normal(size=(rng.integers(2, 25), 2))
    kernel = KERNELS[number % len(KERNELS)](variance=10.0 ** rng.uniform(-2, 1.3))
    if hasattr(kernel, "lengthscales"):
        kernel.lengthscales.assign(10.0 ** rng.uniform(-1, 1))
    likelihood, observe = list(NOISES.values())[number % len(NOISES)](rng)
    f = np.sin(2 * inputs[:, :1]) * 10.0 ** rng.uniform(-1, 0.7)
    return CVIGP((inputs, observe(f)), kernel, likelihood)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:Y.* is constant")
@pytest.mark.filterwarnings(
    "ignore:The bound of .* is not accurate"
)  # likelihoods too narrow for their nodes
def test_nothing_is_nan_in_a_hundred_random_problems():
    """Also with full steps, which nothing but the existence of the posterior holds back."""
    for number in range(100):
        model = _random_problem(number)
        policy = ("damp", "clip")[number // 20 % 2]
        optimizer = ConjugateComputation(1.0 if number % 3 else 0.5, negative_precision=policy)
        for _ in range(2):
            assert optimizer.minimize(model).ok
        if number % 17 == 0:
            elbos = optimizer.run(model, steps=30).history["elbo"]
            assert policy == "clip" or np.all(np.diff(elbos) >= -1e-8 * np.abs(elbos[1:])), number
        mean, variance = model.predict_f(model.data[0])
        assert all(
            np.all(np.isfinite(value)) for value in (*_values(model), mean, variance, model.elbo())
        ), number
        assert np.all(variance > -1e-9), number
        assert_allclose(
            model.elbo_of_sites(), model.elbo(), rtol=1e-6, atol=1e-6, err_msg=str(number)
        )


@pytest.mark.exhaustive
def test_a_run_keeps_a_record_and_stops_when_converged():
    """The change is the squared distance of the sites from where they go, as in the talk."""
    model, twin = conjugate_model(gl.Poisson()), conjugate_model(gl.Poisson())
    result = ConjugateComputation(0.5).run(model, tolerance=1e-16)
    history = result.history
    ConjugateComputation(1.0).minimize(twin)
    target = sum(float(np.sum(value**2)) for value in _values(twin))
    assert history["change"][0] == pytest.approx(target)
    size = 1.0 + sum(float(np.sum(value**2)) for value in _values(model))
    assert history["change"][-1] <= 1e-16 * size < history["change"][-2]
    assert result.reason == "converged" and result.steps < 100
    for column in history.values():
        assert len(column) == result.steps
    assert_allclose(history["step"], np.arange(1, result.steps + 1))
    assert np.all(np.diff(history["elbo"]) >= -1e-9) and np.all(np.diff(history["seconds"]) > 0)
    assert result.elbo == pytest.approx(float(model.elbo()), rel=1e-12)
    assert f"{result.steps} steps" in str(result) and "converged" in str(result)
    assert ConjugateComputation().run(model).steps <= 1  # nothing is left to do


@pytest.mark.exhaustive
def test_a_run_ends_when_its_steps_are_done():
    result = ConjugateComputation(0.1).run(conjugate_model(gl.Poisson()), steps=3)
    assert result.steps == 3 and result.reason == "steps done"


@pytest.mark.exhaustive
def test_more_steps_continue_a_run():
    whole, parts = (
        conjugate_model(gl.Bernoulli(), Y=observations(gl.Bernoulli())) for _ in range(2)
    )
    rule = ConjugateComputation(0.4)
    rule.run(whole, steps=6)
    for _ in range(2):
        rule.run(parts, steps=3)
    assert_allclose(parts.basis.nu, whole.basis.nu, rtol=1e-11)


@pytest.mark.parametrize("options, message", [
    ({"step_size": 0.0}, "step_size=0.0 at step 0 must be a number above 0 and at most 1"),
    ({"step_size": 1.5}, "step_size=1.5 at step 0 must be a number above 0 and at most 1"),
    ({"step_size": float("nan")}, "step_size=nan at step 0 must be a number above 0 and at most 1"),
    ({"step_size": True}, "step_size=True at step 0 must be a number"),
    ({"step_size": "half"}, "step_size='half' at step 0 must be a number"),
    ({"step_size": lambda t: -1.0}, "step_size=-1.0 at step 0"),
    ({"samples": 0}, "samples=0 must be a whole number of at least 1, or None for quadrature"),
])  # fmt: skip
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(DataError, match=message):
        ConjugateComputation(**options)


def test_a_step_size_that_leaves_its_range_later_is_refused_then():
    model = conjugate_model(gl.Poisson())
    with pytest.raises(DataError, match="at step 2 must be a number above 0"):
        ConjugateComputation(lambda t: 1.0 - 0.5 * t).run(model, tolerance=0.0)
    assert np.all(np.isfinite(model.basis.nu))


@pytest.mark.parametrize("options", [{"update": "lazy"}, {"negative_precision": "ignore"}])
def test_unknown_options_are_refused(options):
    with pytest.raises(
        UnknownOptionError, match=f"{next(iter(options))}=.* is not known; use one of"
    ):
        ConjugateComputation(**options)


def test_a_mask_is_no_list_of_rows():
    model = CVIGP((X, 1.0 * (X > 0.0)), matern(1.0, 1.0), gl.Bernoulli())
    for rows, kind in ((X[:, 0] > 0.0, "bool"), ([7.9], "float")):
        with pytest.raises(DataError, match=f"rows are {kind}.* pass np.flatnonzero"):
            ConjugateComputation().minimize(model, rows=rows)
    with pytest.raises(
        DataError, match="rows must be indices from 0"
    ):  # in 32 bits it would be row 0
        ConjugateComputation().minimize(model, rows=[2**32])
