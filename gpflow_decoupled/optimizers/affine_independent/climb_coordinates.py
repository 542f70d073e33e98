"""Coordinates for the joint run of L-BFGS, in which the covariance of the Gaussian optimum is the
identity.

Near its optimum the bound curves in w roughly as the Gaussian one does. With C a root of that
Gaussian's covariance, and with A = C A~ and b = C b~, the bound as a function of (A~, b~) has
similar curvature in all directions, so that L-BFGS needs fewer iterations.
"""

from __future__ import annotations

__all__ = ["ClimbCoordinates"]

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from ...bases.affine_independent import AffineIndependentBasis
from ..lbfgs import Objective


class ClimbCoordinates:
    """The change of coordinates A = C A~, b = C b~ for the vector [n] of all variables of q.

    C is lower triangular and multiplies A from the left, so that the triangular factors of the
    structures "lower" and "lu" stay triangular: only the left factor of A changes.

    :param basis: the basis whose A and b are meant.
    :param C: [D, D], lower triangular; None, for the structure "low_rank", leaves all coordinates
        as they are.
    :param variables: the variables of A, b and the shapes, in the order in which the vectors have
    them.
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
        """The vector x [n] with M [D, D] times the left factor of A and M times b in the place of
        these two.
        """
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
        """From the variables (A, b) to the coordinates (A~, b~), [n] each."""
        return x if self.C is None else self._multiply(np.linalg.inv(self.C), x)

    def outward(self, x: np.ndarray) -> np.ndarray:
        """From the coordinates (A~, b~) to the variables (A, b), [n] each."""
        return x if self.C is None else self._multiply(self.C, x)

    def around(self, function: Objective) -> Objective:
        """The same function, of the coordinates instead of the variables; the chain rule multiplies
        its gradient by C^T.
        """

        def moved(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = function(self.outward(x))
            return value, gradient if self.C is None else self._multiply(self.C.T, gradient)

        return moved
