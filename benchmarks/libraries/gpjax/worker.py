"""Trains GPJax's whitened SVGP in a Python that has GPJax 1.0, and writes its predictions.

`python worker.py FOLDER` reads `request.npz`, with X_train [N, D], Y_train [N, 1], X_test
[N_test, D] and beta [M, D], and `request.json`, with the training options that `train` lists. It
writes `answer.npz`, with mean and variance of the test outputs [S, N_test, 1] at each of S targets,
and prints one line of JSON: seconds, steps and bounds at these targets.

GPJax 1.0 needs NumPy 2, which GPflow does not take, so that this process and that of the benchmarks
share no library."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import gpjax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gpjax.natural_gradients import natural_gradient_step, partition_variational
from gpjax.parameters import val

from benchmarks.harness.records import Recorder

jax.config.update("jax_enable_x64", True)  # as GPJax's own guides do

_BATCH = 500
"""Rows of one prediction, whose full covariance GPJax computes."""
_RAMP_STEPS = 10
_FIRST_STEP = 1e-4
"""The step size of natural gradients grows geometrically from this one in so many steps, as for
GPflow.
"""


def build(beta: np.ndarray, noise: float) -> eqx.Module:
    """The whitened SVGP with a Matern-5/2 kernel and Gaussian noise, at the start that all
    libraries share.
    """
    kernel = gpjax.kernels.Matern52(lengthscale=jnp.ones(beta.shape[1]))
    prior = gpjax.gps.Prior(mean_function=gpjax.mean_functions.Zero(), kernel=kernel)
    model = prior * gpjax.likelihoods.Gaussian(jnp.sqrt(noise))
    return gpjax.variational_families.WhitenedVariationalGaussian(model, jnp.array(beta))


def strong(family: eqx.Module) -> eqx.Module:
    """The same family in arrays of fixed types; JAX types what Python numbers became "weakly", and
    no step returns that.
    """
    return jax.tree.map(
        lambda one: jnp.asarray(one, one.dtype) if eqx.is_array(one) else one, family
    )


def loss(family: eqx.Module, data: gpjax.Dataset) -> jax.Array:
    """The negative ELBO, in nats."""
    return -gpjax.objectives.elbo(family, data)


def compiled_step(
    family: eqx.Module, X: jax.Array, Y: jax.Array, request: dict[str, Any]
) -> tuple[Callable[..., tuple[Any, Any]], Any]:
    """A training step, compiled: (arrays of the family, optimiser's state, random key, gamma) to
    (arrays, state).

    With natural gradients, q takes one of step size gamma, and then Adam updates the rest; else
    Adam updates everything.

    :return: the step, and the first state of the optimiser.
    """
    adam, size = optax.adam(request["learning_rate"]), min(request["batch_size"], len(X))
    natural = request["natural_gradient"] is not None
    first, static = eqx.partition(family, eqx.is_array)

    def split(arrays: eqx.Module) -> tuple[eqx.Module, eqx.Module]:
        """What natural gradients update, and what Adam updates."""
        return (
            partition_variational(arrays)
            if natural
            else (jax.tree.map(lambda _: None, arrays), arrays)
        )

    def step(
        arrays: eqx.Module, state: Any, key: jax.Array, gamma: jax.Array
    ) -> tuple[eqx.Module, Any]:
        rows = jax.random.randint(key, [size], 0, len(X))
        batch = gpjax.Dataset(X[rows], Y[rows], n_total=len(X))
        q, rest = split(arrays)
        if natural:
            q, _ = natural_gradient_step(q, eqx.combine(rest, static), batch, loss, gamma)
        gradient = jax.grad(lambda rest: loss(eqx.combine(q, rest, static), batch))(rest)
        updates, state = adam.update(gradient, state, rest)
        return eqx.combine(q, optax.apply_updates(rest, updates)), state

    state = adam.init(split(first)[1])
    return jax.jit(step).lower(first, state, jax.random.key(0), jnp.array(0.1)).compile(), state


class Trained:
    """The arrays of a family while it is trained, with its predictions and its bound."""

    def __init__(self, family: eqx.Module, X: jax.Array, Y: jax.Array, X_test: jax.Array) -> None:
        self.arrays, self._static = eqx.partition(family, eqx.is_array)
        self._X, self._Y, self._X_test = X, Y, X_test
        self.means: list[np.ndarray] = []
        self.variances: list[np.ndarray] = []
        self._moments, self._loss = eqx.filter_jit(_moments), eqx.filter_jit(loss)

    def evaluate(self) -> dict[str, float]:
        """Add predictions of the test rows to `means` and `variances`, [N_test, 1] each, and return
        the ELBO.
        """
        family = eqx.combine(self.arrays, self._static)
        batches = range(0, len(self._X_test), _BATCH)
        moments = [self._moments(family, self._X_test[start : start + _BATCH]) for start in batches]
        for found, part in zip((self.means, self.variances), zip(*moments)):
            found.append(np.concatenate(part)[:, None])
        count = len(self._X)
        bounds = [
            len(X) * -float(self._loss(family, gpjax.Dataset(X, Y, n_total=count)))
            for X, Y in (
                (self._X[start : start + 2000], self._Y[start : start + 2000])
                for start in range(0, count, 2000)
            )
        ]
        return {"elbo": sum(bounds) / count}


def _moments(family: eqx.Module, X: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of y, [B] each."""
    q = family.predict(X)
    return q.mean, q.variance + val(family.model.likelihood.obs_stddev) ** 2


def train(folder: Path) -> dict[str, Any]:
    """Train as the request in `folder` says, write the predictions there, and return the answer.

    The request has `targets` and their `unit` ("seconds" or "steps"), `batch_size`, `learning_rate`
    of Adam, `natural_gradient` (its step size; None for Adam alone), `noise` (the first variance)
    and `seed`."""
    request = json.loads((folder / "request.json").read_text())
    with np.load(folder / "request.npz") as file:
        X, Y, X_test, beta = (
            jnp.array(file[name]) for name in ("X_train", "Y_train", "X_test", "beta")
        )
    family = strong(build(beta, request["noise"]))
    trained = Trained(family, X, Y, X_test)
    key, final = jax.random.key(request["seed"]), request["natural_gradient"] or 1.0
    start = time.perf_counter()
    step, state = compiled_step(family, X, Y, request)
    jax.block_until_ready(
        step(trained.arrays, state, jax.random.split(key)[0], jnp.array(final))
    )  # nothing is new now
    compile_seconds = time.perf_counter() - start
    recorder = Recorder(
        request["targets"],
        lambda: trained.arrays,
        lambda arrays: setattr(trained, "arrays", arrays),
        request["unit"],
    )
    recorder.start()
    while not recorder.done:
        key, draw = jax.random.split(key)
        gamma = final * (_FIRST_STEP / final) ** max(0.0, 1.0 - recorder.step / _RAMP_STEPS)
        trained.arrays, state = jax.block_until_ready(
            step(trained.arrays, state, draw, jnp.array(gamma))
        )
        recorder()
    snapshots = recorder.finish(trained.evaluate)
    np.savez(
        folder / "answer.npz", mean=np.stack(trained.means), variance=np.stack(trained.variances)
    )
    return {
        "compile_seconds": compile_seconds,
        "ms_per_step": recorder.ms_per_step,
        "snapshots": [asdict(one) for one in snapshots],
        "versions": {name: version(name) for name in ("gpjax", "jax")},
    }


if __name__ == "__main__":
    print(json.dumps(train(Path(sys.argv[1]))))
