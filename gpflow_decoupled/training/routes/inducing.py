"""Models on inducing points: q(u) by natural gradients, the mean points by a solver of their own, the rest by an optimizer.

A step is compiled as one function:

1. The bound at the Parameters as they are, and its derivatives by mean and variance at the data, say where q(u) goes.
2. The same rows under the new q(u) give the gradients of all else, see `natural_gradient.in_turn`. Where q(u) is not whitened,
   or moves together with mean coefficients, they are those at the old q(u).
3. Mean coefficients, then kernel, likelihood, mean function and inducing points move by their gradients.
4. q(u) is written: its new sites in the frame of the new kernel, (C28), or its new whitened mean and root.
"""

from __future__ import annotations

__all__ = ["InducingRoute", "TrainingStep"]

import warnings
from collections.abc import Mapping

import tensorflow as tf
from gpflow.keras import tf_keras
from gpflow.likelihoods import MonteCarloLikelihood, MultiClass
from gpflow.models import SVGP

from ... import replicas
from ...bases.parts.data_mean import DataMean
from ...compilation import Compiled
from ...covariances.blocks import xla_works
from ...errors import NumericalError, UnknownOptionError
from ...inducing.variables import count_points
from ...models import BasisGP
from ...optimizers import ConjugateGradients, NaturalGradient
from ...optimizers.data_mean.base import MeanOptimizer
from ...optimizers.natural_gradient.evaluation import as_basis_model, evaluate
from ...optimizers.natural_gradient.in_turn import can_move_first, evaluate_in_turn
from ...replicas import Group, dataset_of
from ...summaries import short_repr
from ..batches import DEFAULT_BATCH, Batches, make_batches
from ..schedules import Limits
from ..step import Step, StepOutput, StepSizes, Trackable, all_finite
from .data_mean.parts import BY_NAME, parts_on_data
from .keras import KerasAscent, Optimizer
from .on_replicas import bound_on_replicas, check_on_replicas, shards_of, ways_to_trace
from .roles import check_precision, check_roles, natural_rule, natural_step, sites_pay, warn_of_sizes
from .route import EVERY_ROUTE, METHODS, OF_OPTIMIZER, Choices, Data, MeanSolver, Model, Route, kinds_of

_OF_MEAN = frozenset({"mean_solver", "Schedule.refresh_every"})
"""What acts on mean points alone."""
_FLOOR = 0.01
"""For mean coefficients that are trained by Adam, see `OrthogonalBasis.refresh`."""


class InducingRoute(Route):
    """`BasisGP` with its kin (`ODVGP`, `SparseCVIGP`, ...) and plain `gpflow.models.SVGP`."""

    models = (BasisGP, SVGP)
    options = (
        EVERY_ROUTE
        | OF_OPTIMIZER
        | _OF_MEAN
        | {"batch_size", "natural_gradient", "hold", "negative_precision", "Schedule.ramp_steps", "seed"}
        | {"evaluation", "checkpoint", "initialize", "strategy", "precision"}
    )
    reasons = dict.fromkeys(_OF_MEAN, "This model has no mean points of its own.")
    defaults = {"natural_gradient": "auto", "Schedule.ramp_steps": 10, "hold": "auto"}
    holds = ("auto", "sites", "whitened")
    compiles = (True, False, "xla")

    def options_of(self, model: Model) -> frozenset[str]:
        """All, or all but those of the mean points where there are none; a mean on all data has a solver, and no refreshes."""
        mean = model.basis.kernel_mean if isinstance(model, BasisGP) else None
        if isinstance(mean, DataMean):
            return self.options - {"Schedule.refresh_every"}
        return self.options - _OF_MEAN if mean is None else self.options

    def defaults_of(self, model: Model, chosen: Mapping[str, object]) -> Mapping[str, object]:
        """Those of all, but Adam for q(u) too where the likelihood is a robust maximum and no option asks for more."""
        mean = model.basis.kernel_mean if isinstance(model, BasisGP) else None
        solver = chosen.get("mean_solver", "adam")
        asked = {"hold", "negative_precision"} & set(chosen) or getattr(solver, "method", solver) != "adam"
        robust = isinstance(model.likelihood, MultiClass) and not isinstance(mean, DataMean)
        return {**self.defaults, "natural_gradient": None} if robust and not asked else self.defaults

    def check(self, model: Model, chosen: Mapping[str, object]) -> None:
        """Refuse options that would be ignored, solvers of other mean points, and what several replicas cannot do."""
        super().check(model, chosen)
        if (strategy := chosen.get("strategy")) is not None:
            check_on_replicas(model, strategy, chosen)
        if chosen.get("compile") == "xla" and not xla_works():
            raise UnknownOptionError(
                'compile="xla": this TensorFlow has no XLA compiler for its device; use compile=True.'
            )
        if chosen.get("precision") == "mixed":
            check_precision(self.view(model))
        solver = chosen.get("mean_solver")
        of_data = isinstance(model, BasisGP) and isinstance(model.basis.kernel_mean, DataMean)
        if of_data and solver is not None and not _is_by_name(solver) and not isinstance(solver, MeanOptimizer):
            stored = isinstance(solver, MeanSolver) or isinstance(solver, str) and solver in METHODS
            raise UnknownOptionError(
                f"mean_solver={short_repr(solver)} {'is for mean points that are stored' if stored else 'is not known'}; "
                f'gamma="data" takes {BY_NAME!r}, which is the default, a ConjugateGradients with settings, or a '
                "StochasticDualDescent."
            )

    def choose(self, model: Model, chosen: Mapping[str, object], limits: Limits) -> Choices:
        """Those of all, where conjugate gradients may be chosen by their name."""
        named = {"mean_solver": ConjugateGradients()} if _is_by_name(chosen.get("mean_solver")) else {}
        return super().choose(model, {**chosen, **named}, limits)

    def view(self, model: Model) -> BasisGP:
        """The model, or a `BasisGP` that shares its Parameters with a plain SVGP."""
        return as_basis_model(model)

    def mean_rate(self, model: BasisGP, solver: MeanSolver) -> float:
        """See `MeanSolver`."""
        if solver.method != "adam":
            return 1.0
        mean = model.basis.kernel_mean
        return 0.03 if mean is None else 0.03 * min(1.0, 1000.0 / max(1, count_points(mean.points)))

    def natural_step(self, model: BasisGP, choices: Choices, batches: Batches) -> float | None:
        """That of the caller, or one that suits batch and points."""
        if choices.natural_gradient != "auto":
            return super().natural_step(model, choices, batches)
        rows = batches.batch_size or DEFAULT_BATCH
        return natural_step(rows, count_points(model.basis.beta), batches.num_data)

    def accept(self, model: BasisGP | SVGP, view: BasisGP, batches: Batches) -> None:
        """Set the number of observations, which scales the bound of a minibatch."""
        view.num_data = model.num_data = batches.num_data

    def parts(self, model: BasisGP, data: Data, choices: Choices) -> tuple[Step, Batches]:
        """A `TrainingStep` on minibatches of the data."""
        if isinstance(model.basis.kernel_mean, DataMean):
            return parts_on_data(model, model.basis.kernel_mean, data, choices, self.parts)
        if not isinstance(choices.mean_solver, MeanSolver):
            raise UnknownOptionError(
                f'{type(choices.mean_solver).__name__} needs a mean on all data, gamma="data", and the mean points of this '
                f'{type(model).__name__} are its own: use mean_solver="adam" or "newton".'
            )
        solver = choices.mean_solver.method
        check_roles(model, choices.natural_gradient is not None, solver)
        batches = make_batches(model, dataset_of(data, choices.group), choices.batch_size, choices.seed)
        warn_of_sizes(model, batches.num_data)
        rates = self.rates(model, choices, batches)
        rho, rate = rates.natural_gradient, rates.mean_learning_rate
        natural = None if rho is None else natural_rule(model, rho, rate, solver, choices.negative_precision)
        mean_optimizer = tf_keras.optimizers.Adam(rate) if solver == "adam" else None
        shards = shards_of(batches, choices.group)
        held = choices.hold == "sites" or (choices.hold == "auto" and sites_pay(model.basis, batches))
        compile = "xla" if choices.xla else choices.compile
        low = tf.float32 if choices.precision == "mixed" else None
        step = TrainingStep(
            model, natural, choices.optimizer, mean_optimizer, compile, held, low, choices.group, shards
        )
        return step, batches


class TrainingStep(Step):
    """Natural gradients on the Gaussians of q, one optimizer on the mean coefficients, another on everything else.

    :param model: whose `trainable` flags are read and left alone.
    :param natural: the rule for q; None hands the Gaussians of q to `optimizer` too.
    :param optimizer: for kernel, likelihood, mean function and inducing points.
    :param mean_optimizer: for the mean coefficients; None where `natural` moves them.
    :param compile: False runs eagerly, "xla" compiles by XLA.
    :param hold_sites: hold q's sites while kernel and inducing points move, where the basis can; else its Parameters.
    :param low: the precision of products with rows of data, see `evaluate`; None is that of the model.
    :param group: each of whose replicas takes the step on its own rows, see `replicas`; None is this process alone.
    :param shards: the shapes and types of X [None, D] and Y [None, P] where each worker has batches of its own.
    """

    def __init__(
        self,
        model: BasisGP,
        natural: NaturalGradient | None,
        optimizer: Optimizer,
        mean_optimizer: Optimizer | None,
        compile: bool | str = True,
        hold_sites: bool = True,
        low: tf.DType | None = None,
        group: Group | None = None,
        shards: list[tf.TensorSpec] | None = None,
    ) -> None:
        self.model, self.natural, self.low = model, natural, low
        mean = [] if model.basis.kernel_mean is None else [model.basis.kernel_mean.coefficients.unconstrained_variable]
        gaussians = [p.unconstrained_variable for p in model.basis.gaussian_parameters()]
        trainable = {v.ref() for v in model.trainable_variables}
        self.mean_variables = [v for v in mean if v.ref() in trainable and v.shape[0] > 0]
        taken = {v.ref() for v in mean} | ({v.ref() for v in gaussians} if natural is not None else set())
        others = [v for v in model.trainable_variables if v.ref() not in taken]
        movable = gaussians + (mean if natural is not None and natural.mean is not None else [])
        self.moves_naturally = natural is not None and any(v.ref() in trainable for v in movable)
        if natural is not None and self.moves_naturally:
            natural.prepare(model)
        prior = {v.ref() for v in (*model.kernel.trainable_variables, *model.basis.trainable_variables)}
        moves_prior = any(v.ref() in prior for v in others)
        self.takes_turns = natural is not None and self.moves_naturally and can_move_first(model.basis, natural)
        self.holds_sites = hold_sites and self.moves_naturally and model.basis.holds_sites and moves_prior
        self.others = KerasAscent(optimizer, others)
        self.mean = None if mean_optimizer is None else KerasAscent(mean_optimizer, self.mean_variables)
        self.group = group or Group()
        on_rows = self.group.on_rows(self._step, of_worker=shards is not None)
        options = {"jit_compile": compile == "xla", **ways_to_trace(shards)}
        self._compiled: Compiled | None = Compiled(on_rows, **options) if compile else None
        self._run = on_rows if self._compiled is None else self._compiled
        self._sized: tuple[float, float] | None = None

    @property
    def variables(self) -> list[tf.Variable]:
        """Everything that a step writes."""
        own = [p.unconstrained_variable for p in self.model.basis.gaussian_parameters()]
        mean = self.model.basis.kernel_mean
        scaling = [] if mean is None or mean.scaling.frozen is None else [mean.scaling.frozen]
        by_mean = [] if self.mean is None else self.mean.variables
        return [*own, *self.mean_variables, *self.others.variables, *by_mean, *scaling]

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        """Both optimizers and the natural gradient, as far as there are any."""
        found = {"optimizer": self.others.optimizer, "natural": self.natural}
        found["mean_optimizer"] = None if self.mean is None else self.mean.optimizer
        return {name: part for name, part in found.items() if part is not None}

    @property
    def settings(self) -> dict[str, object]:
        """How q and the mean coefficients move, and the parts of the model."""
        natural = self.natural
        return {
            **kinds_of(self.model),
            "mean_solver": None if natural is None else natural.mean,
            "negative_precision": None if natural is None else natural.negative_precision,
            "optimizer": self.others.name,
            "holds_sites": self.holds_sites,
            "precision": "full" if self.low is None else "mixed",
            "num_samples": None if self.model.expectations is None else self.model.expectations.num_samples,
        }

    def trace(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        """Compile the step for X [B, D], Y [B, P]."""
        if self._compiled is not None:
            alone = self.group.strategy is None
            (self._compiled.bind if alone else self._compiled.get_concrete_function)(X, Y, seed)

    def set_step_sizes(self, sizes: StepSizes) -> None:
        """Take those of q, of the mean coefficients and of everything else."""
        if self.natural is not None and sizes.natural_gradient is not None:
            sized = sizes.natural_gradient, sizes.mean_learning_rate
            if sized != self._sized:  # most steps have those of the step before
                self.natural.gamma.assign(sizes.natural_gradient)
                self.natural.mean_step.assign(sizes.mean_learning_rate)
                self._sized = sized
        self.others.set_rate(sizes.learning_rate)
        if self.mean is not None:
            self.mean.set_rate(sizes.mean_learning_rate)

    def refresh(self) -> bool:
        """Bring the frozen scaling of the mean coefficients up to date; q(f) does not change."""
        if self.model.basis.kernel_mean is None:
            return False
        try:
            self.model.basis.refresh(self.model.kernel, 0.0 if self.mean is None else _FLOOR)
        except NumericalError as error:  # it is only a preconditioner: the old one will do
            warnings.warn(f"The scaling of the mean coefficients was not refreshed. {error}", stacklevel=2)
            return False
        return True

    def bound(self, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor | None:
        """The bound on all data, unless draws or a subsample of the mean points estimate it."""
        mean = self.model.basis.kernel_mean
        sampled = self.model.expectations is not None or (mean is not None and mean.subsample is not None)
        return None if sampled else bound_on_replicas(self.model, self.group, X, Y)

    def probe(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """The bound, or what it is made of where it is sampled; X [B, D], Y [B, P], and `seed` [2] chooses rows."""
        model, basis = self.model, self.model.basis
        X, Y = model.as_tensors((X, Y))
        state = basis.factor(model.kernel, rows=basis.draw_rows(seed))
        features = basis.features(state, model.kernel, X)
        mean, variance = features.mean, basis.variance(features, model.kernel, X)
        samples = model.expectations is not None or isinstance(model.likelihood, MonteCarloLikelihood)
        expected = mean + variance if samples else model.variational_expectations(mean, variance, (X, Y))
        return model.scale(X) * tf.reduce_sum(expected) - basis.prior_kl(state)

    def matrices(self) -> dict[str, tf.Tensor]:
        """Those of the basis."""
        return self.model.basis.matrices(self.model.kernel)

    def run(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> StepOutput:
        """One step on X [B, D], Y [B, P]; see the top of this file."""
        return self._run(X, Y, seed)

    def _step(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> StepOutput:
        # 1. the bound, where q goes, and all other gradients
        rows = self.model.basis.draw_rows(seed)
        moved = [*self.mean_variables, *self.others.moved]
        natural = self.natural if self.moves_naturally else None
        if natural is not None and self.takes_turns:
            evaluation, move = evaluate_in_turn(self.model, (X, Y), natural, moved, rows, self.holds_sites, self.low)
        else:
            with_target = natural is not None and natural.starts_at(self.model)
            evaluation = evaluate(self.model, (X, Y), moved, rows, self.holds_sites, with_target, self.low)
        count = len(self.mean_variables)
        mean_gradients, other_gradients = evaluation.gradients[:count], evaluation.gradients[count:]
        ok = tf.logical_and(evaluation.state.ok, all_finite([evaluation.elbo, *evaluation.gradients]))
        # 2. whether all replicas are well; at fixed Parameters q may be written at once
        shortened = clipped = tf.constant(0)
        if natural is not None:
            if not self.takes_turns:
                move = natural.propose(self.model, (X, Y), evaluation, mean_gradients)
            ok, shortened, clipped = tf.logical_and(ok, move.ok), move.shortened, move.clipped
        ok, clipped = replicas.agreed(ok, clipped)
        if natural is not None:
            move = move._replace(ok=ok)
            if not self.holds_sites:
                natural.commit(self.model, move)
        # 3. everything else
        if self.mean is not None:
            self.mean.ascend(mean_gradients)
        self.others.ascend(other_gradients)
        # 4. q at its sites, under the new kernel
        if natural is not None and self.holds_sites:
            natural.commit_after(self.model, move)
        return StepOutput(evaluation.elbo, ok, shortened, clipped)


def _is_by_name(solver: object) -> bool:
    return isinstance(solver, str) and solver == BY_NAME
