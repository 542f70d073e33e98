"""One call that trains a model."""
from __future__ import annotations

__all__ = ["fit"]

import warnings
from typing import Any, Callable, Optional, Sequence, Union

import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

from ..bases.latents import count_points
from ..errors import DataError, check_option
from ..models import BasisGP
from ..optimizers import NaturalGradient
from ..optimizers.evaluation import as_basis_model
from ..optimizers.natural_gradient import POLICIES
from .batches import make_batches
from .loop import Limits, Loop, Rates
from .result import FitResult
from .step import TrainingStep

DEFAULT_STEPS = 2000
DEFAULT_BATCH = 1024


def fit(
    model: Any,
    data: Union[tuple, tf.data.Dataset],
    *,
    steps: Optional[int] = None,
    seconds: Optional[float] = None,
    batch_size: Union[int, None, str] = "auto",
    natural_gradient: Optional[float] = 0.1,
    learning_rate: float = 0.01,
    mean_solver: str = "adam",
    mean_learning_rate: Optional[float] = None,
    optimizer: Optional[Any] = None,
    negative_precision: str = "damp",
    ramp_steps: int = 10,
    anneal: float = 0.5,
    refresh_every: int = 100,
    evaluation: Optional[tuple] = None,
    evaluate_every: int = 500,
    patience: Optional[int] = None,
    checkpoint: Optional[Any] = None,
    checkpoint_every: int = 500,
    callbacks: Sequence[Callable] = (),
    report_every: int = 20,
    seed: int = 0,
    progress: bool = True,
    compile: bool = True,
) -> FitResult:
    """Train a model of this package, or a plain `gpflow.models.SVGP`, in place.

    q(u) moves by natural gradients, the coefficients of the mean points by `mean_solver`, everything else that is trainable
    (kernel, likelihood, mean function, inducing inputs) by `optimizer`; one pass through the bound serves all three.

    :param data: (X [N, D], Y [N, P]), or a `tf.data.Dataset` of batches of such pairs, repeated as often as needed; then the
        model must know `num_data`.
    :param steps: how many steps; 2000 if `seconds` is not given either. :param seconds: wall-clock limit of the steps.
    :param batch_size: rows of a minibatch; "auto" is 1024, or all rows if there are fewer; None is all rows.
    :param natural_gradient: step size in (0, 1], reached from 1e-4 over `ramp_steps`; None leaves q(u) to `optimizer`.
    :param learning_rate: of `optimizer`, which is Adam if not given (any Keras optimizer will do).
    :param mean_solver: "adam", "natural" ((D41), (D42)) or "newton" ((D49)).
    :param mean_learning_rate: of `mean_solver`; 0.03 for Adam, 1 otherwise.
    :param negative_precision: "damp", "clip" or "raise", see `NaturalGradient`.
    :param anneal: share of the run, at its end, over which all step sizes fall to 2 %.
    :param refresh_every: steps between refreshes of the frozen scaling of the mean coefficients.
    :param evaluation: held-out (X, Y), scored every `evaluate_every` steps and at the end.
    :param patience: stop after so many evaluations without a better log density (bound, if `evaluation` is not given).
    :param checkpoint: folder; the state is saved there every `checkpoint_every` steps, and a run that finds a state in it
        goes on from there to the same trace.
    :param callbacks: called with (step, metrics, model) every `report_every` steps; `gpflow.monitor.Monitor` fits too.
    :param seed: fixes shuffling and subsampling: same seed, same trace.

    Raises `DataError` and `UnknownOptionError` before the first step, with nothing changed, and `NumericalError` in training,
    with the last good parameters restored and the record so far in its `result`.
    """
    check_option("negative_precision", negative_precision, POLICIES)
    check_option("mean_solver", mean_solver, ("adam", "natural", "newton"))
    limits = Limits(DEFAULT_STEPS if steps is None and seconds is None else steps, seconds, patience)
    _check_numbers(limits, natural_gradient, learning_rate, mean_learning_rate, anneal)
    view = as_basis_model(model)
    if batch_size == "auto":
        rows = None if isinstance(data, tf.data.Dataset) else np.shape(data[0])[0]
        batch_size = None if rows is None or rows <= DEFAULT_BATCH else DEFAULT_BATCH
    batches = make_batches(view, data, batch_size, seed)
    view.num_data = model.num_data = batches.num_data
    _check_sizes(view, batches.num_data)

    rates = Rates(natural_gradient, learning_rate, mean_learning_rate or (0.03 if mean_solver == "adam" else 1.0), ramp_steps, anneal)
    natural = None
    if natural_gradient is not None:
        natural = NaturalGradient(
            tf.Variable(rates.natural, dtype=tf.float64, trainable=False),
            mean=None if mean_solver == "adam" else mean_solver,
            negative_precision=negative_precision,
        )
    step = TrainingStep(
        view,
        natural,
        optimizer if optimizer is not None else tf_keras.optimizers.Adam(learning_rate),
        tf_keras.optimizers.Adam(rates.mean) if mean_solver == "adam" else None,
        compile,
    )
    loop = Loop(model, view, step, batches, rates, limits, seed)
    loop.refresh_every, loop.report_every, loop.callbacks = refresh_every, report_every, tuple(callbacks)
    loop.evaluation, loop.evaluate_every = evaluation, evaluate_every
    if checkpoint is not None:
        loop.keep_checkpoints(checkpoint, checkpoint_every)
    return loop.run(progress)


def _check_numbers(
    limits: Limits,
    natural_gradient: Optional[float],
    learning_rate: float,
    mean_learning_rate: Optional[float],
    anneal: float,
) -> None:
    """Raise `DataError` for a number that makes no sense."""
    positive = {"steps": limits.steps, "seconds": limits.seconds, "patience": limits.patience}
    positive.update(learning_rate=learning_rate, mean_learning_rate=mean_learning_rate)
    for name, value in positive.items():
        if value is not None and not value > 0:
            raise DataError(f"{name}={value!r} must be above 0.")
    if natural_gradient is not None and not 0 < natural_gradient <= 1:
        raise DataError(f"natural_gradient={natural_gradient!r} must be in (0, 1], or None.")
    if not 0 <= anneal <= 1:
        raise DataError(f"anneal={anneal!r} must be in [0, 1].")


def _check_sizes(view: BasisGP, num_data: int) -> None:
    """Warn of more inducing points than observations: legitimate, but slower than an exact model."""
    size = count_points(view.basis.beta)
    if size > num_data:
        warnings.warn(
            f"beta has {size} points and the data {num_data} rows: the posterior needs no more points than rows.", stacklevel=3
        )
