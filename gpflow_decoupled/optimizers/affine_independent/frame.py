"""Coordinates for affine-independent climbs: those of the Gaussian optimum, in which its covariance is the identity."""

from __future__ import annotations

__all__ = ["Frame"]

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from ...bases.affine_independent import AffineIndependentBasis
from ..lbfgs import Objective


class Frame:
    """Coordinates in which the bound is better conditioned: A = C A~ and b = C b~ for a root C of the Gaussian's covariance.

    Vectors [n] hold all `variables`. The triangles of "lower" and "lu" stay triangles when a lower C multiplies them from the
    left; without C, as for "low_rank", nothing moves.
    """

    def __init__(self, basis: AffineIndependentBasis, C: np.ndarray | None, variables: list[tf.Variable]) -> None:
        self.C, self.variables = C, variables
        self.left, self.b = next(iter(basis.map.trainable_variables), None), basis.b.unconstrained_variable

    def _apply(self, M: np.ndarray, x: np.ndarray) -> np.ndarray:
        """M times the first factor of A, and times b, in x [n]."""
        parts, place = [], 0
        for variable in self.variables:
            part = x[place : place + int(np.prod(variable.shape))]
            place += len(part)
            if variable is self.b:
                part = M @ part
            elif variable is self.left:
                part = (
                    (M @ part.reshape(M.shape)).ravel()
                    if part.size == M.size
                    else _packed(np.tril(M @ _unpacked(part)))
                )
            parts.append(part)
        return np.concatenate(parts)

    def inward(self, x: np.ndarray) -> np.ndarray:
        """From Parameters to coordinates, [n] each."""
        return x if self.C is None else self._apply(np.linalg.inv(self.C), x)

    def outward(self, x: np.ndarray) -> np.ndarray:
        """From coordinates to Parameters, [n] each."""
        return x if self.C is None else self._apply(self.C, x)

    def around(self, function: Objective) -> Objective:
        """A function of Parameters [n] as one of coordinates."""

        def moved(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = function(self.outward(x))
            return value, gradient if self.C is None else self._apply(self.C.T, gradient)

        return moved


def _packed(triangle: np.ndarray) -> np.ndarray:
    """A lower triangle [D, D] as GPflow keeps it, [D (D + 1) / 2]."""
    return tfp.math.fill_triangular_inverse(triangle).numpy()


def _unpacked(x: np.ndarray) -> np.ndarray:
    """The lower triangle [D, D] of x [D (D + 1) / 2]."""
    return tfp.math.fill_triangular(x).numpy()
