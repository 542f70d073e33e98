"""One call that trains a model."""

from __future__ import annotations

__all__ = ["fit"]

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy.typing as npt
import tensorflow as tf
from gpflow.monitor import Monitor

from ..optimizers import ConjugateGradients, StochasticDualDescent
from .batches import Data
from .beginning import Beginning
from .checkpoints import Checkpoints
from .evaluation import Evaluation, checked
from .keras import Optimizer
from .mean_solver import MeanSolver
from .options import chosen
from .progress import Callback, Callbacks
from .result import FitResult
from .routes.checks import check_kernel_gradients
from .routes.registry import route_for
from .run import Run
from .schedules import Schedule


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

    Trainable Parameters move, and no others; if only q is trainable, the Lagrangian and the ascent
    run once, to their end. An option that a model does not use is refused. A warning before the
    first step says if data and model are on different scales; see `Standardized`.

    :param model: is trained in place.
    :param data: (X [N, D], Y [N, P]), which are read batch by batch if an array is on disk
        (`numpy.memmap`, or another array with a shape, a dtype and slices); a `tf.data.Dataset` of
        batches of such pairs, which is repeated; or a function without arguments that returns an
        iterator of such batches, called once per pass. For the last two the model must know
        `num_data`. With several workers a function of `tf.distribute.InputContext` that returns the
        dataset of one. None for a model that owns its data; for a `Standardized` model in original
        units, and None for the data that it was built from.
    :param steps: how many steps; 2000 if `seconds` is not given either.
    :param seconds: wall-clock limit of the steps; compilation and evaluations come on top.
    :param batch_size: rows of a minibatch; "auto" is 1024, or 256 with four latents or more; None
        is all rows.
    :param natural_gradient: step size of q in (0, 1]. "auto" is 0.5 on M inducing points, or
        2 B / (B + R) with batches of B rows if that is less, R the larger of 3,000 and 10 M but no
        more than 3 N; 0.5 for sites, 1 for messages. None leaves q(u) to `optimizer` (the default
        with GPflow's `MultiClass`), and sites and multipliers unchanged.
    :param hold: what of q stays while kernel and inducing points move. "sites" needs fewer steps
        than "whitened", the mean and root that GPflow's training holds, but each takes longer: by
        15 % with 300 points, by half with 1,000. "auto" holds sites where a batch has at least
        2 L M rows for L latents of M points, or is all data. For a `CVIGP`, "sites" or the
        "moments" of q(f); for an `LCLGP`, "sites" or "multipliers".
    :param negative_precision: "damp" (the default), "clip" or "raise", see
        `optimizers.NaturalGradient`.
    :param precision: "full" (the default), or "mixed": products with rows of data in float32, which
        makes a step in float64 about a quarter shorter and leaves its bound exact to about 1e-6.
        For coupled, orthogonal and hybrid bases.
    :param mean_solver: "adam" (the default), "natural" or "newton", or a `MeanSolver` with a step
        size. A mean on all data, `gamma="data"`, is solved for by "conjugate_gradients" (the
        default there), by a `ConjugateGradients` with other settings, or by a
        `StochasticDualDescent`; the first 70 % of such a run train on beta alone.
    :param learning_rate: of `optimizer`, instead of its own; 0.03 for Adam.
    :param optimizer: a new Keras 2 or Keras 3 optimizer for all but q; Adam if not given. "lbfgs"
        is for Gaussian noise and arrays with N M up to 30 million: after a quarter of the run,
        which Adam trains, L-BFGS on all rows climbs the bound at the best q(u). That counts as one
        step. It costs N M^2 per evaluation, and 7 N M numbers of memory.
    :param schedule: a `Schedule` of ramp, annealing and refreshes.
    :param evaluation: held-out (X, Y), scored every 500 steps and at the end, or an `Evaluation`,
        which may also stop the run.
    :param checkpoint: a folder, where the state is saved every 500 steps, and from which a run goes
        on; or a `Checkpoints`.
    :param callbacks: functions of (step, metrics, model), called every 20 steps, or a `Callbacks`.
    :param seed: fixes shuffling and subsampling: same seed, same trace; 0 if not given.
        `MonteCarlo` has its own seed, and likelihoods that sample (`Softmax`) draw from
        TensorFlow's global generator: call `tf.random.set_seed` too.
    :param initialize: "auto" starts kernel, noise and mean function from values that suit the data,
        see `training.initialize`, for a `Gaussian` likelihood and arrays. It takes a tenth of
        `seconds` at most, which count.
    :param progress: show a line with steps, time and bound.
    :param compile: False runs the steps eagerly, which pays for a few steps. "xla" compiles them by
        XLA, for models on inducing points: the same steps to round-off, meant for GPUs and TPUs.
    :param strategy: a `tf.distribute` strategy, which shares out the rows of each batch; the model
        must have been built in `strategy.scope()`. For models on inducing points.
    :return: the record of the run.
    :raises ModelError: for a model of another kind, with what trains it.
    :raises DataError: for unusable data and values out of range, before the first step and with
        nothing changed.
    :raises CheckpointError: if the folder of `checkpoint` is in use by another run, or cannot be
        written.
    :raises UnknownOptionError: for an option that this model does not use, with those that it does,
        and for unknown values.
    :raises WorkerError: if another worker of the strategy fails or is gone.
    :raises NumericalError: if a step fails. The last good parameters are restored, and the record
        so far is in its `result`.

    Example::

        model = ODVGP(kernel, gpflow.likelihoods.Gaussian(), gamma, beta)
        result = fit(model, (X, Y), steps=1000, evaluation=(X_test, Y_test))
        print(result, result.history["log_density"])
        regression = BasisGP(kernel, gpflow.likelihoods.Gaussian(), CoupledBasis(beta))
        fit(regression, (X, Y), seconds=60, optimizer="lbfgs")
    """
    arguments = dict(locals())  # first of all: the options by name
    del arguments["model"], arguments["data"]
    if hasattr(model, "on_scale"):  # of a `Standardized`, which is built on this function
        model, data, arguments["evaluation"] = model.on_scale(data, evaluation)
    route = route_for(model)
    route.check(model, asked := chosen(arguments))
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
        return Run(model, plan, options, begin).go()  # which changes the model from here on
