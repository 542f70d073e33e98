"""Kernel and likelihood learned on a stream."""

from __future__ import annotations

__all__ = ["Stage", "learned"]

from typing import TypeAlias

import gpflow
import numpy as np
import tensorflow as tf

from ...bases import InducingBasis
from ...bases.parts.frame import Frame, features_in, frame_of
from ...errors import DataError, NumericalError
from .site_climb import Batch, Climb, StreamModel, bound, climb, factor_of
from .stream_memory import Quadratic, StreamMemory
from .stream_posterior import best

_ITERATIONS = 20
"""L-BFGS iterations in a round."""
Stage: TypeAlias = tuple[Frame, Batch, Quadratic, Climb]
"""Frame at a kernel, batch and old factor in it, state of the sites."""


def learned(
    model: StreamModel,
    basis: InducingBasis,
    memory: StreamMemory,
    links: np.ndarray,
    keep: float,
    stage: Stage,
    rounds: int,
    steps: int,
    tolerance: float,
) -> Stage:
    """Return the stage after at most `rounds` rounds; a round without gain is undone, the last.

    :param links: D [G, M_a, M_z].
    """
    variables = list(model.kernel.trainable_variables) + list(model.likelihood.trainable_variables)
    if not variables:
        raise DataError(
            "learn is not 0, and no Parameter of the kernel or the likelihood is trainable; leave"
            " learn=0."
        )

    def at_kernel(frame: Frame, batch: Batch) -> tuple[Batch, Quadratic]:
        old = memory.projected(frame, model.kernel, links).times(keep)
        return Batch(batch.X, batch.Y, features_in(frame, model.kernel, batch.X)), old

    def loss() -> tf.Tensor:
        frame = frame_of(model.kernel, stage[0].points, stage[0].free)
        batch, old = at_kernel(frame, stage[1])
        belief = best(frame, old.plus(factor_of(batch, stage[3].sites)))
        return -bound(model, frame, batch, old, belief) - model.log_prior_density()

    for _ in range(rounds):
        before, log_prior = (
            [tf.identity(variable) for variable in variables],
            float(model.log_prior_density()),
        )
        gain = -np.inf
        try:
            gpflow.optimizers.Scipy().minimize(
                loss, variables, compile=False, options={"maxiter": _ITERATIONS}
            )
            frame = frame_of(model.kernel, stage[0].points, stage[0].free)
            batch, old = at_kernel(frame, stage[1])
            end = climb(model, frame, batch, old, stage[3].sites, steps, tolerance)
            gain = end.bound + float(model.log_prior_density()) - stage[3].bound - log_prior
        except NumericalError:
            pass  # gain stays -inf, so the round is taken back below
        finally:
            if not gain >= 0.0:
                for variable, value in zip(variables, before):
                    variable.assign(value)
        if not gain >= 0.0:
            break
        stage = frame, batch, old, end
        if gain <= tolerance:
            break
    return stage
