"""What a run of `fit` is made of: the model as the loop sees it, its step, and its batches; all checks come before."""

from __future__ import annotations

__all__ = ["Choices", "Setup", "set_up_full", "set_up_inducing"]

import warnings
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.keras import tf_keras

from ...errors import DataError
from ...inducing.variables import count_points
from ...models import CVIGP, LCLGP, BasisGP
from ...optimizers import ConjugateComputation, NaturalGradient
from ...optimizers.natural_gradient.evaluation import as_basis_model
from ..batches import ArrayBatches, make_batches
from ..loop import Rates
from ..options import check_roles
from .inducing import TrainingStep
from .multipliers import LagrangianStep
from .sites import SiteStep


class Setup(NamedTuple):
    """The parts of a run."""

    view: Any
    """The model, or the `BasisGP` that shares its Parameters."""
    step: Any
    batches: Any


class Choices(NamedTuple):
    """Options of `fit` that shape a step and its batches."""

    rates: Rates
    hold: str
    mean_solver: str
    negative_precision: str
    optimizer: Any
    batch_size: int | None | str
    seed: int
    compile: bool


def set_up_inducing(model: Any, data: Any, c: Choices) -> Setup:
    """For a model of inducing points: natural gradients on minibatches. Arguments as `fit`; raises as it says."""
    view = as_basis_model(model)
    check_roles(view, c.rates.natural_gradient, c.mean_solver)
    batches = make_batches(view, data, c.batch_size, c.seed)
    _check_sizes(view, batches.num_data)
    natural = _natural_gradient(view, c)
    mean_optimizer = tf_keras.optimizers.Adam(c.rates.mean_learning_rate) if c.mean_solver == "adam" else None
    return Setup(view, TrainingStep(view, natural, c.optimizer, mean_optimizer, c.compile, c.hold == "sites"), batches)


def set_up_full(model: CVIGP | LCLGP, data: Any, c: Choices) -> Setup:
    """For a model that owns its data: conjugate computation or the Lagrangian, on all of them.

    Raises `DataError` for data, minibatches, nothing to train, and what the Lagrangian refuses.
    """
    name, dual = type(model).__name__, isinstance(model, LCLGP)
    if data is not None:
        more = "build another model" if dual else "model.update(data)"
        raise DataError(f"{name} owns its data: call fit(model), and {more} for more of them.")
    if c.batch_size not in ("auto", None):
        conjugate = "ConjugateComputation(step_size).run(model, batch_size=...)"
        other = "ConstraintSubset(size, batch_size).run(model)" if dual else conjugate
        raise DataError(
            f"batch_size={c.batch_size!r}: fit takes all data of a {name}; for minibatches at fixed hyperparameters use "
            f"optimizers.{other}."
        )
    rho = c.rates.natural_gradient
    if rho is None and not model.trainable_variables:
        raise DataError("No Parameter of the model is trainable, and natural_gradient=None leaves q(f) where it is.")
    if isinstance(model, LCLGP):
        step: Any = LagrangianStep(model, rho is not None, c.optimizer, c.hold, c.compile)
    else:
        rule = None if rho is None else ConjugateComputation(rho, negative_precision=c.negative_precision)
        step = SiteStep(model, rule, c.optimizer, c.hold, c.compile)
    return Setup(model, step, ArrayBatches(*model.data, None, c.seed))


def _natural_gradient(view: BasisGP, c: Choices) -> NaturalGradient | None:
    """The rule for q(u), and for the mean coefficients if they are to move with it."""
    if c.rates.natural_gradient is None:
        return None
    mean = view.basis.kernel_mean
    moves_mean = c.mean_solver != "adam" and mean is not None and mean.coefficients.trainable
    return NaturalGradient(
        tf.Variable(c.rates.natural_gradient, dtype=tf.float64, trainable=False),
        mean=c.mean_solver if moves_mean else None,
        mean_step=tf.Variable(c.rates.mean_learning_rate, dtype=tf.float64, trainable=False),
        negative_precision=c.negative_precision,
    )


def _check_sizes(view: BasisGP, num_data: int) -> None:
    """Warn of more inducing points than observations: legitimate, but slower than an exact model."""
    size = count_points(view.basis.beta)
    if size > num_data:
        warnings.warn(
            f"beta has {size} points and the data {num_data} rows: the posterior needs no more points than rows.",
            stacklevel=4,
        )
