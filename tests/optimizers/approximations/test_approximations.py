"""EP and Laplace's approximation: what both promise, and what both refuse."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_decoupled.errors import DataError, ModelError, NumericalError
from gpflow_decoupled.likelihoods import Binomial, CategoricalLogit, Laplace
from gpflow_decoupled.models import CVIGP, LCLGP
from gpflow_decoupled.optimizers import (
    ConjugateComputation,
    ExpectationPropagation,
    LaplaceApproximation,
)
from tests.bounds.registry import matern
from tests.models.conjugate_problems import NOISE, conjugate_model, gram, prior_mean, problem
from tests.models.conjugate_problems import X as INPUTS
from tests.optimizers.approximations.evidence_problems import evidence_model, labels_of, sites_of
from tests.reference import classes as ref
from tests.reference import conjugate as conj

N, C = 6, 3
X = np.random.default_rng(0).uniform(-2.0, 2.0, (N, 2))
LABELS = np.argmax(np.sin(2.0 * X[:, :1] + 2.1 * np.arange(C)), axis=1)
both = pytest.mark.parametrize("kind", [ExpectationPropagation, LaplaceApproximation])


def model(rows: int = N, variance: float = 1.3) -> CVIGP:
    """Classes, with a kernel for each."""
    kernels = [gpflow.kernels.Matern52(variance * (1.0 + 0.5 * c), 0.8) for c in range(C)]
    kernel = gpflow.kernels.SeparateIndependent(kernels)
    Y = LABELS[:rows, None].astype(float)
    return CVIGP((X[:rows], Y), kernel, CategoricalLogit(C), num_latent_gps=C)


def grams(one: CVIGP) -> np.ndarray:
    return np.array([np.asarray(kernel(one.data[0])) for kernel in one.kernel.kernels])


@pytest.mark.exhaustive
@pytest.mark.parametrize("rule", [ExpectationPropagation(0.3, damping=0.0), LaplaceApproximation()])
def test_gaussian_noise_is_exact(rule):
    one = evidence_model("Gaussian")
    result = rule.run(one)
    exact = conj.log_evidence(gram(one), prior_mean(one), labels_of(one), NOISE)
    assert_allclose([result.evidence_estimate, result.elbo], exact, rtol=1e-9)
    assert_allclose(one.basis.tau, np.full((len(INPUTS), 1), 1.0 / NOISE), rtol=1e-9)
    assert "no bound" in str(result) and result.steps <= 2
    history = result.history
    assert len(history["step"]) == result.steps
    assert history["evidence_estimate"][-1] == result.evidence_estimate


@pytest.mark.exhaustive
@both
@pytest.mark.filterwarnings("ignore:There is one observation")
def test_a_column_of_trials_is_no_latent(kind: type) -> None:
    """Of one label of three trials, all successes, the density counts once."""
    Y = np.array([[3.0, 3.0]])
    one = CVIGP((X[:1], Y), gpflow.kernels.Matern52(1.3), Binomial(), num_latent_gps=1)
    result = kind().run(one)
    f = np.linspace(-12.0, 12.0, 4001)
    joint = -0.5 * f**2 / 1.3 - 3.0 * np.log1p(np.exp(-f)) - 0.5 * np.log(2.0 * np.pi * 1.3)
    if kind is ExpectationPropagation:
        expected = np.log(np.sum(np.exp(joint)) * (f[1] - f[0]))
        assert result.evidence_estimate == pytest.approx(expected, rel=1e-6)
    else:
        assert_allclose(one.predict_f(X[:1])[0], [[f[np.argmax(joint)]]], atol=0.01)


@pytest.mark.exhaustive
@pytest.mark.parametrize("variance", [1.3, 10.0])
def test_the_mode_of_classes_and_its_evidence(variance: float) -> None:
    one = model(variance=variance)
    result = LaplaceApproximation().run(one)
    expected = ref.mode(grams(one), LABELS)
    assert result.converged and result.steps <= 15
    assert result.evidence_estimate == pytest.approx(expected.evidence, rel=1e-9)
    mean, variances = one.predict_f(X)
    assert_allclose(mean, expected.f, atol=1e-7)
    # independent latents have the diagonal of the curvature, and no more than the joint's variances
    joint = np.diag(expected.covariance).reshape(C, N).T
    assert np.all(variances <= joint + 1e-9) and np.all(variances >= 0.5 * joint)
    assert result.elbo <= result.evidence_estimate + 1.0


@pytest.mark.exhaustive
def test_moments_of_classes_are_those_of_one_observation_after_the_other() -> None:
    one = model()
    result = ExpectationPropagation().run(one)
    expected = ref.propagate(grams(one), LABELS)
    assert result.converged
    assert result.evidence_estimate == pytest.approx(expected.evidence, rel=1e-7)
    for mine, theirs in zip(one.predict_f(X), (expected.mean, expected.variance)):
        assert_allclose(mine, theirs, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:There is one observation")
def test_one_label_of_a_class_is_exact() -> None:
    """Its marginals and evidence are those of the prior times the softmax."""
    one = model(rows=1)
    result = ExpectationPropagation().run(one)
    log_mass, mean, variance = ref.tilted(
        int(LABELS[0]), np.zeros(C), grams(one)[:, 0, 0], nodes=40
    )
    assert result.evidence_estimate == pytest.approx(log_mass, rel=1e-7)
    for found, expected in zip(one.predict_f(X[:1]), (mean, variance)):
        assert_allclose(found[0], expected, rtol=1e-6)
    # the bound is below
    assert ConjugateComputation().run(model(rows=1)).elbo < log_mass


EP, LA = ExpectationPropagation, LaplaceApproximation
ONE_LATENT = "needs one latent function.*use ConjugateComputation"
REFUSED = {
    "EP, multiclass": (lambda: problem("multiclass"), EP, {}, DataError, ONE_LATENT),
    "EP, two latents": (lambda: problem("heteroscedastic"), EP, {}, DataError, ONE_LATENT),
    "EP, mixed": (
        lambda: problem("Student-t, coregionalised"), EP, {}, DataError, ONE_LATENT,
    ),
    "Laplace, multiclass": (lambda: problem("multiclass"), LA, {}, DataError, ONE_LATENT),
    "Laplace, mixed": (
        lambda: problem("Student-t, coregionalised"), LA, {}, DataError, ONE_LATENT,
    ),
    "Laplace, straight lines": (
        lambda: conjugate_model(Laplace()), LA, {}, DataError,
        "made of straight lines.*use ExpectationPropagation",
    ),
    "a power of classes": (
        model, lambda: EP(0.5), {}, DataError, r"power=0.5 has no tilted moments.*power=1.0",
    ),
    "EP, no steps": (lambda: evidence_model("probit"), EP, {"steps": 0}, DataError, "^steps="),
    "EP, tolerance": (
        lambda: evidence_model("probit"), EP, {"tolerance": -1.0}, DataError, "^tolerance=",
    ),
}  # fmt: skip


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_approximation_is_refused_and_nothing_changed(case: str) -> None:
    make, rule, options, error, message = REFUSED[case]
    one = make()
    before = sites_of(one)
    with pytest.raises(error, match=message):
        rule().run(one, **options)
    for left, right in zip(before, sites_of(one)):
        assert_array_equal(left, right)


@both
def test_other_models_are_refused(kind: type) -> None:
    with pytest.raises(ModelError, match=f"^{kind.__name__}.run takes a model of the class CVIGP"):
        kind().run(LCLGP((INPUTS, INPUTS[:, :1]), matern(1.3, 0.8), gl.Gaussian()))


@pytest.mark.parametrize("kind, option, values", [
    (EP, "power", (0.0, 1.5, -1.0, "1", np.nan)),
    (EP, "damping", (1.0, -0.1, None)),
    (EP, "nodes", (3,)),
    (LA, "tolerance", (0.0,)),
    (LA, "max_steps", (0,)),
])  # fmt: skip
def test_numbers_out_of_range_are_refused(kind: type, option: str, values: tuple) -> None:
    for value in values:
        with pytest.raises(DataError, match=f"^{option}="):
            kind(**{option: value})


@pytest.mark.exhaustive
@both
def test_a_start_without_a_posterior_is_refused(kind: type) -> None:
    one = evidence_model("logit")
    start = np.full((len(INPUTS), 1), -50.0)
    one.basis.tau.assign(start)
    with pytest.raises(NumericalError, match="Set the sites nu and tau of the basis to zero"):
        kind().run(one)
    assert_allclose(one.basis.tau, start)
