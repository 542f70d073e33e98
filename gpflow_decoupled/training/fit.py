"""One call that trains a model."""

from __future__ import annotations

__all__ = ["fit"]

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy.typing as npt
import tensorflow as tf
from gpflow.monitor import Monitor

from ..errors import DataError
from ..models import BasisGP, FactorGraph, FullGP
from ..optimizers import ConjugateGradients, StochasticDualDescent
from .batches import Batches
from .beginning import Beginning
from .checkpoints import Checkpoints
from .evaluation import Evaluation, check_held_out
from .loop import Loop
from .options import chosen
from .plan import Plan
from .progress import Callback, Callbacks
from .result import FitResult
from .routes.keras import Optimizer
from .routes.registry import route_for
from .routes.roles import check_kernel_gradients
from .routes.route import Data, MeanSolver, Model, Route
from .routes.units import InUnits
from .schedules import Limits, Schedule

DEFAULT_STEPS = 2000


def fit(
    model: Model | InUnits,
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
    """Train any model of this package, a `Standardized` one, or a plain `gpflow.models.SVGP`, in
    place.

    | model | what updates q | what updates the rest | options beside those of all |
    |---|---|---|---|
    | `BasisGP`, `ODVGP`, `HDVGP`, `SOLVEGP`, `DVGP`, `SparseCVIGP`, `CVIGLM` in weight space, \
GPflow's `SVGP` | natural gradients; `mean_solver` for the mean points | `optimizer` | all |
    | `CVIGP`, `CVIGLM` in function space | conjugate computation of the sites | `optimizer` | `natural_gradient`, `hold`, \
`negative_precision`, `learning_rate`, `optimizer`, `Schedule.anneal`, `evaluation`, `checkpoint` |
    | `LCLGP`, `LCLGLM` | a run of the Lagrangian, then one outer iteration per step | `optimizer` | `hold`, `learning_rate`, \
`optimizer`, `Schedule.anneal`, `evaluation`, `checkpoint` |
    | `AffineIndependentGP`, `AffineIndependentGLM` | `AffineIndependentAscent`, at the first step, every 20 steps and at the \
end | `optimizer` | `learning_rate`, `optimizer`, `Schedule.anneal`, `Schedule.refresh_every`, `evaluation` |
    | `FactorGraph` | `MeanFieldCVI` | nothing is left | `natural_gradient`, `Schedule.anneal`, `seed`, `checkpoint` |

    All take `steps`, `seconds`, `callbacks`, `progress`, `compile` and the patience of
    `Evaluation`. What is trainable moves and nothing else does; if only q is trainable, the
    Lagrangian and the ascent run once, to their end. An option that a model does not use is
    refused. Before the first step there is a warning where the data are on another scale than the
    model; see `Standardized`.

    :param model: is trained in place.
    :param data: (X [N, D], Y [N, P]), whose rows are read batch by batch where an array stays on
        disk (`numpy.memmap`, or another array with a shape, a dtype and slices); a
        `tf.data.Dataset` of batches of such pairs, which is repeated as often as needed; or a
        function without arguments that returns an iterator of such batches, called once per pass.
        For the last two the model must know `num_data`. With several workers a function of
        `tf.distribute.InputContext` that returns the dataset of one. None for a model that owns its
        data. A `Standardized` model takes them in their own units; None are those that it was built
        from.
    :param steps: how many steps; 2000 if `seconds` is not given either.
    :param seconds: wall-clock limit of the steps; compilation, evaluations and a last ascent come
        on top.
    :param batch_size: rows of a minibatch; "auto" is 1024, or 256 with four latents or more, and
        all rows if there are fewer; None is all rows.
    :param natural_gradient: step size of q in (0, 1]. "auto" is 0.5 on M inducing points, or 2 B /
        (B + R) with batches of B rows if that is less, R the larger of 3,000 and 10 M but no more
        than 3 N; 0.5 for sites, 1 for messages, and None on inducing points with GPflow's
        `MultiClass`, which Adam trains better. None leaves q(u) to `optimizer`, and sites and
        multipliers where they are.
    :param hold: what of q stays while kernel and inducing points move. "sites", (C28), needs fewer
        steps than "whitened", the mean and root that GPflow's own training holds, but each takes
        longer: by 15 % with 300 points, by half with 1,000. "auto", the default, holds sites where
        a batch has at least 2 L M rows for L latents of M points, or is all data. Of a `CVIGP` the
        alternatives are "sites" (the default there) and the "moments" of q(f); of an `LCLGP`
        "sites" and the "multipliers". Bases and parametrisations without sites (unwhitened, hybrid,
        inverse) hold their Parameters.
    :param negative_precision: "damp" (the default), "clip" or "raise", see
        `optimizers.NaturalGradient`.
    :param precision: "full" (the default), or "mixed": products with rows of data and gradients of
        whitened rows in float32, which makes a step in float64 about a quarter shorter;
        factorisations, whitening and natural parameters stay as they are. The bound of a step is
        exact to about 1e-6 of it. For coupled, orthogonal and hybrid bases.
    :param mean_solver: "adam" (the default), "natural" or "newton", or a `MeanSolver` with a step
        size. A mean on all data, `gamma="data"`, is solved for by "conjugate_gradients" (the
        default there), with the settings of a `ConjugateGradients` if one is given, or by a
        `StochasticDualDescent`. The first 70 % of the run train on beta alone, for Gaussian noise
        partly by L-BFGS on all rows, which counts as one step; then kernel, likelihood and beta
        climb a bound of the evidence in turns with the mean. Where expectations are sampled, all of
        the run trains on beta, and so does most of it where `seconds` are few for the number of
        rows; the mean is solved for at the end.
    :param learning_rate: of `optimizer`, in place of its own; 0.03 for Adam.
    :param optimizer: a new Keras 2 or Keras 3 optimizer for the rest; Adam if not given. "lbfgs" is
        for Gaussian noise and arrays with N M up to 30 million: after a quarter of the run, which
        Adam trains, L-BFGS on all rows climbs the bound at the best q(u), which is known in closed
        form. That counts as one step, and a limit of `steps` stands for the rows that these would
        have seen. It costs N M^2 per evaluation, and keeps about 7 N M numbers.
    :param schedule: a `Schedule` of ramp, annealing and refreshes.
    :param evaluation: held-out (X, Y), scored every 500 steps and at the end, or an `Evaluation`,
        which also has patience and then ends with the Parameters that scored best.
    :param checkpoint: a folder, where the state is saved every 500 steps and a run goes on that
        finds one, or a `Checkpoints`.
    :param callbacks: functions of (step, metrics, model), called every 20 steps, or a `Callbacks`.
    :param seed: fixes shuffling and subsampling: same seed, same trace; 0 if not given.
        `MonteCarlo` has a seed of its own, and likelihoods that sample (`Softmax`) draw from
        TensorFlow's global generator: call `tf.random.set_seed` too.
    :param initialize: "auto" lets kernel, noise and mean function start from values that suit the
        data, see `training.initialize`, for a `Gaussian` likelihood and arrays. It takes a tenth of
        `seconds` at most, which count, and `result.start` has what was done. None: they start from
        the values that they have.
    :param progress: show a line with steps, time and bound.
    :param compile: False runs the steps eagerly. That is slower, but there is nothing to trace,
        which pays for a few steps. "xla" compiles them by XLA too, for models on inducing points:
        the same steps to round-off, where the first one waits some seconds more. It is meant for
        GPUs and TPUs.
    :param strategy: a `tf.distribute` strategy, which shares out the rows of each batch to its
        replicas; the model must have been built in `strategy.scope()`. For models on inducing
        points. With a mean on all data the products with the kernel matrix are shared out as well,
        for arrays that all workers pass.
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
    """  # noqa: E501
    if isinstance(model, InUnits):
        model, data, evaluation = model.on_scale(data, evaluation)
    route = route_for(
        model
    )  # 1. the route of the model, and whether it uses the options that were chosen
    scores = (
        evaluation
        if evaluation is None or isinstance(evaluation, Evaluation)
        else Evaluation(evaluation)
    )
    folder = (
        checkpoint
        if checkpoint is None or isinstance(checkpoint, Checkpoints)
        else Checkpoints(checkpoint)
    )
    calls = (
        callbacks
        if isinstance(callbacks, Callbacks)
        else Callbacks(() if callbacks is None else callbacks)
    )
    plan = _schedule(schedule)
    limits = Limits(DEFAULT_STEPS if steps is None and seconds is None else steps, seconds)
    options = {
        "batch_size": batch_size,
        "natural_gradient": natural_gradient,
        "hold": hold,
        "negative_precision": negative_precision,
        "precision": precision,
        "mean_solver": mean_solver,
        "learning_rate": learning_rate,
        "optimizer": optimizer,
        **{f"Schedule.{name}": value for name, value in vars(plan).items()},
        "evaluation": None if scores is None else scores.data,
        "checkpoint": folder,
        "seed": seed,
        "initialize": initialize,
        "compile": compile,
        "strategy": strategy,
    }
    route.check(model, asked := chosen(options))
    choices = route.choose(model, asked, limits)
    with (
        (group := choices.group).scope(),
        group.naming_lost_workers(),
        _accepting(route, model) as accept,
    ):
        check_kernel_gradients(view := route.view(model), group)  # 2. the parts of the run
        scores = _checked(view, scores)
        step, batches = route.parts(view, data, choices)
        begin = Beginning(view, batches, choices, initialize, lambda: accept(view, batches))
        # 3. the run; from here on the model is changed
        every, rates = choices.refresh_every, route.rates(view, choices, batches)
        run = Plan(limits, rates, every, scores, folder, calls, choices.seed, progress, group)
        return Loop(model, step, batches, run, begin).run()


@contextmanager
def _accepting(route: Route, model: Model) -> Iterator[Callable[[Model, Batches], None]]:
    """Calls `Route.accept` with the view and the batches; a run that ends without that call leaves
    the model as it was.
    """
    with ExitStack() as refusal:
        refusal.callback(route.undo(model))

        def accept(view: Model, batches: Batches) -> None:
            refusal.pop_all()  # what fails from now on is no refusal
            route.accept(model, view, batches)

        yield accept


def _checked(view: BasisGP | FullGP | FactorGraph, scores: Evaluation | None) -> Evaluation | None:
    """The evaluation with its held-out data as arrays; raises `DataError` for unusable ones."""
    if scores is None or scores.data is None:
        return scores
    return replace(scores, data=check_held_out(view, scores.data))


def _schedule(schedule: Schedule | None) -> Schedule:
    """What was passed, or the default; raises `DataError` for what is no schedule."""
    plan = Schedule() if schedule is None else schedule
    if not isinstance(plan, Schedule):
        raise DataError(
            f"schedule is a {type(plan).__name__}; pass a training.Schedule, for example"
            " Schedule(anneal=0.5)."
        )
    return plan
