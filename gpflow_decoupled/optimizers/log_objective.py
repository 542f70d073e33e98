"""Nats as a function of log hyperparameters."""

from __future__ import annotations

__all__ = ["LogObjective", "with_gradients"]

from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf
from gpflow.models import BayesianModel

from ..compilation import Compiled
from ..replicas import Group
from .log_coordinates import LogCoordinates, coordinates_of

Evaluated = list[tf.Tensor]
"""A value in nats, and its gradient in each variable of some coordinates."""


class LogObjective:
    """A sum of terms, for `climb_logarithms`: a value and its gradient [n] at a vector [n].

    :param coordinates: of the vector.
    :param terms: evaluates the terms at the present Parameters, see `with_gradients`.
    :param group: the workers, which all use the first one's value and gradient.
    """

    def __init__(
        self,
        coordinates: LogCoordinates,
        terms: Callable[[], Iterable[Evaluated]],
        group: Group | None = None,
    ) -> None:
        self.coordinates, self.terms, self.group = coordinates, terms, group or Group()

    @classmethod
    def of_model(
        cls,
        model: BayesianModel,
        variables: Iterable[tf.Variable],
        density: Callable[[], tf.Tensor],
        compile: bool = False,
        *,
        group: Group | None = None,
        logarithms: bool = True,
    ) -> LogObjective:
        """A density and the model's log prior density, as a function of some of its variables.

        :param compile: trace both as graphs at the first call.
        :param logarithms: see `LogCoordinates`.
        """
        coordinates = coordinates_of(model, variables, logarithms)
        both = density, model.log_prior_density
        terms = [with_gradients(one, coordinates, compile=compile, group=group) for one in both]
        return cls(coordinates, lambda: (term() for term in terms), group)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        self.coordinates.assign(x)
        value, *gradients = (sum(same) for same in zip(*self.terms()))
        own = np.append(float(value), self.coordinates.gradient(gradients))
        agreed = self.group.of_first(tf.constant(own)).numpy()
        return float(agreed[0]), agreed[1:]


def with_gradients(
    density: Callable[..., tf.Tensor],
    coordinates: LogCoordinates,
    *,
    compile: bool = False,
    group: Group | None = None,
) -> Callable[..., Evaluated]:
    """A function with the same arguments that returns the density and its gradients.

    :param density: returns nats [].
    :param compile: trace density and gradient as one graph.
    :param group: its replicas' copies of a variable count as one.
    """
    watched = [(group or Group()).parts_of(variable) for variable in coordinates.variables]

    def evaluated(*arguments: tf.Tensor) -> Evaluated:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(watched)
            value = density(*arguments)
        zero = tf.UnconnectedGradients.ZERO
        gradients = tape.gradient(value, watched, unconnected_gradients=zero)
        return [value, *(tf.add_n(of_copies) for of_copies in gradients)]

    return Compiled(evaluated) if compile else evaluated
