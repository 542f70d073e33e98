"""One call that trains a model."""

from __future__ import annotations

__all__ = ["fit"]

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from gpflow.keras import tf_keras

from ..bases.latents import count_points
from ..errors import DataError, check_option
from ..models import BasisGP
from ..models.checks import check_values
from ..optimizers import NaturalGradient
from ..optimizers.evaluation import as_basis_model
from ..optimizers.natural_gradient import POLICIES
from .batches import make_batches
from .loop import Limits, Loop, Rates
from .options import check_callbacks, check_counts, check_optimizer, check_rates, check_roles
from .result import FitResult
from .step import TrainingStep

DEFAULT_STEPS = 2000
DEFAULT_RATE = 0.03


def fit(
    model: Any,
    data: tuple | tf.data.Dataset,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    batch_size: int | None | str = "auto",
    natural_gradient: float | None = 0.1,
    hold: str = "sites",
    learning_rate: float | None = None,
    mean_solver: str = "adam",
    mean_learning_rate: float | None = None,
    optimizer: Any | None = None,
    negative_precision: str = "damp",
    ramp_steps: int = 10,
    anneal: float = 0.2,
    refresh_every: int = 100,
    evaluation: tuple | None = None,
    evaluate_every: int = 500,
    patience: int | None = None,
    checkpoint: Any | None = None,
    checkpoint_every: int = 500,
    callbacks: Sequence[Callable] = (),
    report_every: int = 20,
    seed: int = 0,
    progress: bool = True,
    compile: bool = True,
) -> FitResult:
    """Train a model of this package, or a plain `gpflow.models.SVGP`, in place.

    q(u) moves by natural gradients, the coefficients of the mean points by `mean_solver`, everything else that is
    trainable (kernel, likelihood, mean function, inducing inputs) by `optimizer`; one pass through the bound serves all
    three.

    :param data: (X [N, D], Y [N, P]), or a `tf.data.Dataset` of batches of such pairs, repeated as often as needed;
        then the model must know `num_data`.
    :param steps: how many steps; 2000 if `seconds` is not given either. :param seconds: wall-clock limit of the steps.
    :param batch_size: rows of a minibatch; "auto" is 1024, or all rows if there are fewer; None is all rows.
    :param natural_gradient: step size in (0, 1], reached from 1e-4 over `ramp_steps`; None leaves q(u) to `optimizer`.
    :param hold: what of q(u) stays while kernel and inducing points move: its "sites", (C28), or its "whitened" mean and
        root, as in GPflow's own training. Sites need about half the steps, each a third longer; bases and
        parametrisations that have none (unwhitened, hybrid, inverse) keep their Parameters.
    :param optimizer: a new Keras 2 or Keras 3 optimizer; Adam if not given.
    :param learning_rate: of `optimizer`, in place of its own; 0.03 for the Adam of `fit`.
    :param mean_solver: "adam", "natural" ((D41), (D42)) or "newton" ((D49)).
    :param mean_learning_rate: of `mean_solver`; 0.03 for Adam, 1 otherwise.
    :param negative_precision: "damp", "clip" or "raise", see `NaturalGradient`.
    :param anneal: share of the run, at its end, over which all step sizes fall to 2 %.
    :param refresh_every: steps between refreshes of the frozen scaling of the mean coefficients.
    :param evaluation: held-out (X, Y), scored every `evaluate_every` steps and at the end.
    :param patience: stop after so many evaluations without a better log density (bound, if `evaluation` is not given).
    :param checkpoint: folder; the state is saved there every `checkpoint_every` steps, and a run that finds a state
        in it goes on from there to the same trace. The limits may change; data and other settings that differ are
        refused.
    :param callbacks: called with (step, metrics, model) every `report_every` steps; `gpflow.monitor.Monitor` fits too.
    :param seed: fixes shuffling and subsampling: same seed, same trace. Likelihoods that sample (`Softmax`) draw from
        TensorFlow's global generator: call `tf.random.set_seed` too.
    :param compile: False runs the steps eagerly: slower, but nothing to trace, and nothing left behind. Of a compiled fit
        TensorFlow keeps some 10 MB; use processes for hundreds of them.

    Raises `DataError` and `UnknownOptionError` before the first step, with nothing changed, and `NumericalError` in
    training, with the last good parameters restored and the record so far in its `result`.
    """
    _check_options(negative_precision, hold, mean_solver)
    check_counts(1, steps=steps, patience=patience, refresh_every=refresh_every, report_every=report_every)
    check_counts(1, evaluate_every=evaluate_every, checkpoint_every=checkpoint_every)
    check_counts(0, ramp_steps=ramp_steps, seed=seed)
    check_rates(seconds=seconds, learning_rate=learning_rate, mean_learning_rate=mean_learning_rate)
    check_rates(1.0, natural_gradient=natural_gradient, anneal=anneal or None)
    optimizer = _default_or_checked(optimizer, learning_rate)
    check_callbacks(callbacks)
    view = as_basis_model(model)
    check_roles(view, natural_gradient, mean_solver)
    batches = make_batches(view, data, batch_size, seed)
    evaluation = None if evaluation is None else _held_out(view, evaluation)
    _check_sizes(view, batches.num_data)
    view.num_data = model.num_data = batches.num_data

    rates = Rates(
        natural_gradient,
        float(optimizer.learning_rate) if learning_rate is None else learning_rate,
        mean_learning_rate or (0.03 if mean_solver == "adam" else 1.0),
        ramp_steps,
        anneal,
    )
    natural = None if natural_gradient is None else _natural_gradient(view, rates, mean_solver, negative_precision)
    mean_optimizer = tf_keras.optimizers.Adam(rates.mean_learning_rate) if mean_solver == "adam" else None
    step = TrainingStep(view, natural, optimizer, mean_optimizer, compile, hold == "sites")
    limits = Limits(DEFAULT_STEPS if steps is None and seconds is None else steps, seconds, patience)
    loop = Loop(model, view, step, batches, rates, limits, seed)
    loop.refresh_every, loop.report_every, loop.callbacks = refresh_every, report_every, tuple(callbacks)
    loop.evaluation, loop.evaluate_every = evaluation, evaluate_every
    if checkpoint is not None:
        loop.keep_checkpoints(checkpoint, checkpoint_every)
    return loop.run(progress)


def _check_options(negative_precision: str, hold: str, mean_solver: str) -> None:
    check_option("negative_precision", negative_precision, POLICIES)
    check_option("hold", hold, ("sites", "whitened"))
    check_option("mean_solver", mean_solver, ("adam", "natural", "newton"))


def _default_or_checked(optimizer: Any | None, learning_rate: float | None) -> Any:
    if optimizer is None:
        return tf_keras.optimizers.Adam(DEFAULT_RATE if learning_rate is None else learning_rate)
    check_optimizer(optimizer)
    return optimizer


def _natural_gradient(view: BasisGP, rates: Rates, mean_solver: str, negative_precision: str) -> NaturalGradient:
    """The rule for q(u), and for the mean coefficients if they are to move with it."""
    mean = view.basis.kernel_mean
    moves_mean = mean_solver != "adam" and mean is not None and mean.coefficients.trainable
    return NaturalGradient(
        tf.Variable(rates.natural_gradient, dtype=tf.float64, trainable=False),
        mean=mean_solver if moves_mean else None,
        mean_step=tf.Variable(rates.mean_learning_rate, dtype=tf.float64, trainable=False),
        negative_precision=negative_precision,
    )


def _held_out(view: BasisGP, evaluation: tuple) -> tuple:
    """The evaluation data as arrays X [N, D], Y [N, P]; raises `DataError` as for training data, and says which are
    meant.
    """
    if not (isinstance(evaluation, (tuple, list)) and len(evaluation) == 2):
        raise DataError(f"evaluation is a {type(evaluation).__name__}; pass held-out (X, Y).")
    try:
        X, Y = (tensor.numpy() for tensor in view.as_tensors(evaluation))
        check_values(X, Y, view.likelihood)
    except DataError as error:
        raise DataError(f"evaluation: {error}") from error
    return X, Y


def _check_sizes(view: BasisGP, num_data: int) -> None:
    """Warn of more inducing points than observations: legitimate, but slower than an exact model."""
    size = count_points(view.basis.beta)
    if size > num_data:
        warnings.warn(
            f"beta has {size} points and the data {num_data} rows: the posterior needs no more points than rows.",
            stacklevel=3,
        )
