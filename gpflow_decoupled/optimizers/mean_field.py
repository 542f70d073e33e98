"""Mean-field conjugate computation on factor graphs."""

from __future__ import annotations

__all__ = [
    "MeanFieldCVI", "MessageRule", "Moved", "diagnose_messages", "move", "move_groups",
    "run_batches", "run_whole",
]  # fmt: skip

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from gpflow.config import default_float
from tqdm.auto import tqdm

from ..compilation import Compiled
from ..distributions.family import Belief, Natural
from ..errors import DataError, NumericalError, check_option
from ..inputs import check_whole
from ..models.factor_graph import FactorGraph, Messages, Rows
from ..models.families import require_model
from ..summaries import settings_line, short_repr
from .ascent import (
    STUCK,
    StepReport,
    StepSize,
    ascend,
    has_fallen,
    largest_feasible_step,
    step_size_at,
)
from .conjugate_computation import ConjugateRecorder, ConjugateResult

# ---
# One step, a pure function of the messages.


class Moved(NamedTuple):
    """Messages after a step."""

    messages: Messages
    parts: Messages
    """The minibatch's part of messages from factors that minibatches divide."""
    change: tf.Tensor
    """[]: squared distance from the messages to the end of a full step, before the step."""
    shortened: tf.Tensor
    """[], int: halvings of the step to stay in the domain."""
    ok: tf.Tensor
    """[], bool: false if no step stays in the domain."""

    @classmethod
    def at(cls, messages: Messages, parts: Messages | None = None) -> Moved:
        """Messages before any step."""
        return cls(
            messages, parts or {}, tf.zeros([], default_float()), tf.constant(0), tf.constant(True)
        )


def move(
    graph: FactorGraph,
    now: Moved,
    names: Sequence[str],
    step_size: tf.Tensor,
    data: Rows,
    seed: tf.Tensor,
    scale: float = 1.0,
) -> Moved:
    """Move the messages to the variables `names` towards the gradients at `now` (C32).

    :param data: arrays of each factor, [B, ...].
    :param seed: [2], of draws.
    """
    # On a minibatch, a factor with `parts` moves its part of the message only (C20); gradients of
    # other divided factors count `scale` = N/B times (C19). The step size is halved until all
    # posteriors exist.
    # 1) the natural parameters of q, and the gradient of each factor of these variables
    naturals = graph.naturals(now.messages)
    gradients: Messages = {}
    for key, factor in graph.factors.items():
        to = [name for name in names if name in factor.neighbours]
        if to:
            gradients[key] = graph.outgoing(key, naturals, to, data[key], seed)
    # 2) where a full step takes each message, and with them the natural parameters
    goals = {
        key: {name: _goal(graph, now, key, name, g, scale) for name, g in row.items()}
        for key, row in gradients.items()
    }
    gaps = [
        (name, _difference(goal, now.messages[key][name]))
        for key, row in goals.items()
        for name, goal in row.items()
    ]
    drifts = {name: _total([gap for owner, gap in gaps if owner == name]) for name in names}
    # 3) a step that stays in the domain of each family
    step, ok = _feasible(
        {name: graph.families[name].in_domain for name in names}, naturals, drifts, step_size
    )
    messages = _towards(now.messages, goals, step)
    parts = _towards(now.parts, gradients, step)
    change = tf.add_n([tf.reduce_sum(tf.square(part)) for _, gap in gaps for part in gap])
    halvings = tf.cast(tf.round(tf.math.log(step_size / step) / np.log(2.0)), tf.int32)
    return Moved(messages, parts, now.change + change, now.shortened + halvings, now.ok & ok)


def move_groups(
    graph: FactorGraph,
    now: Moved,
    groups: Sequence[Sequence[str]],
    step_size: tf.Tensor,
    data: Rows,
    seed: tf.Tensor,
    scale: float = 1.0,
) -> Moved:
    """One `move` for each group of variables in turn; step_size is [], seed [2]."""
    for place, names in enumerate(groups):
        now = move(graph, now, names, step_size, data, tf.random.fold_in(seed, place), scale)
    return now


def _goal(
    graph: FactorGraph, now: Moved, key: str, name: str, gradient: Natural, scale: float
) -> Natural:
    if name in now.parts.get(key, {}):
        old, part = now.messages[key][name], now.parts[key][name]
        return tuple(total + (g - share) for total, g, share in zip(old, gradient, part))  # (C20)
    if scale != 1.0 and graph.in_plate(key) and name not in graph.local:
        return tuple(scale * g for g in gradient)  # (C19)
    return gradient


def _towards(old: Messages, goals: Messages, step: tf.Tensor) -> Messages:
    def moved(key: str, name: str) -> Natural:
        if name not in goals.get(key, {}):
            return old[key][name]
        return tuple(
            (1.0 - step) * was + step * goal for was, goal in zip(old[key][name], goals[key][name])
        )  # (C32)

    return {key: {name: moved(key, name) for name in row} for key, row in old.items()}


def _difference(left: Natural, right: Natural) -> Natural:
    return tuple(a - b for a, b in zip(left, right))


def _total(naturals: Sequence[Natural]) -> Natural:
    return tuple(tf.add_n(parts) for parts in zip(*naturals))


def _feasible(
    domains: Mapping[str, Callable[[Natural], tf.Tensor]],
    naturals: Mapping[str, Natural],
    drifts: Mapping[str, Natural],
    step_size: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    def inside(step: tf.Tensor) -> tf.Tensor:
        reached = {
            name: tuple(a + step * b for a, b in zip(naturals[name], drift))
            for name, drift in drifts.items()
        }
        return tf.reduce_all(
            [tf.reduce_all(domains[name](natural)) for name, natural in reached.items()]
        )

    return largest_feasible_step(inside, step_size)


def diagnose_messages(
    graph: FactorGraph, messages: Messages, data: Rows, seed: tf.Tensor
) -> NumericalError:
    """Return the error for a failed step, naming factor or variable; seed is [2]."""
    naturals = graph.naturals(messages)
    beliefs = {name: Belief.at(family, naturals[name]) for name, family in graph.families.items()}
    for key, value in graph.expected(beliefs, data, seed).items():
        if not np.isfinite(value):
            return NumericalError(
                f"the expectation of the factor '{key}' is {float(value)} at the beliefs about"
                f" {', '.join(map(repr, graph.factors[key].neighbours))}; check its data, or start"
                " nearer to the posterior.",
                matrix=key,
            )
    for key, factor in graph.factors.items():
        for name, message in graph.outgoing(
            key, naturals, factor.neighbours, data[key], seed
        ).items():
            if not all(np.all(np.isfinite(part)) for part in message):
                return NumericalError(
                    f"the message of the factor '{key}' to the variable '{name}' is not finite; use"
                    " a smaller step_size, or start nearer to the posterior.",
                    matrix=f"{key} -> {name}",
                )
    for name, family in graph.families.items():
        drift = _total(
            [
                graph.outgoing(key, naturals, [name], data[key], seed)[name]
                for key in graph.factors_of(name)
            ]
        )
        if not np.all(family.in_domain(drift)):
            return NumericalError(
                f"the messages of {', '.join(map(repr, graph.factors_of(name)))} lead the"
                f" {family.name} '{name}' out of its domain, however small the step; give it a"
                " proper prior, or use a smaller step_size.",
                matrix=name,
            )
    return NumericalError(
        "the bound is not finite after the step; use a smaller step_size.", matrix="bound"
    )


# ---
# Runs of `MeanFieldCVI`.


class MessageRule(Protocol):
    """The settings of a `MeanFieldCVI` that a run uses."""

    update: str
    local_step_size: float
    local_sweeps: int
    seed: int

    def step_size_at(self, step: int) -> float:
        """The size of step 0, 1, ..."""

    def groups(self, names: list[str]) -> list[list[str]]:
        """The groups of variables that move together."""


class _Point(NamedTuple):
    messages: Messages
    elbo: float
    """Nats."""
    ok: bool
    """True if the messages are in their domains and the bound is finite."""
    seed: tf.Tensor
    """Seed of the step [2]."""
    step_size: float
    change: float
    """Squared length of a full step from the messages before."""
    shortened: int
    """Halvings of the step to stay in the domains."""


class _MessageClimber:
    def __init__(self, rule: MessageRule, graph: FactorGraph, tolerance: float, bar: tqdm) -> None:
        self.rule, self.graph, self.tolerance, self.bar = rule, graph, tolerance, bar
        self.record = ConjugateRecorder()
        self.sampled = any(factor.samples is not None for factor in graph.factors.values())
        groups = rule.groups(list(graph.families))

        @Compiled
        def step(
            messages: Messages, step_size: tf.Tensor, seed: tf.Tensor
        ) -> tuple[Moved, tf.Tensor]:
            then = move_groups(graph, Moved.at(messages), groups, step_size, graph.data, seed)
            bound = graph.bound(
                graph.naturals(then.messages), graph.data, tf.random.fold_in(seed, len(groups))
            )
            return then, bound

        self._step = step

    def start(self) -> _Point:
        graph, seed = self.graph, _seed(self.rule, 0)
        messages = graph.current()
        elbo = float(graph.bound(graph.naturals(messages), graph.data, seed))
        return _Point(messages, elbo, bool(np.isfinite(elbo)), seed, np.nan, np.inf, 0)

    def propose(self, now: _Point, step: int, share: float) -> _Point:
        size, seed = share * self.rule.step_size_at(step), _seed(self.rule, step)
        then, bound = self._step(now.messages, tf.constant(size, default_float()), seed)
        elbo = float(bound)
        ok = bool(then.ok) and bool(np.isfinite(elbo))
        return _Point(then.messages, elbo, ok, seed, size, float(then.change), int(then.shortened))

    def accept(self, now: _Point, then: _Point) -> bool:
        if not then.ok or not (self.sampled or not has_fallen(now.elbo, then.elbo)):
            self.record.shortened += 1
            return False
        self.record.shortened += then.shortened
        self.record.add(then.step_size, then.change, then.elbo)
        self.graph.assign(then.messages)
        self.bar.set_postfix(ELBO=f"{then.elbo:.6g}")
        return True

    def converged(self, now: _Point) -> bool:
        return now.change <= self.tolerance * (1.0 + _squared(now.messages))


def run_whole(
    rule: MessageRule, graph: FactorGraph, steps: int, tolerance: float, progress: bool
) -> ConjugateResult:
    """Take steps on all data; one that lowers the bound is halved, later ones grow back."""
    bar = tqdm(range(steps), disable=not progress, desc="CVI")
    climber = _MessageClimber(rule, graph, tolerance, bar)
    start = climber.start()
    if not start.ok:
        raise diagnose_messages(graph, start.messages, graph.data, start.seed)
    end = ascend(climber, start, bar)
    if end.reason == STUCK and end.refused is not None and not end.refused.ok:
        raise diagnose_messages(graph, end.now.messages, graph.data, end.refused.seed)
    return climber.record.result(end.reason, end.now.elbo)


def run_batches(
    rule: MessageRule, graph: FactorGraph, steps: int, batch_size: int, progress: bool
) -> ConjugateResult:
    """Take steps on the parts of a fixed division of the rows, in random order."""
    if graph.num_data is None:
        raise DataError(
            f"batch_size={batch_size} needs factors with data; give a Factor its arrays as data=."
        )
    if not 1 <= batch_size <= graph.num_data:
        raise DataError(
            f"batch_size={batch_size} must be from 1 to the number of observations,"
            f" {graph.num_data}."
        )
    record, generator = ConjugateRecorder(), np.random.default_rng(rule.seed)
    blocks = np.array_split(generator.permutation(graph.num_data), -(-graph.num_data // batch_size))
    memory = _Memory(rule, graph, blocks)
    order: list[int] = []
    try:
        for step in tqdm(range(steps), disable=not progress, desc="CVI"):
            order = order or list(generator.permutation(len(blocks)))
            size = rule.step_size_at(step)
            then = memory.step(order.pop(), size, _seed(rule, step))
            # a bound costs a pass over all factors: once an epoch, and at the end
            elbo = (
                float(memory.bound(_seed(rule, step)))
                if not order or step + 1 == steps
                else float("nan")
            )
            record.shortened += int(then.shortened)
            record.add(size, float(then.change), elbo)
    finally:
        graph.assign(memory.whole())
    return record.result("steps done")


class _Memory:
    def __init__(self, rule: MessageRule, graph: FactorGraph, blocks: list[np.ndarray]) -> None:
        self.graph, self.blocks = graph, blocks
        current = graph.current()
        self.shared = _select(current, lambda key, name: name not in graph.local)
        self.rows = tf.nest.map_structure(
            lambda part: part.numpy().copy(),
            _select(current, lambda key, name: name in graph.local),
        )
        # what each block has contributed to a message for all rows; an equal share to begin with
        divided = rule.update == "local"
        parts = _select(self.shared, lambda key, name: divided and graph.in_plate(key))
        self.parts = [tf.nest.map_structure(lambda part: part / len(blocks), parts) for _ in blocks]
        self._step = self._compiled(rule)

    def _compiled(self, rule: MessageRule) -> Callable[..., Moved]:
        graph = self.graph
        inner = rule.groups([name for name in graph.families if name in graph.local])
        outer = rule.groups([name for name in graph.families if name not in graph.local])
        scale = 1.0 if rule.update == "local" else float(len(self.blocks))

        @Compiled
        def step(
            messages: Messages, parts: Messages, data: Rows, step_size: tf.Tensor, seed: tf.Tensor
        ) -> Moved:
            local_step_size = tf.constant(rule.local_step_size, step_size.dtype)
            now = move_groups(
                graph,
                Moved.at(messages, parts),
                rule.local_sweeps * inner,
                local_step_size,
                data,
                seed,
            )
            return move_groups(
                graph, now, outer, step_size, data, tf.random.fold_in(seed, len(self.blocks)), scale
            )

        return step

    def step(self, block: int, step_size: float, seed: tf.Tensor) -> Moved:
        """Move on one block; on failure raises `NumericalError` and changes nothing."""
        rows = self.blocks[block]
        data = {
            key: tuple(tf.gather(array, rows) for array in arrays)
            for key, arrays in self.graph.data.items()
        }
        messages = _merge(
            self.shared, tf.nest.map_structure(lambda part: tf.constant(part[rows]), self.rows)
        )
        then = self._step(
            messages, self.parts[block], data, tf.constant(step_size, default_float()), seed
        )
        if not then.ok:
            raise diagnose_messages(self.graph, messages, data, seed)
        self.parts[block] = then.parts
        self.shared = {
            key: {name: then.messages[key][name] for name in row}
            for key, row in self.shared.items()
        }
        for key, row in self.rows.items():
            for name, parts in row.items():
                for kept, new in zip(parts, then.messages[key][name]):
                    kept[rows] = new.numpy()
        return then

    def bound(self, seed: tf.Tensor) -> tf.Tensor:
        return self.graph.bound(self.graph.naturals(self.whole()), self.graph.data, seed)

    def whole(self) -> Messages:
        return _merge(self.shared, tf.nest.map_structure(tf.constant, self.rows))


def _select(messages: Messages, wanted: Callable[[str, str], bool]) -> Messages:
    return {
        key: {name: row[name] for name in row if wanted(key, name)} for key, row in messages.items()
    }


def _merge(left: Messages, right: Messages) -> Messages:
    return {key: {**row, **right[key]} for key, row in left.items()}


def _seed(rule: MessageRule, step: int) -> tf.Tensor:
    return tf.constant([rule.seed, step], tf.int32)


def _squared(messages: Messages) -> float:
    return float(sum(tf.reduce_sum(tf.square(part)) for part in tf.nest.flatten(messages)))


# ---


# A step of size rho moves each factor's messages to its variables z_k towards gradients in the
# expectation parameters mu_k of q(z_k), whose natural parameter is the sum of its messages: (C32)
#
#   lambda(f -> z_k) <- (1 - rho) lambda(f -> z_k) + rho grad_mu_k E_q log f


class MeanFieldCVI(tf.Module):
    """Mean-field conjugate-computation VI for `models.FactorGraph`.

    Khan & Lin 2017, section 5; with rho = 1 and conjugate factors variational message passing. Cost
    of a step: each factor's gradient for each of its variables, and a linear solve with each
    variable's Fisher matrix.

    :param step_size: rho in (0, 1], a number or a function of the step 0, 1, ...
    :param schedule: "sequential" moves one variable after the other, in the graph's order;
        "parallel" moves all at once, with a step size below 1.
    :param update: on minibatches, "local" gives each part of the data its own message; "global" is
        stochastic variational inference.
    :param local_step_size: on minibatches, step size of variables with one row per observation.
    :param local_sweeps: on minibatches, moves of these before the others.
    :param seed: of draws and minibatches.

    Example::

        graph = FactorGraph(variables, factors)  # see `models.FactorGraph`
        result = MeanFieldCVI().run(graph)
        print(graph["rate"].distribution.mean())
    """

    def __init__(
        self,
        step_size: StepSize = 1.0,
        *,
        schedule: str = "sequential",
        update: str = "local",
        local_step_size: float = 1.0,
        local_sweeps: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        # update: "local" is (C20), "global" is (C19)
        check_option("schedule", schedule, ("sequential", "parallel"))
        check_option("update", update, ("local", "global"))
        if not 0.0 < local_step_size <= 1.0:
            raise DataError(
                f"local_step_size={short_repr(local_step_size)} must be a number above 0 and at"
                " most 1."
            )
        if local_sweeps < 1:
            raise DataError(f"local_sweeps={short_repr(local_sweeps)} must be at least 1.")
        self.step_size, self.schedule, self.update = step_size, schedule, update
        self.local_step_size, self.local_sweeps, self.seed = local_step_size, local_sweeps, seed
        self.step_size_at(0)

    def __repr__(self) -> str:
        return settings_line(self)

    def step_size_at(self, step: int) -> float:
        """The step size of step 0, 1, ...; raises `DataError` outside (0, 1]."""
        return step_size_at(self.step_size, step)

    def groups(self, names: list[str]) -> list[list[str]]:
        """The groups of variables that move together."""
        return (
            [[name] for name in names]
            if self.schedule == "sequential"
            else [names]
            if names
            else []
        )

    def minimize(self, graph: FactorGraph, step: int = 0) -> StepReport:
        """Take one step of all variables on all data, without the bound, which may fall.

        :param step: number of the step, for step size and draws.
        :return: whether the step was taken, and its halvings; read `ok` in a `tf.function`, which
            cannot raise.
        """
        require_model("MeanFieldCVI.minimize", graph, FactorGraph)
        seed = tf.constant([self.seed, step], tf.int32)
        now = Moved.at(graph.current())
        size = tf.constant(self.step_size_at(step), default_float())
        then = move_groups(graph, now, self.groups(list(graph.families)), size, graph.data, seed)
        if tf.executing_eagerly() and not then.ok:
            raise diagnose_messages(graph, now.messages, graph.data, seed)
        graph.assign(
            tf.nest.map_structure(
                lambda new, old: tf.where(then.ok, new, old), then.messages, now.messages
            )
        )
        return StepReport(then.ok, then.shortened, tf.constant(0))

    def run(
        self,
        graph: FactorGraph,
        *,
        steps: int = 200,
        tolerance: float = 1e-10,
        batch_size: int | None = None,
        progress: bool = False,
    ) -> ConjugateResult:
        """Take steps until the messages have converged; leave the graph at the last accepted ones.

        A step that lowers the bound is undone and halved; with samples or minibatches the bound is
        not watched: use a smaller or decaying step size.

        :param steps: limit of steps, undone ones included.
        :param tolerance: stop when a full step, squared, is below this share of the messages,
            squared.
        :param batch_size: rows per minibatch, for all `steps`; None is all data.
        """
        require_model("MeanFieldCVI.run", graph, FactorGraph)
        check_whole(1, steps=steps)
        if batch_size is None:
            return run_whole(self, graph, steps, tolerance, progress)
        return run_batches(self, graph, steps, batch_size, progress)
