"""Kernel and likelihood learned on a stream: rounds of L-BFGS on the streaming bound at held sites,
then of the sites.

Under another kernel q is the best one (C45) for the old factor, which is a function of u and stays,
and the sites of the batch, which stay too; the bound (C43) at that q is climbed.
"""

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
"""Of L-BFGS in a round."""
Stage: TypeAlias = tuple[Frame, Batch, Quadratic, Climb]
"""The frame at a kernel, the batch and the old factor in it, and where the sites are."""


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
    """The stage after so many rounds, at most; a round that does not gain is taken back and is the
    last.

    :param links: of the memory's points and those of the basis, D [G, M_a, M_z].
    :param stage: at the kernel as it is.
    :raises DataError: where neither kernel nor likelihood is trainable.
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
            pass  # the round is taken back
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
