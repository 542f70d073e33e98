"""What a model on inducing points cannot do on several replicas of `tf.distribute`, refused before the first step."""

from __future__ import annotations

__all__ = ["check_on_replicas", "check_rows"]

import tensorflow as tf
from gpflow.models import SVGP
from gpflow.utilities import parameter_dict

from ...bases.parts.data_mean import DataMean
from ...errors import DataError, UnknownOptionError
from ...models import BasisGP
from ...replicas import Group, refuse_elsewhere
from ..batches import ArrayBatches, Batches
from .route import MeanSolver


def check_on_replicas(model: BasisGP | SVGP, strategy: tf.distribute.Strategy, solver: object) -> None:
    """Refuse a model, or a solver of its mean, that a strategy cannot train.

    :param model: that is to be trained.
    :param strategy: that trains it.
    :param solver: the `mean_solver` that was chosen, or None.
    :raises DataError: for variables that were created outside of the scope of the strategy.
    :raises UnknownOptionError: for a mean on all data and for `mean_solver="newton"`.
    """
    if isinstance(model, BasisGP) and isinstance(model.basis.kernel_mean, DataMean):
        raise UnknownOptionError(
            'strategy is not for a mean on all data, gamma="data": its conjugate gradients do not share out their products. '
            "Use mean points of their own, gamma=inducing.select(X, M, kernel), or leave strategy out."
        )
    method = solver.method if isinstance(solver, MeanSolver) else solver
    if method == "newton" and strategy.num_replicas_in_sync > 1:
        raise UnknownOptionError(
            'mean_solver="newton" solves by conjugate gradients, a loop in which TensorFlow cannot sum over replicas; use '
            '"adam" or "natural" with strategy.'
        )
    refuse_elsewhere(strategy, _variables(model), "build the whole model inside of `with strategy.scope():`.")


def check_rows(batches: Batches, group: Group) -> None:
    """Refuse batches that do not have a row for each replica; raises `DataError`."""
    if isinstance(batches, ArrayBatches) and batches.batch_size < group.replicas:
        raise DataError(
            f"A batch of {batches.batch_size} rows cannot be shared out to {group.replicas} replicas; use a larger "
            "batch_size, or fewer replicas."
        )


def _variables(model: BasisGP | SVGP) -> dict[str, tf.Variable]:
    """All variables of a model, those of Parameters by the names of these."""
    leaves = {name: getattr(leaf, "unconstrained_variable", leaf) for name, leaf in parameter_dict(model).items()}
    known = {variable.ref() for variable in leaves.values()}
    others = {variable.name: variable for variable in model.variables if variable.ref() not in known}
    return {f"{type(model).__name__}{name}": variable for name, variable in leaves.items()} | others
