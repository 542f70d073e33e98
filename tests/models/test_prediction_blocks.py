"""Predictions at many inputs are computed in blocks of rows, and are those of all rows at once."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import base
from gpflow_decoupled.bases.orthogonal import OrthogonalMeanBasis
from gpflow_decoupled.models import CVIGP, ODVGP
from gpflow_decoupled.optimizers import ConjugateGradients
from tests.bounds.registry import matern
from tests.models.builders import BETA, MODELS, X, build

NEW = np.random.default_rng(8).uniform(-2.0, 2.0, (20, 2))
OBSERVED = np.random.default_rng(9).normal(size=(len(X), 1))


def _on_data() -> ODVGP:
    model = ODVGP(matern(1.3, 0.8), gpflow.likelihoods.Gaussian(0.1), "data", BETA)
    ConjugateGradients().run(model, (X, OBSERVED))
    return model


def _mixed() -> ODVGP:
    kernel = LinearCoregionalization(
        [matern(1.3, 0.8), matern(0.6, 1.4)], np.array([[1.0, 0.2], [0.4, 0.9], [0.1, 0.3]])
    )
    return ODVGP(kernel, gpflow.likelihoods.Gaussian(0.1), X, BETA, num_latent_gps=2)


OTHERS = {
    "data": _on_data,
    "mixed": _mixed,
    "full": lambda: CVIGP((X, OBSERVED), matern(1.3, 0.8), gpflow.likelihoods.Gaussian(0.1)),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [*MODELS, *OTHERS])
def test_blocks_of_rows_predict_what_all_rows_do(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cached and not, with batch dimensions and covariances of outputs; inside a `tf.function`
    there are no blocks.
    """
    model = OTHERS[name]() if name in OTHERS else build(name)[0]

    def predictions() -> list[Any]:
        posterior = model.posterior()
        new = tf.constant(NEW)
        return [
            *model.predict_f(new),
            *posterior.predict_f(tf.reshape(new, [4, 5, 2])),
            *posterior.predict_f(new, full_output_cov=True),
            *tf.function(posterior.predict_f, autograph=False)(new),
        ]

    expected = predictions()
    rows, features = list[int](), type(model.basis).features

    def counted(self: Any, state: Any, kernel: Any, inputs: tf.Tensor) -> Any:
        rows.append(inputs.shape[0])
        return features(self, state, kernel, inputs)

    monkeypatch.setattr(type(model.basis), "features", counted)
    monkeypatch.setattr(base, "EAGER_ROWS", 7)
    for found, whole in zip(predictions(), expected, strict=True):
        assert_allclose(found, whole, rtol=1e-12, atol=1e-13)
    assert rows == 3 * [7, 7, 6] + [20]


def test_the_largest_block_and_what_is_not_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """8192 rows; the last block has what is left, and full covariances are of all rows."""
    rows, features = list[int](), OrthogonalMeanBasis.features

    def counted(self: Any, state: Any, kernel: Any, inputs: tf.Tensor) -> Any:
        rows.append(inputs.shape[0])
        return features(self, state, kernel, inputs)

    monkeypatch.setattr(OrthogonalMeanBasis, "features", counted)
    model = build("ODVGP")[0]
    mean, variance = model.predict_f(np.zeros((8192 + 5, 2)))
    assert rows == [8192, 5] and mean.shape == variance.shape == (8197, 2)
    monkeypatch.setattr(base, "EAGER_ROWS", 7)
    assert model.predict_f(NEW, full_cov=True)[1].shape == (2, 20, 20) and rows[2:] == [20]


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", ["ODVGP", "data"])
def test_blocks_of_rows_have_the_bound_of_all_rows(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its gradient."""
    model = OTHERS[name]() if name in OTHERS else build(name)[0]
    Y = np.zeros((len(X), model.num_latent_gps)) + OBSERVED
    variables = [
        model.kernel.lengthscales.unconstrained_variable,
        model.basis.beta.Z.unconstrained_variable,
    ]

    def bound_and_gradient() -> list[Any]:
        with tf.GradientTape() as tape:
            bound = model.elbo((X, Y))
        return [bound, *tape.gradient(bound, variables)]

    expected, rows, features = bound_and_gradient(), list[int](), OrthogonalMeanBasis.features

    def counted(self: Any, state: Any, kernel: Any, inputs: tf.Tensor) -> Any:
        rows.append(inputs.shape[0])
        return features(self, state, kernel, inputs)

    monkeypatch.setattr(OrthogonalMeanBasis, "features", counted)
    monkeypatch.setattr(base, "EAGER_ROWS", 4)
    for found, whole in zip(bound_and_gradient(), expected, strict=True):
        assert_allclose(found, whole, rtol=1e-9)
    assert rows == [4, 2]
