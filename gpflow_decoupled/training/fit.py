"""One call that trains a model."""

from __future__ import annotations

__all__ = ["fit"]

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from gpflow.keras import tf_keras

from ..errors import DataError, check_option
from ..inducing.variables import count_points
from ..models import CVIGP, LCLGP
from ..models.checks import check_values
from ..optimizers.steps import POLICIES
from .loop import Limits, Loop, Rates
from .options import check_callbacks, check_counts, check_optimizer, check_rates
from .result import FitResult
from .routes.setup import Choices, set_up_full, set_up_inducing

DEFAULT_STEPS = 2000
DEFAULT_RATE = 0.03


def fit(
    model: Any,
    data: tuple | tf.data.Dataset | None = None,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    batch_size: int | None | str = "auto",
    natural_gradient: float | None | str = "auto",
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

    Of a `CVIGP`, which owns its data, the sites move by conjugate computation and the rest by `optimizer`, on all data; of
    an `LCLGP` or `LCLGLM` a step of the rest is followed by an outer iteration of `LinearlyConstrainedLagrangian`, after a
    whole run at the start, which is all where nothing else is trainable.

    q(u) moves by natural gradients, the coefficients of the mean points by `mean_solver`, everything else that is
    trainable (kernel, likelihood, mean function, inducing inputs) by `optimizer`; one pass through the bound serves all
    three.

    :param data: (X [N, D], Y [N, P]), or a `tf.data.Dataset` of batches of such pairs, repeated as often as needed;
        then the model must know `num_data`. None for a model that owns its data.
    :param steps: how many steps; 2000 if `seconds` is not given either. :param seconds: wall-clock limit of the steps.
    :param batch_size: rows of a minibatch; "auto" is 1024, or all rows if there are fewer; None is all rows.
    :param natural_gradient: step size in (0, 1], reached from 1e-4 over `ramp_steps`; "auto" is 0.2, and 0.5 without ramp
        for sites; None leaves q(u) to `optimizer`, and sites and multipliers where they are, which have no other use for it.
    :param hold: what of q(u) stays while kernel and inducing points move: its "sites", (C28), or its "whitened" mean and
        root, as in GPflow's own training. Sites need about half the steps, each a third longer; bases and
        parametrisations that have none (unwhitened, hybrid, inverse) keep their Parameters. For a `CVIGP` "sites" or
        "moments", see `SiteStep`; for an `LCLGP` "sites" or "multipliers", see `LagrangianStep`.
    :param optimizer: a new Keras 2 or Keras 3 optimizer; Adam if not given.
    :param learning_rate: of `optimizer`, in place of its own; 0.03 for the Adam of `fit`.
    :param mean_solver: "adam", "natural" ((D41), (D42)) or "newton" ((D49)).
    :param mean_learning_rate: of `mean_solver`; for Adam 0.03 up to 1000 mean points and in inverse proportion to their
        number beyond, where the noise of minibatches would carry them away; 1 otherwise.
    :param negative_precision: "damp", "clip" or "raise", see `NaturalGradient`.
    :param anneal: share of the run, at its end, over which all step sizes fall to 2 %.
    :param refresh_every: steps between refreshes of the frozen scaling of the mean coefficients.
    :param evaluation: held-out (X, Y), scored every `evaluate_every` steps and at the end.
    :param patience: stop after so many evaluations without a better log density (bound, if `evaluation` is not given).
    :param checkpoint: folder; the state is saved there every `checkpoint_every` steps, and a run that finds a state
        in it goes on from there to the same trace. The limits may change; data and other settings that differ are
        refused.
    :param callbacks: called with (step, metrics, model) every `report_every` steps; `gpflow.monitor.Monitor` fits too.
    :param seed: fixes shuffling and subsampling: same seed, same trace. `MonteCarlo` has a seed of its own;
        likelihoods that sample (`Softmax`) draw from TensorFlow's global generator: call `tf.random.set_seed` too.
    :param compile: False runs the steps eagerly: slower, but nothing to trace, and nothing left behind. Of a compiled fit
        TensorFlow keeps some 10 MB; use processes for hundreds of them.

    Raises `DataError` and `UnknownOptionError` before the first step, with nothing changed, and `NumericalError` in
    training, with the last good parameters restored and the record so far in its `result`.
    """
    owns_data = isinstance(model, (CVIGP, LCLGP))
    _check_options(negative_precision, hold, mean_solver, _what_holds(model))
    check_counts(1, steps=steps, patience=patience, refresh_every=refresh_every, report_every=report_every)
    check_counts(1, evaluate_every=evaluate_every, checkpoint_every=checkpoint_every)
    check_counts(0, ramp_steps=ramp_steps, seed=seed)
    check_rates(seconds=seconds, learning_rate=learning_rate, mean_learning_rate=mean_learning_rate)
    rho: Any = (0.5 if owns_data else 0.2) if natural_gradient == "auto" else natural_gradient
    check_rates(1.0, natural_gradient=rho, anneal=anneal or None)
    optimizer = _default_or_checked(optimizer, learning_rate)
    check_callbacks(callbacks)
    mean_rate = mean_learning_rate or _mean_rate(model, mean_solver)
    rate = float(optimizer.learning_rate) if learning_rate is None else learning_rate
    rates = Rates(rho, rate, mean_rate, ramp_steps, anneal)
    choices = Choices(rates, hold, mean_solver, negative_precision, optimizer, batch_size, seed, compile)
    view, step, batches = (set_up_full if owns_data else set_up_inducing)(model, data, choices)
    evaluation = None if evaluation is None else _held_out(view, evaluation)
    if not owns_data:
        view.num_data = model.num_data = batches.num_data

    limits = Limits(DEFAULT_STEPS if steps is None and seconds is None else steps, seconds, patience)
    loop = Loop(model, view, step, batches, rates, limits, seed)
    loop.refresh_every, loop.report_every, loop.callbacks = refresh_every, report_every, tuple(callbacks)
    loop.evaluation, loop.evaluate_every = evaluation, evaluate_every
    if checkpoint is not None:
        loop.keep_checkpoints(checkpoint, checkpoint_every)
    return loop.run(progress)


def _check_options(negative_precision: str, hold: str, mean_solver: str, holds: tuple) -> None:
    check_option("negative_precision", negative_precision, POLICIES)
    check_option("hold", hold, holds)
    check_option("mean_solver", mean_solver, ("adam", "natural", "newton"))


def _what_holds(model: Any) -> tuple[str, str]:
    if isinstance(model, LCLGP):
        return "sites", "multipliers"
    return "sites", ("moments" if isinstance(model, CVIGP) else "whitened")


def _mean_rate(model: Any, mean_solver: str) -> float:
    mean = getattr(getattr(model, "basis", None), "kernel_mean", None)
    if mean_solver != "adam" or mean is None:
        return 0.03 if mean_solver == "adam" else 1.0
    return 0.03 * min(1.0, 1000.0 / max(1, count_points(mean.points)))


def _default_or_checked(optimizer: Any | None, learning_rate: float | None) -> Any:
    if optimizer is None:
        return tf_keras.optimizers.Adam(DEFAULT_RATE if learning_rate is None else learning_rate)
    check_optimizer(optimizer)
    return optimizer


def _held_out(view: Any, evaluation: tuple) -> tuple:
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
