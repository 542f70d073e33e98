"""Natural parameters of a Gaussian, and their steps."""

from __future__ import annotations

__all__ = ["Natural", "natural_step"]

from functools import partial
from typing import NamedTuple

import tensorflow as tf

from ...bases import GaussianPart
from ...compilation import rarely
from ...linalg.gaussians import apply_per_latent, precision_factor, root_from_factor


class Natural(NamedTuple):
    """Whitened natural parameters theta = S^-1 m and P = S^-1; factorising P tests definiteness."""

    theta: tf.Tensor | None
    """[M, L]; None if the basis ties only the covariance to this part."""
    precision: tf.Tensor
    """[L, M, M]"""
    factor: tf.Tensor
    """[L, M, M], see `precision_factor`."""
    ok: tf.Tensor
    """[], bool: whether all numbers are finite and P is positive definite."""

    @classmethod
    def of(cls, theta: tf.Tensor | None, precision: tf.Tensor) -> Natural:
        """Factorise the precision; cost M^3 / 3 per latent."""
        factor, ok = precision_factor(precision)
        return cls(
            theta,
            precision,
            factor,
            ok if theta is None else ok & tf.reduce_all(tf.math.is_finite(theta)),
        )

    def gaussian(self) -> GaussianPart:
        """Mean and root of S; cost M^3 / 2 per latent."""
        root = root_from_factor(self.factor)
        if self.theta is None:
            return GaussianPart(None, root)
        return GaussianPart(
            apply_per_latent(root, apply_per_latent(root, self.theta, adjoint=True)), root
        )


def natural_step(
    theta: tf.Tensor,
    precision: tf.Tensor,
    target_theta: tf.Tensor,
    target_precision: tf.Tensor,
    step_size: tf.Tensor,
    max_halvings: int,
) -> tuple[Natural, tf.Tensor]:
    """Move natural parameters towards a target, halving the step until P is positive definite.

    Theta is [M, L], P is [L, M, M], `step_size` []; `max_halvings` of 0 takes the step unchecked.

    :return: the new parameters, `ok` false if no step was feasible, and the halvings [], int.
    """
    # A halved step is halved once more: the first feasible one may end at the edge of the positive
    # definite matrices; half of it keeps at least half of the old precision in every direction.

    def halve(tries: tf.Tensor, _: Natural | None = None) -> tuple[tf.Tensor, Natural]:
        tries += 1
        step = step_size / tf.cast(2**tries, step_size.dtype)
        new = (1.0 - step) * theta + step * target_theta  # (D46), (C25)
        # (D46), (C25)
        return tries, Natural.of(new, (1.0 - step) * precision + step * target_precision)

    def infeasible(tries: tf.Tensor, new: Natural) -> tf.Tensor:
        return tf.logical_and(tries < max_halvings, tf.logical_not(new.ok))

    def search() -> tuple[Natural, tf.Tensor]:
        tries, new = tf.while_loop(infeasible, halve, (none, first))
        tries, new = tf.cond(new.ok, partial(halve, tries, new), lambda: (tries, new))
        return new, tries

    none, first = halve(tf.constant(-1))
    if max_halvings == 0:
        return first, none
    return tf.cond(first.ok, lambda: (first, none), rarely(search))
