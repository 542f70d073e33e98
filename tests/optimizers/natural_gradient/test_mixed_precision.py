"""Products with rows of data in float32, while factorisations and natural parameters stay in
float64.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import (
    CoupledBasis,
    DecoupledBasis,
    HybridBasis,
    MeanOnDataBasis,
    OrthogonalBasis,
    SolveBasis,
)
from gpflow_decoupled.errors import UnknownOptionError
from gpflow_decoupled.models import CVIGP, SOLVEGP, BasisGP
from gpflow_decoupled.optimizers import NaturalGradient
from gpflow_decoupled.optimizers.natural_steps import BoundGradients, evaluate
from gpflow_decoupled.training import fit

RNG = np.random.default_rng(3)
X = RNG.uniform(-2.0, 2.0, (200, 2))
Y = (np.sin(2.0 * X[:, :1]) + 0.3 * RNG.normal(size=(200, 1)) > 0.0).astype(float)
BETA, GAMMA = X[:20], X[20:35] + 0.01
BASES = {
    "coupled": lambda: CoupledBasis(BETA),
    "orthogonal": lambda: OrthogonalBasis(GAMMA, BETA),
    "hybrid": lambda: HybridBasis(GAMMA, BETA),
}


def _model(name: str, lengthscale: float = 0.8) -> BasisGP:
    """A model some natural steps from the prior."""
    model = BasisGP(
        gpflow.kernels.SquaredExponential(lengthscales=lengthscale),
        gl.Bernoulli(),
        BASES[name](),
        num_data=200,
    )
    if model.basis.kernel_mean is not None:
        model.basis.kernel_mean.coefficients.assign(
            0.1 * np.random.default_rng(1).normal(size=(15, 1))
        )
    for _ in range(3):
        NaturalGradient(0.3).minimize(model, (X, Y))
    return model


def _both(model: BasisGP, hold: bool = True) -> tuple[BoundGradients, BoundGradients]:
    """The derivatives in full and in mixed precision."""
    hold = hold and model.basis.holds_sites
    variables = [*model.kernel.trainable_variables, *model.basis.beta.trainable_variables]
    full, mixed = (
        evaluate(model, (X, Y), variables, hold_sites=hold, with_target=True, low=low)
        for low in (None, tf.float32)
    )
    return full, mixed


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("hold", [True, False])
def test_the_derivatives_are_those_of_full_precision(name: str, hold: bool) -> None:
    full, mixed = _both(_model(name), hold)
    assert_allclose(mixed.elbo, full.elbo, rtol=1e-6)
    assert {part.dtype for part in tf.nest.flatten(mixed)} == {tf.float64, tf.bool}
    for left, right in zip(
        (*mixed.gradients, *mixed.target), (*full.gradients, *full.target), strict=True
    ):
        assert_allclose(left, right, atol=1e-4 * np.max(np.abs(right)))
        assert np.any(np.not_equal(left, right)), "nothing was in single precision"


def test_whitening_keeps_its_digits_where_the_points_are_nearly_dependent() -> None:
    """Solving with the factor in single precision would lose some four digits here."""
    model = _model("coupled", lengthscale=4.0)
    assert np.linalg.cond(model.kernel(BETA) + 1e-6 * np.eye(20)) > 1e6
    full, mixed = _both(model)
    exact, A = full.features.minus[0], mixed.features.minus[0]
    assert_allclose(A, exact, rtol=1e-7)
    assert_allclose(mixed.variance, full.variance, atol=1e-6 * np.max(full.variance))
    assert_allclose(
        mixed.target.precision, full.target.precision, atol=1e-6 * np.max(full.target.precision)
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("hold", [True, False])
def test_at_the_prior_lengthscales_and_points_have_no_gradient(hold: bool) -> None:
    """Rounding errors in its place would make Adam's first step as long as any."""
    model = BasisGP(gpflow.kernels.Matern52(), gl.Bernoulli(), CoupledBasis(BETA), num_data=200)
    for gradients in (one.gradients for one in _both(model, hold)):
        lengthscales, _, points = gradients
        assert (
            float(tf.abs(lengthscales)) <= 1e-12 and float(tf.reduce_max(tf.abs(points))) <= 1e-12
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options", [{}, {"natural_gradient": None}, {"hold": "whitened", "batch_size": 50}]
)
def test_training_takes_the_same_path(options: dict) -> None:
    found = []
    for precision in ("full", "mixed"):
        model = BasisGP(
            gpflow.kernels.Matern52(), gl.Gaussian(0.1), CoupledBasis(BETA), num_data=200
        )
        result = fit(
            model, (X, Y), steps=25, precision=precision, progress=False, seed=0, **options
        )
        found.append(
            [result.elbo, *(np.ravel(parameter) for parameter in model.trainable_parameters)]
        )
        assert all(variable.dtype == tf.float64 for variable in model.variables)
    for left, right in zip(*found, strict=True):
        assert_allclose(left, right, rtol=2e-3, atol=2e-3)
    assert found[0][0] != found[1][0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("basis", ["orthogonal", "data", "svgp"])
def test_every_model_on_such_a_basis_takes_it(basis: str) -> None:
    bounds = []
    for precision in ("full", "mixed"):
        kernel, likelihood = gpflow.kernels.Matern52(), gl.Gaussian(0.1)
        model = gpflow.models.SVGP(kernel, likelihood, BETA.copy(), num_data=200)
        if basis != "svgp":
            model = BasisGP(
                kernel,
                likelihood,
                OrthogonalBasis(GAMMA, BETA) if basis == "orthogonal" else MeanOnDataBasis(BETA),
            )
        bounds.append(
            fit(model, (X, Y), steps=20, precision=precision, progress=False, seed=0).elbo
        )
    assert_allclose(*bounds, rtol=1e-4)


def test_what_cannot_use_it_refuses() -> None:
    parts = gpflow.kernels.Matern52(), gl.Bernoulli()
    with pytest.raises(UnknownOptionError, match="SolveBasis computes in one precision alone"):
        fit(SOLVEGP(*parts, GAMMA, BETA), (X, Y), steps=1, precision="mixed", progress=False)
    with pytest.raises(UnknownOptionError, match="DecoupledBasis computes in one precision"):
        fit(
            BasisGP(*parts, DecoupledBasis(GAMMA, BETA)),
            (X, Y),
            steps=1,
            precision="mixed",
            progress=False,
        )
    with pytest.raises(UnknownOptionError, match="does not use precision='mixed'"):
        fit(CVIGP((X, Y), *parts), steps=1, precision="mixed", progress=False)
    with pytest.raises(UnknownOptionError, match="precision.*full.*mixed"):
        fit(BasisGP(*parts, CoupledBasis(BETA)), (X, Y), steps=1, precision="half", progress=False)
    assert SolveBasis(GAMMA, BETA).mixes_precision is False
