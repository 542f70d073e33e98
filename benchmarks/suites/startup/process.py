"""What one fresh process of the start-up suite does. It imports nothing but what its kind of work
needs.

It is run as a script, by its path, because the packages around it import more.
"""

from __future__ import annotations

__all__ = ["PROGRAMS"]

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

_DIMENSION, _NUM_DATA, _NOISE = 4, 2000, 0.1

Done = Callable[[str], None]
"""Called with the name of a kind of work at the time when it is done."""


class Sizes(NamedTuple):
    """What a training step depends on."""

    num_beta: int
    batch_size: int
    seed: int


def imports(sizes: Sizes, done: Done) -> None:
    """Import GPflow and then this package, in one process, because the difference is smaller than
    the noise between two.
    """
    import gpflow  # noqa: F401

    done("import gpflow")
    import gpflow_decoupled  # noqa: F401

    done("import gpflow_decoupled")


def gpflow_step(sizes: Sizes, done: Done) -> None:
    """A step of GPflow's SVGP by its own natural gradient and Adam, in one compiled function that
    gathers its rows.
    """
    import gpflow
    import tensorflow as tf
    from gpflow.keras import tf_keras

    X, Y, beta, _ = _problem(sizes)
    model = gpflow.models.SVGP(*_kernel_and_likelihood(gpflow), beta, num_data=_NUM_DATA)
    gpflow.set_trainable([model.q_mu, model.q_sqrt], False)
    natural_gradient, adam = gpflow.optimizers.NaturalGradient(0.2), tf_keras.optimizers.Adam(0.03)
    adam.build(model.trainable_variables)
    inputs, outputs, generator = (
        tf.constant(X),
        tf.constant(Y),
        tf.random.Generator.from_seed(sizes.seed),
    )

    @tf.function
    def step() -> None:
        rows = generator.uniform([sizes.batch_size], 0, _NUM_DATA, tf.int32)
        batch = tf.gather(inputs, rows), tf.gather(outputs, rows)
        natural_gradient.minimize(lambda: model.training_loss(batch), [(model.q_mu, model.q_sqrt)])
        adam.minimize(lambda: model.training_loss(batch), model.trainable_variables)

    step()
    done("first step, GPflow SVGP")


def coupled_step(sizes: Sizes, done: Done) -> None:
    """A step of the same family by `fit`."""
    import gpflow

    import gpflow_decoupled as gd

    X, Y, beta, _ = _problem(sizes)
    model = gd.models.BasisGP(*_kernel_and_likelihood(gpflow), gd.bases.CoupledBasis(beta))
    gd.fit(model, (X, Y), steps=1, batch_size=sizes.batch_size, seed=sizes.seed, progress=False)
    done("first step, coupled")


def orthogonal_step(sizes: Sizes, done: Done) -> None:
    """A step of `ODVGP` by `fit`, with twice as many points for the mean alone."""
    import gpflow

    import gpflow_decoupled as gd

    X, Y, beta, gamma = _problem(sizes)
    model = gd.models.ODVGP(*_kernel_and_likelihood(gpflow), gamma, beta)
    gd.fit(model, (X, Y), steps=1, batch_size=sizes.batch_size, seed=sizes.seed, progress=False)
    done("first step, orthogonal")


def _problem(sizes: Sizes) -> tuple[Any, ...]:
    """X [N, D], Y [N, 1], beta [M, D] and gamma [2 M, D]."""
    import numpy as np

    rng = np.random.default_rng(sizes.seed)
    X = rng.standard_normal([_NUM_DATA, _DIMENSION])
    Y = np.sin(X.sum(1, keepdims=True)) + _NOISE * rng.standard_normal([_NUM_DATA, 1])
    points = rng.standard_normal([3 * sizes.num_beta, _DIMENSION])
    return X, Y, points[: sizes.num_beta], points[sizes.num_beta :]


def _kernel_and_likelihood(gpflow: Any) -> tuple[Any, Any]:
    return gpflow.kernels.Matern52(lengthscales=[1.0] * _DIMENSION), gpflow.likelihoods.Gaussian(
        1.0
    )


PROGRAMS = {"import": [imports], "step": [gpflow_step, coupled_step, orthogonal_step]}
"""Part of the suite -> its processes."""


if __name__ == "__main__":
    start = time.perf_counter()
    measured: dict[str, dict[str, float]] = {}

    def note(kind: str) -> None:
        measured[kind] = {"processor": time.process_time(), "wall": time.perf_counter() - start}

    part, index, *numbers = sys.argv[1:]
    PROGRAMS[part][int(index)](Sizes(*map(int, numbers)), note)
    print(json.dumps(measured))
