"""Kernels whose Parameters have no gradient are refused by `fit`, rather than left where they are
unsaid.
"""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.kernels import (
    Kernel,
    LinearCoregionalization,
    SeparateIndependent,
    SquaredExponential,
    Static,
)

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.models import ODVGP
from gpflow_decoupled.optimizers import ConjugateGradients
from tests.training.problems import BETA, sine, unchanged, values

X, Y = sine()


class _Outside(SquaredExponential):
    """Computed by NumPy."""

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        inner = super().K(X, X2)
        found = tf.numpy_function(lambda array: 1.0 * array, [inner], X.dtype)
        found.set_shape(inner.shape)
        return found

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        found = tf.numpy_function(lambda array: 1.0 * array, [super().K_diag(X)], X.dtype)
        found.set_shape(X.shape[:1])
        return found


class _Stopped(SquaredExponential):
    """Its lengthscales have no gradient; its variance has."""

    def scale(self, X: tf.Tensor | None) -> tf.Tensor | None:
        return None if X is None else X / tf.stop_gradient(self.lengthscales)


class _Spare(SquaredExponential):
    """With a Parameter that nothing depends on."""

    def __init__(self) -> None:
        super().__init__(lengthscales=0.3)
        self.spare = gpflow.Parameter(1.0)


class _Noise(Static):
    """White noise as a kernel of a user's own, which has no covariances between rows."""

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        return (
            tf.zeros([len(X), len(X2)], X.dtype)
            if X2 is not None
            else tf.linalg.diag(self.K_diag(X))
        )


def _model(kernel: Kernel, latents: int = 1) -> ODVGP:
    return ODVGP(kernel, gl.Gaussian(0.1), "data", BETA, num_latent_gps=latents)


def _fit(model: ODVGP, Y: np.ndarray = Y, steps: int = 3) -> None:
    gd.fit(
        model,
        (X, Y),
        steps=steps,
        progress=False,
        compile=False,
        mean_solver=ConjugateGradients(tolerance=1e-2),
    )


REFUSED: dict[str, tuple[Callable[[], Kernel], str]] = {
    "NumPy": (
        lambda: _Outside(lengthscales=0.3),
        r"^kernel\.variance, kernel\.lengthscales act .*have no gradient",
    ),
    "stopped": (
        lambda: _Stopped(lengthscales=0.3),
        r"^kernel\.lengthscales acts on .*has no gradient",
    ),
    "part of a sum": (
        lambda: SquaredExponential() + _Stopped(),
        r"^kernel\.kernels\[1\]\.lengthscales acts",
    ),
    "second latent": (
        lambda: SeparateIndependent([SquaredExponential(), _Stopped()]),
        r"kernels\[1\]\.lengthscales",
    ),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("make, message", REFUSED.values(), ids=REFUSED)
def test_parameters_without_gradients_are_refused(make: Callable[[], Kernel], message: str) -> None:
    kernel = make()
    latents = 2 if isinstance(kernel, SeparateIndependent) else 1
    model = _model(kernel, latents)
    before = values(model)
    with pytest.raises(DataError, match=message) as caught:
        _fit(model, np.repeat(Y, latents, axis=1))
    assert unchanged(before, model) and model.basis.data_mean.size == 0 and model.num_data is None
    assert "gpflow.set_trainable" in str(
        caught.value
    ) and "ConjugateGradients().run(model, (X, Y))" in str(caught.value)


OTHERS: dict[str, Callable[[Kernel], gpflow.models.GPModel]] = {
    "SVGP": lambda kernel: gpflow.models.SVGP(kernel, gl.Gaussian(0.1), BETA),
    "coupled": lambda kernel: gd.models.BasisGP(
        kernel, gl.Gaussian(0.1), gd.bases.CoupledBasis(BETA)
    ),
    "full": lambda kernel: gd.models.CVIGP((X, Y), kernel, gl.Gaussian(0.1)),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_other_models_refuse_them_too(make: Callable[[Kernel], gpflow.models.GPModel]) -> None:
    model = make(_Stopped(lengthscales=0.3))
    before, data = values(model), None if isinstance(model, gd.models.CVIGP) else (X, Y)
    with pytest.raises(
        DataError,
        match=(
            r"^kernel\.lengthscales acts on .*set_trainable\(kernel\.lengthscales.*fit the rest\.$"
        ),
    ):
        gd.fit(model, data, steps=1, progress=False, compile=False)
    assert unchanged(before, model)
    gpflow.set_trainable(model.kernel.lengthscales, False)
    gd.fit(model, data, steps=1, progress=False, compile=False)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [_Outside, _Stopped])
def test_what_the_message_says_works(kind: type[SquaredExponential]) -> None:
    """At a fixed kernel the noise is learned, and so is the variance where it alone has a
    gradient.
    """
    kernel = kind(lengthscales=0.3)
    gpflow.set_trainable(kernel if kind is _Outside else kernel.lengthscales, False)
    model = _model(kernel)
    assert ConjugateGradients(tolerance=1e-2).run(model, (X, Y)).converged
    _fit(model)
    assert (
        kernel.lengthscales.numpy() == pytest.approx(0.3, rel=1e-12)
        and model.likelihood.variance.numpy() != 0.1
    )
    assert bool(abs(kernel.variance.numpy() - 1.0) < 1e-12) is (kind is _Outside)


ALLOWED: dict[str, Callable[[], Kernel]] = {
    "noise has no covariances": lambda: SquaredExponential(lengthscales=0.3) + _Noise(0.1),
    "a Parameter without effect": _Spare,
    "mixing": lambda: LinearCoregionalization(
        [SquaredExponential(), _Noise(0.1)], np.array([[1.0, 0.2], [0.3, 1.0]])
    ),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("make", ALLOWED.values(), ids=ALLOWED)
def test_parameters_that_act_nowhere_or_on_the_diagonal_alone_are_not(
    make: Callable[[], Kernel],
) -> None:
    kernel = make()
    mixed = isinstance(kernel, LinearCoregionalization)
    model = _model(kernel, 2 if mixed else 1)
    before = values(model)
    _fit(model, np.hstack([Y, -Y]) if mixed else Y, steps=1)
    assert np.any(model.basis.a_gamma)
    name = ".kernel.spare" if isinstance(kernel, _Spare) else ".basis.q_mu"
    assert np.array_equal(before[name], values(model)[name]) is isinstance(kernel, _Spare)
