"""GPJax as a peer, used only where it is installed: its whitened SVGP, with Adam on everything, in float64 as its guides do.

The newest that takes NumPy below 2, as GPflow does, is 0.9; it has no natural gradients.
"""

from __future__ import annotations

__all__ = ["AVAILABLE", "train_gpjax"]

import importlib.util
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .data import Data
from .metrics import elbo, evaluate
from .models import Settings, Spec, points
from .records import Record, Recorder

AVAILABLE = importlib.util.find_spec("gpjax") is not None


def _build(spec: Spec, data: Data, settings: Settings) -> Any:
    import gpjax
    import jax.numpy as jnp

    beta, _ = points(spec, data, settings)
    kernel = gpjax.kernels.Matern52(lengthscale=jnp.ones(beta.shape[1]))
    prior = gpjax.gps.Prior(mean_function=gpjax.mean_functions.Zero(), kernel=kernel)
    likelihood = gpjax.likelihoods.Gaussian(len(data.X_train), jnp.sqrt(settings.noise))
    return gpjax.variational_families.WhitenedVariationalGaussian(prior * likelihood, jnp.array(beta))


class _Model:
    """A GPJax family as a function of its unconstrained parameters, with the verbs of GPflow that the metrics use."""

    def __init__(self, family: Any) -> None:
        import gpjax
        import jax
        from flax import nnx
        from gpjax.parameters import DEFAULT_BIJECTION, Parameter, transform

        definition, parameters, *rest = nnx.split(family, Parameter, ...)

        def at(parameters: Any) -> Any:
            return nnx.merge(definition, transform(parameters, DEFAULT_BIJECTION), *rest)

        def moments(parameters: Any, X: Any) -> tuple[Any, Any]:
            q = at(parameters).predict(X)
            return q.mean(), q.variance() + at(parameters).posterior.likelihood.obs_stddev.value ** 2

        def bound(parameters: Any, X: Any, Y: Any) -> Any:
            return gpjax.objectives.elbo(at(parameters), gpjax.Dataset(X, Y))

        self.parameters = transform(parameters, DEFAULT_BIJECTION, inverse=True)
        self.bound = bound
        self._moments, self._bound = jax.jit(moments), jax.jit(bound)

    def predict_y(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = self._moments(self.parameters, X)
        return np.asarray(mean)[:, None], np.asarray(variance)[:, None]

    def predict_log_density(self, data: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        mean, variance = self.predict_y(data[0])
        return -0.5 * (np.log(2.0 * np.pi * variance) + (data[1] - mean) ** 2 / variance)[:, 0]

    def elbo(self, data: tuple[np.ndarray, np.ndarray]) -> float:
        return float(self._bound(self.parameters, *data))


def _step(model: _Model, data: Data, settings: Settings) -> tuple[Callable[..., tuple], Any]:
    """Compiled for the shapes of the data: (parameters, state, key) to (parameters, state); and the first state."""
    import jax
    import jax.numpy as jnp
    import optax

    adam, X, Y = optax.adam(settings.learning_rate), jnp.array(data.X_train), jnp.array(data.Y_train)
    size = min(settings.batch_size, len(X))

    def step(parameters: Any, state: Any, key: Any) -> tuple[Any, Any]:
        rows = jax.random.randint(key, [size], 0, len(X))
        gradients = jax.grad(lambda parameters: -model.bound(parameters, X[rows], Y[rows]))(parameters)
        updates, state = adam.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state

    state = adam.init(model.parameters)
    return jax.jit(step).lower(model.parameters, state, jax.random.key(0)).compile(), state


def train_gpjax(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    """Train until the last of `targets` (of `settings.unit`), and evaluate afterwards at each of them."""
    import jax

    jax.config.update("jax_enable_x64", True)
    model = _Model(_build(spec, data, settings))
    began = time.perf_counter()
    step, state = _step(model, data, settings)
    compile_seconds = time.perf_counter() - began
    recorder = Recorder(
        targets, lambda: model.parameters, lambda parameters: setattr(model, "parameters", parameters), settings.unit
    )
    key = jax.random.key(settings.seed)
    recorder.start()
    while not recorder.done:
        key, draw = jax.random.split(key)
        model.parameters, state = jax.block_until_ready(step(model.parameters, state, draw))
        recorder()
    snapshots = recorder.finish(lambda: {**evaluate(model, data), "elbo": elbo(model, data)})
    return Record(data.name, spec.name, spec.library, compile_seconds, recorder.ms_per_step, snapshots)
