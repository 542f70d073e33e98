"""A bound that is not finite at the start names the observation."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from gpflow import likelihoods as gl

import gpflow_decoupled
from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.likelihoods import Laplace, Ordinal
from gpflow_decoupled.models import (
    CVIGP,
    LCLGLM,
    LCLGP,
    ODVGP,
    AffineIndependentGLM,
    AffineIndependentGP,
    SparseCVIGP,
)
from gpflow_decoupled.optimizers import (
    AffineIndependentAscent,
    CholeskyKL,
    ConjugateComputation,
    ConstraintSubset,
    LinearlyConstrainedLagrangian,
    OpperArchambeau,
    sweep,
)

X = np.linspace(0.0, 3.0, 8)[:, None]
CLASSES = np.array([1.0, 1.0, 2.0, 0.0, 1.0, 2.0, 1.0, 0.0])[:, None]
EDGES = np.array([-0.5, 0.5])
CASES = {
    "scale": (
        lambda: gl.Poisson(),
        3.0 * CLASSES,
        2000.0,
        "Poisson is -inf at row 0 .*smaller variance",
    ),
}
RUNS = {
    "run": lambda *parts: ConjugateComputation().run(CVIGP((X, parts[2]), *parts[:2])),
    "fit": lambda *parts: gpflow_decoupled.fit(
        CVIGP((X, parts[2]), *parts[:2]), steps=2, progress=False
    ),
    "inducing": lambda *parts: gpflow_decoupled.fit(
        ODVGP(*parts[:2], X[::2], X[1::2]), (X, parts[2]), steps=2, progress=False
    ),
    "sweep": lambda *parts: sweep(SparseCVIGP(*parts[:2], X[::2]), (X, parts[2])),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", CASES)
def test_start_that_is_not_finite_names_the_observation(name, run):
    make, Y, variance, message = CASES[name]
    with pytest.raises(NumericalError, match=message):
        RUNS[run](gpflow.kernels.Matern32(variance=variance), make(), Y)


@pytest.mark.exhaustive
def test_the_ordinal_of_the_message_works():
    model = CVIGP((X, CLASSES), gpflow.kernels.Matern32(), Ordinal(EDGES))
    assert np.isfinite(ConjugateComputation().run(model).elbo)
    mean, variance = model.predict_y(X)
    assert np.all((mean > 0.0) & (mean < 2.0) & (variance > 0.0))


def too_narrow(likelihood, name):
    """A likelihood under which every finite residual has an infinite loss."""
    setattr(likelihood, name, gpflow.Parameter(1e-320))
    return likelihood


NARROW = {
    "Gaussian": lambda: too_narrow(gl.Gaussian(1.0), "variance"),
    "Laplace": lambda: too_narrow(Laplace(1.0), "scale"),
}


def fitted(model):
    return gpflow_decoupled.fit(model, steps=2, progress=False)


def _lcl(likelihood, variance=1.0):
    return LCLGP((X, 3.0 * CLASSES), gpflow.kernels.Matern32(variance=variance), likelihood)


def _affine(likelihood, variance=1.0):
    return AffineIndependentGP(
        (X, 3.0 * CLASSES), gpflow.kernels.Matern32(variance=variance), likelihood
    )


def _sites(likelihood, variance=1.0):
    return CVIGP((X, 3.0 * CLASSES), gpflow.kernels.Matern32(variance=variance), likelihood)


OWNERS = {
    "LCLGP by fit": lambda one: fitted(_lcl(one)),
    "LCLGLM by fit": lambda one: fitted(LCLGLM((X, 3.0 * CLASSES), one)),
    "Lagrangian": lambda one: LinearlyConstrainedLagrangian().run(_lcl(one)),
    "Opper": lambda one: OpperArchambeau().run(_lcl(one)),
    "Cholesky": lambda one: CholeskyKL().run(_lcl(one)),
    "subset": lambda one: ConstraintSubset(3).run(_lcl(one)),
    "subset on batches": lambda one: ConstraintSubset(3, batch_size=3, steps=2).run(_lcl(one)),
    "affine by fit": lambda one: fitted(_affine(one)),
    "linear affine by fit": lambda one: fitted(AffineIndependentGLM((X, 3.0 * CLASSES), one)),
    "ascent": lambda one: AffineIndependentAscent().run(_affine(one)),
    "step": lambda one: ConjugateComputation().minimize(_sites(one)),
    "batches": lambda one: ConjugateComputation(0.5).run(_sites(one), batch_size=3, steps=2),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("run", OWNERS)
def test_models_with_their_own_data_name_observation_and_parameter(run, name):
    with pytest.raises(
        NumericalError, match=rf"density of {name} is .* Y = \[.*1.e-320 of the likelihood"
    ) as info:
        OWNERS[run](NARROW[name]())
    assert "learning rate" not in str(info.value)
    assert info.value.matrix == f"expected log density of {name}"


def test_batch_names_the_row_of_the_whole_data_and_its_mean_function_moments():
    Y = np.zeros((8, 1))
    Y[5] = 1e200
    model = CVIGP(
        (X, Y),
        gpflow.kernels.Matern32(),
        gl.Gaussian(),
        mean_function=gpflow.functions.Constant(0.25),
    )
    rule = ConjugateComputation(0.5)
    rule.minimize(model, [0, 1])
    before = model.basis.nu.numpy()
    with pytest.raises(
        NumericalError, match=r"-inf at row 5 of the data, Y = \[1.e\+200\]"
    ) as info:
        rule.minimize(model, [1, 5, 6])
    mean, variance = (part.numpy()[5] for part in model.predict_f(X))
    assert (
        f"mean {np.array2string(mean, precision=4)} and variance"
        f" {np.array2string(variance, precision=4)}" in str(info.value)
    )
    np.testing.assert_array_equal(model.basis.nu, before)


def test_sites_without_a_finite_bound_are_refused_even_where_gradients_are_finite():
    narrow = gl.StudentT()
    narrow.scale = gpflow.Parameter(1e-200)
    with pytest.raises(NumericalError, match=r"StudentT is nan at row .*scale = 1.e-200"):
        ConjugateComputation(0.5).run(_sites(narrow), batch_size=3, steps=2)


@pytest.mark.exhaustive
def test_sweep_looks_at_every_block():
    Y = np.zeros((8, 1))
    Y[1] = 1e200
    model = SparseCVIGP(gpflow.kernels.Matern32(), gl.Gaussian(), X[::2])
    with pytest.raises(NumericalError, match=r"-inf at row 1 of the data, Y = \[1.e\+200\]"):
        sweep(model, (X, Y), block=3)


def test_curvature_that_overflows_names_the_parameter():
    narrow = gl.StudentT()
    narrow.scale = gpflow.Parameter(1e-200)
    with pytest.raises(
        gpflow_decoupled.errors.DataError, match=r"curvature .* scale = 1.e-200 of the likelihood"
    ):
        _lcl(narrow)


@pytest.mark.exhaustive
def test_gradient_that_is_not_finite_names_the_parameter():
    narrow = gl.StudentT()
    narrow.scale = gpflow.Parameter(1e-200)
    with pytest.raises(
        NumericalError, match=r"one of its gradients.*scale = 1.e-200 of the likelihood"
    ):
        fitted(_affine(narrow))


@pytest.mark.exhaustive
def test_prior_that_is_too_wide_is_named_without_a_parameter():
    with pytest.raises(
        NumericalError,
        match=r"Poisson is -2.688e.43 at row 0 .*variance \[10000.\].*smaller variance",
    ):
        ConstraintSubset(3).run(_lcl(gl.Poisson(), variance=1e4))
