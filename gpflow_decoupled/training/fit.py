"""One call that trains a model."""

from __future__ import annotations

__all__ = ["fit"]

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import SupportsFloat

import numpy.typing as npt
import tensorflow as tf
from gpflow.monitor import Monitor
from tqdm.auto import tqdm

from ..errors import DataError, NumericalError, WorkerError
from ..optimizers import ConjugateGradients, StochasticDualDescent
from ..user_warnings import naming_columns
from .batches import Data
from .checkpoints import Checkpoints
from .evaluation import Evaluation, checked
from .keras import Optimizer
from .options import OF_STEPS, Callback, Callbacks, chosen, named_options
from .result import FitResult
from .routes.minibatches import check_kernel_gradients
from .routes.registry import route_for
from .run import Beginning, Run
from .schedules import MeanSolver, Schedule


@named_options
def fit(
    model: tf.Module,
    data: Data = None,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    batch_size: int | None | str = "auto",
    natural_gradient: float | None | str = "auto",
    hold: str | None = None,
    negative_precision: str | None = None,
    precision: str | None = None,
    mean_solver: str | MeanSolver | ConjugateGradients | StochasticDualDescent | None = None,
    learning_rate: float | None = None,
    optimizer: Optimizer | str | None = None,
    schedule: Schedule | None = None,
    evaluation: Evaluation | Sequence[npt.ArrayLike] | None = None,
    checkpoint: Checkpoints | str | os.PathLike[str] | None = None,
    callbacks: Callbacks | Sequence[Callback | Monitor] | None = None,
    seed: int | None = None,
    initialize: str | None = None,
    progress: bool = True,
    compile: bool | str = True,
    strategy: tf.distribute.Strategy | None = None,
) -> FitResult:
    """Train a model of this package, a `Standardized` one, or a plain `gpflow.models.SVGP`.

    Only trainable Parameters move. The page "What `fit` does" has what moves q of each model,
    defaults, and the models that take each option.

    :param model: trained in place.
    :param data: (X [N, D], Y [N, P]), also on disk; a repeated `tf.data.Dataset` of batches; or a
        function that returns an iterator of batches, called per pass. Streams need the model's
        `num_data`. None for a model that has its data. A `Standardized` model takes original units.
    :param steps: number of steps; 2000 if `seconds` is not given either.
    :param seconds: wall-clock limit of the steps; compilation, evaluations and preparation take
        some 2 to 15 seconds more.
    :param batch_size: rows of a minibatch; "auto" is 1024, or 256 from four latents on; None is all
        rows.
    :param natural_gradient: step size of q in (0, 1]; "auto" is at most 0.5, or 0.2 for
        log rates, and less on small batches.
        None leaves q(u) to `optimizer`, and sites and multipliers unchanged.
    :param hold: fixed part of q while kernel and inducing points move: "sites" or "whitened" (mean
        and root, as in GPflow); "auto" is sites if batches are large. "sites" or "moments" for a
        `CVIGP`, "sites" or "multipliers" for an `LCLGP`.
    :param negative_precision: "damp", "clip" or "raise", see `optimizers.NaturalGradient`.
    :param precision: "full", or "mixed": products with rows of data in float32, for steps a quarter
        shorter and a bound exact to about 1e-6.
    :param mean_solver: "adam", "natural" or "newton", or a `MeanSolver`. For `gamma="data"`,
        "conjugate_gradients", a `ConjugateGradients` or a `StochasticDualDescent`.
    :param learning_rate: of `optimizer`; 0.03 for Adam.
    :param optimizer: a new Keras 2 or 3 optimizer for all but q; by default Adam. "lbfgs" climbs
        the bound at the best q: on inducing points for Gaussian noise and N M up to 30 million,
        N M^2 per evaluation; for a `CVIGP` or `LCLGP` some 2 N^3; for an `AffineIndependentGP` over
        q, too.
    :param schedule: a `Schedule` of ramp, annealing and refreshes.
    :param evaluation: held-out (X, Y), scored every 500 steps and at the end, or an `Evaluation`,
        which may stop the run early.
    :param checkpoint: a folder to save the state in every 500 steps, and resume from; or a
        `Checkpoints`.
    :param callbacks: functions of (step, metrics, model), called every 20 steps, or a `Callbacks`.
    :param seed: of shuffling and subsampling. `MonteCarlo` has a seed too; likelihoods that sample
        (`Softmax`) need `tf.random.set_seed`.
    :param initialize: "auto" first fits kernel, noise and mean function by `training.initialize`,
        for a `Gaussian` likelihood and arrays; a tenth of `seconds` at most.
    :param progress: show a line with steps, time and bound.
    :param compile: False runs eagerly, faster for a few steps; "xla" is for models on inducing
        points on GPUs and TPUs.
    :param strategy: a `tf.distribute` strategy that shares the rows of each batch, for models on
        inducing points built in `strategy.scope()`, or of the climbs of an `NNGP`.
    :raises CheckpointError: if another run uses the folder, or it is not writable.
    :raises UnknownOptionError: also for options that this model does not use.
    :raises WorkerError: if another worker of the strategy fails or is gone.
    :raises NumericalError: if a step fails; the last good Parameters are restored, and the error's
        `result` has the run so far.

    Example::

        model = ODVGP(kernel, gpflow.likelihoods.Gaussian(), gamma, beta)
        result = fit(model, (X, Y), steps=1000, evaluation=(X_test, Y_test))
        print(result, result.history["log_density"])
    """
    arguments = dict(locals())  # first of all: the options by name
    del arguments["model"], arguments["data"]
    usual: Mapping[str, object] = {}
    in_units: Callable[[FitResult], FitResult] = _unchanged
    shift: Callable[[], SupportsFloat] = float
    columns = getattr(model, "column_names", ())
    if hasattr(model, "on_scale"):  # of a `Standardized`, which is built on this function
        usual, in_units, shift = model.usual_options, model.result_in_units, model.log_scale
        model, data, arguments["evaluation"] = model.on_scale(data, evaluation)
    route = route_for(model)
    asked = chosen(arguments)
    if not OF_STEPS & set(asked):
        asked = {**usual, **asked}
    route.check(model, asked)
    options = route.options(model, asked)
    with (
        naming_columns(*columns),
        (group := options.group).scope(),
        group.naming_lost_workers(),
        route.accepting(model) as accept,
        _errors_in_units(in_units),
    ):
        view = route.view(model)
        check_kernel_gradients(view, group)
        if options.evaluation is not None:
            options = replace(options, evaluation=checked(view, options.evaluation))
        plan = route.plan(view, data, options)
        begin = Beginning(view, plan.batches, options, lambda: accept(view, plan.batches))
        # changes the model from here on
        result = in_units(Run(model, plan, options, begin, shift).go())
        if result.evidence is not None and options.progress and group.is_first:
            tqdm.write(str(result.evidence), file=sys.stderr)
        return result


@contextmanager
def _errors_in_units(in_units: Callable[[FitResult], FitResult]) -> Iterator[None]:
    try:
        yield
    except (NumericalError, DataError, WorkerError) as error:
        if isinstance(error.result, FitResult):
            error.result = in_units(error.result)
        raise


def _unchanged(result: FitResult) -> FitResult:
    return result
