"""The ascent: the Gaussian optimum, published bounds of three toy problems, and never less than the
Gaussian.
"""

from __future__ import annotations

from functools import cache

import gpflow
import numpy as np
import pytest
import tensorflow_probability as tfp
from gpflow.utilities import set_trainable
from numpy.testing import assert_allclose
from scipy.linalg import expm

from gpflow_decoupled.errors import DataError, ModelError, NumericalError
from gpflow_decoupled.likelihoods import BernoulliLogit, Laplace
from gpflow_decoupled.models import CVIGP, LCLGLM, LCLGP, AffineIndependentGLM, AffineIndependentGP
from gpflow_decoupled.optimizers import (
    AffineIndependentAscent,
    LinearlyConstrainedLagrangian,
)
from gpflow_decoupled.optimizers.affine_start import GaussianProblem, edgeworth_start
from gpflow_decoupled.optimizers.ascent import RunResult
from tests.models.affine_independent.affine_problems import logistic_data, toy_model
from tests.reference import affine_model as ref

tfd = tfp.distributions
TABLE = {  # log Z, the affine-independent bound, the Gaussian bound
    "sparse far": (-4.1245, -4.1296, -4.1754),
    "sparse near": (-1.1339, -1.2323, -1.2421),
    "logistic 0": (-3.7978, -3.8107, -3.9822),
    "logistic 1": (-2.5305, -2.5496, -2.7317),
    "logistic 2": (-1.3449, -1.3487, -1.7444),
    "robust": (-3.5580, -3.5838, -3.6576),
}


@cache
def logistic_run(**options):
    X, Y = logistic_data(5, 4)
    model = AffineIndependentGLM((X, Y), BernoulliLogit(), intercept=False, **options)
    return model, AffineIndependentAscent().run(model)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TABLE)
def test_the_toy_problems(name):
    model = toy_model(name)
    result = AffineIndependentAscent().run(model)
    evidence = ref.log_evidence(ref.toy_problems()[name][0])
    assert_allclose([evidence, result.elbo, result.gaussian_elbo], TABLE[name], atol=1e-3)
    assert result.gaussian_elbo <= result.elbo <= evidence
    assert_allclose(model.elbo(), result.elbo, atol=1e-6)
    assert result.kept == "affine" and result.resolution < 1e-6
    assert result.predicted_gain > 0.3 * result.gain


@pytest.mark.exhaustive
@pytest.mark.parametrize("likelihood", [BernoulliLogit(), Laplace(0.7)], ids=["logit", "Laplace"])
def test_normal_base_is_gaussian_kl_inference(likelihood):
    """The same bound, and the same weights, as the linearly constrained Lagrangian finds."""
    X, Y = logistic_data(12, 3)
    X = 0.3 * X
    model = AffineIndependentGLM((X, Y), likelihood, base="normal", intercept_variance=2.0)
    result = AffineIndependentAscent(tolerance=1e-12).run(model)
    rival = LCLGLM((X, Y), likelihood, intercept_variance=2.0)
    best = LinearlyConstrainedLagrangian(tolerance=1e-11).run(rival).elbo
    assert_allclose(model.elbo(), best, atol=1e-8)
    assert_allclose(result.gaussian_elbo, best, atol=1e-8)
    for left, right in zip(model.predict_f(X), rival.predict_f(X)):
        assert_allclose(left, right, atol=1e-3)


@pytest.mark.exhaustive
def test_a_gp_on_the_data_with_a_normal_base():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(12, 1))
    Y = (np.sin(3.0 * X) + 0.3 * rng.normal(size=(12, 1)) > 0.0).astype(float)
    kernel = gpflow.kernels.Matern32(variance=3.0)
    model = AffineIndependentGP((X, Y), kernel, BernoulliLogit(), base="normal")
    AffineIndependentAscent(tolerance=1e-11).run(model)
    rival = LCLGP((X, Y), kernel, BernoulliLogit())
    LinearlyConstrainedLagrangian(tolerance=1e-11).run(rival)
    assert_allclose(model.elbo(), rival.elbo(), atol=1e-5)  # the jitter, which only one of them has
    skewed = AffineIndependentGP((X, Y), kernel, BernoulliLogit())
    result = AffineIndependentAscent().run(skewed)
    assert result.elbo > model.elbo() + 0.005 and result.kept == "affine"


@pytest.mark.exhaustive
def test_the_structure_lu():
    full, structured = logistic_run()[1], logistic_run(structure="lu")[1]
    assert_allclose(structured.elbo, full.elbo, atol=1e-4)
    assert structured.elbo >= structured.gaussian_elbo


@pytest.mark.exhaustive
def test_few_variables_that_are_not_normal():
    """The best directions come first: two of four have most of the gain, and any number is at least
    as good as none.
    """
    full, (model, two) = logistic_run()[1], logistic_run(non_normal=2)
    assert (
        two.gaussian_elbo + 0.8 * full.gain < two.elbo < full.elbo
        and two.predicted_gain < full.predicted_gain
    )
    assert model.basis.shapes.shape == (2, 1)
    unrotated = AffineIndependentAscent(rotate=False).run(model)
    assert two.gaussian_elbo < unrotated.elbo < full.elbo + 1e-4


@pytest.mark.exhaustive
def test_single_precision():
    """From data to predictions; the bound to the square root of the precision."""
    X, Y = logistic_data(6, 3)
    results = []
    for dtype in (np.float64, np.float32):
        with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
            prior = tfd.Laplace(dtype(0.0), dtype(1.0))
            data = (0.3 * X).astype(dtype), Y.astype(dtype)
            model = AffineIndependentGLM(data, BernoulliLogit(), prior=prior, intercept=False)
            result = AffineIndependentAscent(tolerance=1e-3).run(model)
            mean, variance = model.predict_y(data[0])
            assert mean.dtype == variance.dtype == dtype and model.basis.b.dtype == dtype
            results.append((result.elbo, mean))
    assert_allclose(results[1][0], results[0][0], atol=0.01)
    assert_allclose(results[1][1], results[0][1], atol=0.02)


@pytest.mark.exhaustive
def test_the_rotation_is_worth_it():
    """The prediction (A19), and what is left of it without a rotation."""
    model, result = logistic_run()
    assert_allclose(result.predicted_gain, result.gain, rtol=0.3)
    X, Y = logistic_data(5, 4)
    other = AffineIndependentGLM((X, Y), BernoulliLogit(), intercept=False)
    start = AffineIndependentAscent(rotate=False).run(other)
    assert start.predicted_gain < result.predicted_gain
    assert start.elbo <= result.elbo + 1e-2


@pytest.mark.exhaustive
@pytest.mark.parametrize("base", ["skew_normal", "generalized_normal"])
def test_no_other_rotation_promises_more(base, rng):
    """Of rotations next to the one that is chosen, and of the Cholesky factor itself."""
    X, Y = logistic_data(8, 3)
    model = AffineIndependentGLM((X, Y), BernoulliLogit(), base=base, intercept=False)
    groups, b, A = model.site_groups(), np.zeros(3), 0.4 * np.eye(3)
    best = edgeworth_start(groups, b, A, model.basis.base, rotate=True)
    assert_allclose(best.A @ best.A.T, A @ A.T, atol=1e-12)
    moves = [expm(0.1 * (S - S.T)) for S in rng.normal(size=(12, 3, 3))]
    roots = [A, *(best.A @ move for move in moves)]
    gains = [
        edgeworth_start(groups, b, root, model.basis.base, rotate=False).gain for root in roots
    ]
    assert max(gains) < best.gain and gains[0] < 0.9 * best.gain


@pytest.mark.exhaustive
def test_slopes_of_the_edgeworth_expansion():
    """The bound gains gamma s / 6 - gamma^2 / 12 a dimension, (A18), near a Gaussian optimum."""
    X, Y = logistic_data(8, 3)
    model = AffineIndependentGLM((0.5 * X, Y), BernoulliLogit(), base="normal", intercept=False)
    AffineIndependentAscent(tolerance=1e-12).run(model)
    A, b, gaussian = model.basis.matrix().numpy(), model.basis.b.numpy(), model.elbo().numpy()
    model.basis.assign_base("skew_normal")
    groups = model.site_groups()
    start = edgeworth_start(groups, b, A, model.basis.base, rotate=False)
    delta = start.theta[:, 0] / np.sqrt(1.0 + start.theta[:, 0] ** 2)
    m = delta * np.sqrt(2.0 / np.pi)
    s = 0.5 * (4.0 - np.pi) * m**3 / (1.0 - m**2) ** 1.5
    gamma = 0.02
    c = np.cbrt(2.0 * gamma / (4.0 - np.pi))
    small = np.sqrt(0.5 * np.pi) * c / np.sqrt(1.0 + c**2)
    for d in range(3):
        theta = np.zeros((3, 1))
        gains = []
        for sign in (-1.0, 1.0):
            theta[d] = sign * small / np.sqrt(1.0 - small**2)
            model.basis.theta.assign(theta)
            gains.append(model.bound(groups).numpy() - gaussian)
        assert_allclose((gains[1] - gains[0]) / (2.0 * gamma), s[d] / 6.0, atol=2e-3)


@pytest.mark.exhaustive
def test_a_gaussian_that_is_better_is_kept():
    """Laplace's density has no normal in its family."""
    model, result = logistic_run(base="laplace")
    assert result.affine_elbo < result.gaussian_elbo == result.elbo
    assert (
        result.kept == "gaussian"
        and model.basis.base.name == "normal"
        and "gaussian kept" in str(result)
    )
    assert_allclose(model.elbo(), result.elbo, atol=1e-9)


@pytest.mark.exhaustive
def test_a_worse_base_is_kept_on_request_and_fixed_shapes_stay():
    X, Y = logistic_data(5, 4)
    model = AffineIndependentGLM(
        (X, Y), BernoulliLogit(), base="generalized_normal", intercept=False
    )
    model.basis.theta.assign(np.full((4, 1), 1.05))
    set_trainable(model.basis.theta, False)
    result = AffineIndependentAscent(keep_better=False).run(model)
    assert_allclose(model.basis.shapes, 1.05)
    assert (
        result.elbo == result.affine_elbo < result.gaussian_elbo
        and result.kept == "affine"
        and result.gain < 0.0
    )
    assert_allclose(model.elbo(), result.elbo, atol=1e-6)


@pytest.mark.exhaustive
def test_the_record():
    result = logistic_run()[1]
    history = result.history
    assert {"step", "seconds", "elbo", "evaluations", "stage"} == set(history)
    for stage in (0, 1):
        assert np.all(np.diff(history["elbo"][history["stage"] == stage]) >= 0.0)
    assert result.evaluations == np.sum(history["evaluations"]) > 10
    assert isinstance(result, RunResult) and result.converged and result.reason == "converged"
    assert 0.0 < result.tracing_seconds < result.seconds and result.steps == len(history["step"])
    assert 0.0 < result.gaussian_seconds < result.seconds and np.all(
        np.diff(history["seconds"]) >= 0.0
    )
    assert result.gain == result.elbo - result.gaussian_elbo > 0.0
    assert "affine kept" in str(result)


@pytest.mark.exhaustive
def test_evaluations_are_limited():
    X, Y = logistic_data(5, 4)
    model = AffineIndependentGLM((X, Y), BernoulliLogit(), intercept=False)
    result = AffineIndependentAscent(max_evaluations=3).run(model)
    assert (
        result.reason == "evaluations done"
        and not result.converged
        and result.elbo >= result.gaussian_elbo
    )


def test_settings_are_checked():
    for options in ({"tolerance": 0.0}, {"max_evaluations": 0}):
        with pytest.raises(DataError, match="must be a (whole )?number"):
            AffineIndependentAscent(**options)


@pytest.mark.parametrize(
    "kind, way", [(CVIGP, "ConjugateComputation"), (LCLGP, "LinearlyConstrainedLagrangian")]
)
def test_models_of_other_families_are_refused(kind, way):
    X, Y = logistic_data(5, 2)
    model = kind((X, Y), gpflow.kernels.Matern32(), BernoulliLogit())
    with pytest.raises(
        ModelError,
        match=f"AffineIndependentAscent.*AffineIndependentGP, and got {kind.__name__}.*{way}",
    ):
        AffineIndependentAscent().run(model)


def test_a_start_without_a_bound_is_refused_and_nothing_changes():
    X = np.array([[1.0], [2.0], [3.0]])
    model = AffineIndependentGLM((X, 1e200 * X), gpflow.likelihoods.Gaussian(1e-5), intercept=False)
    before = model.basis.b.numpy()
    with pytest.raises(NumericalError, match="not finite"):
        AffineIndependentAscent().run(model)
    assert_allclose(model.basis.b, before)


def test_gradient_of_the_gaussian_bound_is_that_of_finite_differences():
    model = toy_model("sparse near", intercept_variance=3.0)
    problem = GaussianProblem(model.site_groups(), model.basis.gaussian, 0.0, model.integration)
    b, root = np.array([0.3, -0.2]), np.array([[0.8, 0.0], [-0.4, 0.6]])
    _, d_b, d_root = problem.value_and_gradient(b, root)
    step = 1e-5
    for move_b, move_root, slope in (
        (np.array([1.0, 0.0]), np.zeros((2, 2)), d_b[0]),
        (np.array([0.0, 1.0]), np.zeros((2, 2)), d_b[1]),
        (np.zeros(2), np.array([[1.0, 0.0], [0.0, 0.0]]), d_root[0, 0]),
        (np.zeros(2), np.array([[0.0, 0.0], [1.0, 0.0]]), d_root[1, 0]),
        (np.zeros(2), np.array([[0.0, 0.0], [0.0, 1.0]]), d_root[1, 1]),
    ):
        values = [
            problem.at(b + sign * step * move_b, root + sign * step * move_root)[0]
            for sign in (-1.0, 1.0)
        ]
        assert_allclose(slope, (values[1] - values[0]) / (2.0 * step), rtol=1e-6)
