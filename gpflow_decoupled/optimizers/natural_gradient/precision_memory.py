"""Precisions kept from the last natural-gradient step."""

from __future__ import annotations

__all__ = ["PrecisionMemory"]

from collections.abc import Hashable
from functools import partial

import tensorflow as tf

from ...bases import GaussianPart, InducingBasis
from ...compilation import rarely
from ...linalg.gaussians import precision_from_root

Reference = Hashable
"""Identifies a variable among all models' variables."""


class PrecisionMemory(tf.Module):
    """S^-1 of each whitened Gaussian part [L, M, M], next to the root it was computed from."""

    # Used only while the root is bitwise equal, so an assigned or restored q gets a new precision.
    # Saves M^3 (1/3 to 1) multiply-adds per step.

    def __init__(self) -> None:
        super().__init__()
        # one that is made in each trace of a `tf.function` cannot keep variables between steps
        self._keeps = tf.executing_eagerly()
        self._roots: list[tf.Variable] = []
        self._precisions: list[tf.Variable] = []
        self._places: dict[tuple[Reference, int], int] = {}

    def recall(self, basis: InducingBasis, part: int, root: tf.Tensor) -> tf.Tensor:
        """The precision [L, M, M] of the part with this whitened root [L, M, M]."""
        # unwhitened, the root changes whenever the kernel does, and would never match
        if not (basis.whiten and self._keeps):
            return precision_from_root(root)
        place = self._place(basis, part, root)
        same = tf.reduce_all(tf.equal(self._roots[place], root))
        return tf.cond(
            same, self._precisions[place].read_value, rarely(partial(precision_from_root, root))
        )

    def store(
        self,
        basis: InducingBasis,
        gaussians: tuple[GaussianPart, ...],
        precisions: tuple[tf.Tensor, ...],
    ) -> None:
        """Store the precisions [L, M, M] of the new roots."""
        if not (basis.whiten and self._keeps):
            return
        for part, (gaussian, precision) in enumerate(zip(gaussians, precisions)):
            place = self._place(basis, part, gaussian.root)
            self._roots[place].assign(gaussian.root)
            self._precisions[place].assign(precision)

    def prepare(self, basis: InducingBasis) -> None:
        """Create the variables, for a checkpoint that is read later."""
        if basis.whiten and self._keeps:
            roots = [
                parameter for parameter in basis.gaussian_parameters() if len(parameter.shape) == 3
            ]
            for part, root in enumerate(roots):
                self._place(basis, part, tf.convert_to_tensor(root))

    def _place(self, basis: InducingBasis, part: int, root: tf.Tensor) -> int:
        key = (basis.gaussian_parameters()[-1].unconstrained_variable.ref(), part)
        if key not in self._places:
            self._places[key] = len(self._roots)
            with tf.init_scope():  # variables cannot be created inside of a graph
                for slots in (self._roots, self._precisions):
                    slots.append(tf.Variable(tf.zeros(root.shape, root.dtype), trainable=False))
        return self._places[key]
