"""No product of the package is of the kind that TensorFlow computes wrongly in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.distributions import BASES
from gpflow_decoupled.special import hermite_lookup
from tests.models.builders import LIKELIHOODS, MODELS, X, build
from tests.traced import broadcast_products

Y = np.sin(X[:, :1]) + 0.1


def _with_gradient(value: Callable[[], tf.Tensor], variables: Sequence[tf.Variable]) -> list:
    with tf.GradientTape() as tape:
        found = value()
    return [found, tape.gradient(found, variables)]


def _complaints(model: gpflow.models.GPModel, value: Callable[[], tf.Tensor]) -> list[str]:
    """Of the bound with its gradient, and of every prediction."""
    verbs = [
        lambda: _with_gradient(value, model.trainable_variables),
        lambda: model.predict_f(X, full_cov=True),
        lambda: model.predict_f_samples(X, 3),
        lambda: model.predict_y(X),
    ]
    return [line for verb in verbs for line in broadcast_products(verb)]


def test_the_guard_complains() -> None:
    """About a product, in a loop, in a branch and in a gradient; and not about ranks up to 3."""
    four, three = tf.TensorSpec([2, 3, 4, 5]), tf.TensorSpec([3, 4, 5])
    two, same = tf.TensorSpec([5, 5]), tf.TensorSpec([2, 3, 5, 4])
    assert broadcast_products(tf.matmul, four, two)
    assert broadcast_products(lambda x, y: tf.map_fn(lambda a: tf.matmul(a[None], y), x), four, two)
    branch = lambda x, y: tf.cond(x[0, 0, 0, 0] > 0.0, lambda: tf.matmul(x, y), lambda: x)  # noqa: E731
    assert broadcast_products(branch, four, two)
    assert not broadcast_products(tf.matmul, three, two)
    assert not broadcast_products(tf.matmul, four, same)


@pytest.mark.parametrize("axes", [(), (6, 1), (2, 6, 1)])
def test_lookups(axes: tuple[int, ...]) -> None:
    """Tables of any rank, in float32 and with their gradients; `[6, 1]` ended the process."""
    table = np.cos(0.05 * np.arange(81, dtype=np.float32)) * np.ones((*axes, 1), np.float32)
    slopes = [table, -table, table]
    x = np.ones(7, np.float32)

    def run(*tables: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(tables)
            value = hermite_lookup(tables, 0.05, tf.constant(x))
        return [value, *tape.gradient(value, tables)]

    assert not broadcast_products(run, *map(tf.constant, slopes))
    assert all(np.all(np.isfinite(one)) for one in run(*map(tf.constant, slopes)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("base", BASES)
def test_affine_independent_models(base: str) -> None:
    model = gd.models.AffineIndependentGP(
        (X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.StudentT(), base=base
    )
    assert not _complaints(model, model.elbo)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODELS)
def test_models_on_inducing_points(name: str) -> None:
    """With two latents; `test_likelihoods` looks at all likelihoods."""
    model, data = build(name, "Gaussian")
    assert not _complaints(model, lambda: model.elbo(data))


@pytest.mark.exhaustive
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_likelihoods(likelihood: str) -> None:
    model, data = build("BasisGP", likelihood)
    assert not _complaints(model, lambda: model.elbo(data))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [gd.models.CVIGP, gd.models.LCLGP])
def test_models_with_sites(kind: type) -> None:
    model = kind((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.StudentT())
    assert not _complaints(model, model.elbo)


@pytest.mark.exhaustive
def test_float32_survives() -> None:
    """The model that ended the process, with its gradient; a crash ends this test run."""
    gpflow.config.set_default_float(np.float32)
    model = gd.models.AffineIndependentGP(
        (X.astype(np.float32), Y.astype(np.float32)),
        gpflow.kernels.Matern52(),
        gpflow.likelihoods.StudentT(),
        base="generalized_normal",
    )
    value, slopes = _with_gradient(model.elbo, model.trainable_variables)
    assert np.isfinite(value) and all(np.all(np.isfinite(one)) for one in slopes)
