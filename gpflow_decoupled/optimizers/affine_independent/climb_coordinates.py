"""Coordinates that whiten the Gaussian optimum."""

from __future__ import annotations

__all__ = ["ClimbCoordinates"]

import numpy as np
import tensorflow as tf

from ...bases.affine_independent import AffineIndependentBasis
from ...lbfgs import Objective
from ...probability import tfp


class ClimbCoordinates:
    """Coordinates A = C A~, b = C b~ of the vector [n] of all variables of q.

    With C [D, D] a lower root of the Gaussian covariance, curvatures are similar in all directions;
    None, for "low_rank", changes nothing.
    """

    def __init__(
        self, basis: AffineIndependentBasis, C: np.ndarray | None, variables: list[tf.Variable]
    ) -> None:
        self.C, self.variables = C, variables
        self.left, self.b = (
            next(iter(basis.map.trainable_variables), None),
            basis.b.unconstrained_variable,
        )

    def _multiply(self, M: np.ndarray, x: np.ndarray) -> np.ndarray:
        ends = np.cumsum([int(np.prod(variable.shape)) for variable in self.variables])[:-1]
        parts = np.split(x, ends)
        for i, variable in enumerate(self.variables):
            if variable is self.b:
                parts[i] = M @ parts[i]
            elif variable is self.left and parts[i].size == M.size:
                parts[i] = (M @ parts[i].reshape(M.shape)).ravel()
            elif (
                variable is self.left
            ):  # GPflow stores a triangular Parameter as a vector of its D (D + 1) / 2 entries
                product = M @ tfp.math.fill_triangular(parts[i]).numpy()
                parts[i] = tfp.math.fill_triangular_inverse(np.tril(product)).numpy()
        return np.concatenate(parts)

    def inward(self, x: np.ndarray) -> np.ndarray:
        """Map variables (A, b) to coordinates (A~, b~), [n] each."""
        return x if self.C is None else self._multiply(np.linalg.inv(self.C), x)

    def outward(self, x: np.ndarray) -> np.ndarray:
        """Map coordinates (A~, b~) to variables (A, b), [n] each."""
        return x if self.C is None else self._multiply(self.C, x)

    def around(self, function: Objective) -> Objective:
        """Return the function of the coordinates; its gradient is multiplied by C^T."""

        def moved(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = function(self.outward(x))
            return value, gradient if self.C is None else self._multiply(self.C.T, gradient)

        return moved
