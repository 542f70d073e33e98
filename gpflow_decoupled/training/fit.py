"""One call that trains a model."""

from __future__ import annotations

__all__ = ["fit"]

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import SupportsFloat

import numpy.typing as npt
import tensorflow as tf
from gpflow.monitor import Monitor
from tqdm.auto import tqdm

from ..errors import DataError, NumericalError, WorkerError
from ..optimizers import ConjugateGradients, StochasticDualDescent
from .batches import Data
from .beginning import Beginning
from .checkpoints import Checkpoints
from .evaluation import Evaluation, checked
from .keras import Optimizer
from .mean_solver import MeanSolver
from .options import OF_STEPS, chosen, named_options
from .progress import Callback, Callbacks
from .result import FitResult
from .routes.checks import check_kernel_gradients
from .routes.registry import route_for
from .run import Run
from .schedules import Schedule


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

    | model | q is moved by | the rest by |
    |---|---|---|
    | `BasisGP`, `ODVGP`, `HDVGP`, `SOLVEGP`, `DVGP`, `SparseCVIGP`, `CVIGLM` in weight space, \
GPflow's `SVGP` | natural gradients; `mean_solver` for the mean points | `optimizer` |
    | `CVIGP`, `CVIGLM` in function space | conjugate computation of the sites | `optimizer` |
    | `LCLGP`, `LCLGLM` | a run of the Lagrangian, then an outer iteration a step | `optimizer` |
    | `AffineIndependentGP`, `AffineIndependentGLM` | `AffineIndependentAscent`, at first, \
every 20 steps and at the end | `optimizer` |
    | `NNGP` | nothing: it is exact given the neighbours | L-BFGS on random rows, a climb a step |
    | `FactorGraph` | `MeanFieldCVI` | |

    Only trainable Parameters move; if only q is trainable, the Lagrangian and the ascent run once,
    to their end.

    :param model: trained in place.
    :param data: (X [N, D], Y [N, P]), also on disk (`numpy.memmap`, or arrays with a shape, a dtype
        and slices); a `tf.data.Dataset` of such batches, repeated; or a function without arguments
        that returns an iterator of batches, called per pass. Streams need the model's `num_data`;
        with several workers, use a function of `tf.distribute.InputContext` that returns a worker's
        dataset. None for a model that owns its data. A `Standardized` model takes data in original
        units; None uses the data it was built from.
    :param steps: number of steps; 2000 if `seconds` is not given either.
    :param seconds: wall-clock limit of the steps, without compilation and evaluations.
    :param batch_size: rows of a minibatch; "auto" is 1024, or 256 with four latents or more; None
        is all rows.
    :param natural_gradient: step size of q in (0, 1]. "auto" is 0.5 on M inducing points, or less
        on small batches: 2 B / (B + R) with B rows, R the larger of 3,000 and 10 M up to 3 N; 0.5
        for sites, 1 for messages. None leaves q(u) to `optimizer` (the default with GPflow's
        `MultiClass`), and sites and multipliers unchanged.
    :param hold: fixed part of q while kernel and inducing points move. "sites" needs fewer steps
        than "whitened" (mean and root, as in GPflow), which are longer by 15 % with 300 points, by
        half with 1,000. "auto" holds sites if a batch has at least 2 L M rows for L latents of M
        points, or is all data. For a `CVIGP`, "sites" or the "moments" of q(f); for an `LCLGP`,
        "sites" or "multipliers".
    :param negative_precision: "damp" (the default), "clip" or "raise", see
        `optimizers.NaturalGradient`.
    :param precision: "full" (the default), or "mixed": products with rows of data in float32, for
        steps about a quarter shorter and a bound exact to about 1e-6. For coupled, orthogonal and
        hybrid bases.
    :param mean_solver: "adam" (the default), "natural" or "newton", or a `MeanSolver` with a step
        size. For `gamma="data"`, "conjugate_gradients" (the default there), a `ConjugateGradients`
        or a `StochasticDualDescent`; the first 70 % of such a run train on beta alone.
    :param learning_rate: of `optimizer`; 0.03 for Adam.
    :param optimizer: a new Keras 2 or Keras 3 optimizer for all but q; by default Adam. "lbfgs",
        for Gaussian noise and arrays with N M up to 30 million, climbs the bound at the best q(u)
        on all rows after a quarter of the run by Adam. That counts as one step, of N M^2 per
        evaluation and 7 N M numbers of memory. A `CVIGP`
        or `LCLGP` climbs the bound at its best sites, with Gaussian noise the evidence, from the
        start, in one step of at most `steps` evaluations of some 2 N^3 each; `build` chooses that
        unless an option asks for steps.
    :param schedule: a `Schedule` of ramp, annealing and refreshes.
    :param evaluation: held-out (X, Y), scored every 500 steps and at the end, or an `Evaluation`,
        which may stop the run early.
    :param checkpoint: a folder, where the state is saved every 500 steps and a run resumes; or a
        `Checkpoints`.
    :param callbacks: functions of (step, metrics, model), called every 20 steps, or a `Callbacks`.
    :param seed: of shuffling and subsampling, by default 0. `MonteCarlo` has a seed too;
        likelihoods that sample (`Softmax`) need `tf.random.set_seed`.
    :param initialize: "auto" first fits kernel, noise and mean function to the data, see
        `training.initialize`, for a `Gaussian` likelihood and arrays; a tenth of `seconds` at most.
    :param progress: show a line with steps, time and bound.
    :param compile: False runs the steps eagerly, faster for a few. "xla" compiles them by XLA, for
        models on inducing points on GPUs and TPUs.
    :param strategy: a `tf.distribute` strategy that shares the rows of each batch, for models on
        inducing points built in `strategy.scope()`; or those of the climbs of an `NNGP`.
    :raises ModelError: for a model of another kind, with its optimizer.
    :raises DataError: for unusable data and values out of range; nothing is changed.
    :raises CheckpointError: if another run uses the folder of `checkpoint`, or it is not writable.
    :raises UnknownOptionError: for unknown values, and options that this model does not use.
    :raises WorkerError: if another worker of the strategy fails or is gone.
    :raises NumericalError: if a step fails; the last good Parameters are restored, and the error's
        `result` has the run so far.

    Example::

        model = ODVGP(kernel, gpflow.likelihoods.Gaussian(), gamma, beta)
        result = fit(model, (X, Y), steps=1000, evaluation=(X_test, Y_test))
        print(result, result.history["log_density"])
        regression = BasisGP(kernel, gpflow.likelihoods.Gaussian(), CoupledBasis(beta))
        fit(regression, (X, Y), seconds=60, optimizer="lbfgs")
    """
    arguments = dict(locals())  # first of all: the options by name
    del arguments["model"], arguments["data"]
    usual: Mapping[str, object] = {}
    in_units: Callable[[FitResult], FitResult] = _unchanged
    shift: Callable[[], SupportsFloat] = float
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
        (group := options.group).scope(),
        group.naming_lost_workers(),
        route.accepting(model) as accept,
    ):
        view = route.view(model)
        check_kernel_gradients(view, group)
        options = replace(options, evaluation=checked(view, options.evaluation))
        plan = route.plan(view, data, options)
        begin = Beginning(view, plan.batches, options, lambda: accept(view, plan.batches))
        try:
            result = Run(model, plan, options, begin, shift).go()  # changes the model from here on
        except (NumericalError, DataError, WorkerError) as error:
            if isinstance(error.result, FitResult):
                error.result = in_units(error.result)
            raise
        result = in_units(result)
        if result.evidence is not None and options.progress and group.is_first:
            tqdm.write(str(result.evidence), file=sys.stderr)
        return result


def _unchanged(result: FitResult) -> FitResult:
    """The record of a model that is in the units of its data."""
    return result
