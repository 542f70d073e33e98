"""Mean-field conjugate computation on factor graphs."""

from __future__ import annotations

__all__ = ["MeanFieldCVI", "Moved", "diagnose_messages", "move_groups"]

from collections.abc import Sequence
from typing import NamedTuple

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
    ConjugateResult,
    SiteRecorder,
    StepReport,
    StepSize,
    ascend,
    has_fallen,
    largest_feasible_step,
    step_size_at,
)

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


def move_groups(
    graph: FactorGraph,
    now: Moved,
    groups: Sequence[Sequence[str]],
    step_size: tf.Tensor,
    data: Rows,
    seed: tf.Tensor,
    scale: float = 1.0,
) -> Moved:
    """Move the messages to each group of variables in turn towards their gradients (C32).

    :param data: arrays of each factor, [B, ...].
    :param seed: [2], of draws; step_size is [].
    """
    for place, names in enumerate(groups):
        now = _move(graph, now, names, step_size, data, tf.random.fold_in(seed, place), scale)
    return now


def _move(
    graph: FactorGraph,
    now: Moved,
    names: Sequence[str],
    step_size: tf.Tensor,
    data: Rows,
    seed: tf.Tensor,
    scale: float,
) -> Moved:
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
    drifts: dict[str, list[Natural]] = {name: [] for name in names}
    for key, row in goals.items():
        for name, goal in row.items():
            old = now.messages[key][name]
            drifts[name].append(tuple(new - was for new, was in zip(goal, old)))
    totals = {name: _total(gaps) for name, gaps in drifts.items()}

    # 3) a step that stays in the domain of each family
    def inside(step: tf.Tensor) -> tf.Tensor:
        reached = {
            name: tuple(a + step * b for a, b in zip(naturals[name], total))
            for name, total in totals.items()
        }
        return tf.reduce_all(
            [tf.reduce_all(graph.families[name].in_domain(q)) for name, q in reached.items()]
        )

    step, ok = largest_feasible_step(inside, step_size)
    messages = _towards(now.messages, goals, step)
    parts = _towards(now.parts, gradients, step)
    change = tf.add_n([tf.reduce_sum(tf.square(part)) for part in tf.nest.flatten(drifts)])
    halvings = tf.cast(tf.round(tf.math.log(step_size / step) / np.log(2.0)), tf.int32)
    return Moved(messages, parts, now.change + change, now.shortened + halvings, now.ok & ok)


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
    return {
        key: {
            name: tuple(
                (1.0 - step) * was + step * goal for was, goal in zip(now, goals[key][name])
            )  # (C32)
            if name in goals.get(key, {})
            else now
            for name, now in row.items()
        }
        for key, row in old.items()
    }


def _total(naturals: Sequence[Natural]) -> Natural:
    return tuple(tf.add_n(parts) for parts in zip(*naturals))


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
    sent = {
        key: graph.outgoing(key, naturals, factor.neighbours, data[key], seed)
        for key, factor in graph.factors.items()
    }
    for key, row in sent.items():
        for name, message in row.items():
            if not all(np.all(np.isfinite(part)) for part in message):
                return NumericalError(
                    f"the message of the factor '{key}' to the variable '{name}' is not finite; use"
                    " a smaller step_size, or start nearer to the posterior.",
                    matrix=f"{key} -> {name}",
                )
    for name, family in graph.families.items():
        keys = graph.factors_of(name)
        if not np.all(family.in_domain(_total([sent[key][name] for key in keys]))):
            return NumericalError(
                f"the messages of {', '.join(map(repr, keys))} lead the"
                f" {family.name} '{name}' out of its domain, however small the step; give it a"
                " proper prior, or use a smaller step_size.",
                matrix=name,
            )
    return NumericalError(
        "the bound is not finite after the step; use a smaller step_size.", matrix="bound"
    )


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
        if self.schedule == "sequential":
            return [[name] for name in names]
        return [names] if names else []

    def _seed(self, step: int) -> tf.Tensor:
        return tf.constant([self.seed, step], tf.int32)

    def _size(self, step: int, share: float = 1.0) -> tf.Tensor:
        return tf.constant(share * self.step_size_at(step), default_float())

    @tf.autograph.experimental.do_not_convert
    def minimize(self, graph: FactorGraph, step: int = 0) -> StepReport:
        """Take one step of all variables on all data, without the bound, which may fall.

        :param step: number of the step, for step size and draws.
        :return: whether the step was taken, and its halvings; read `ok` in a `tf.function`, which
            cannot raise.
        """
        require_model("MeanFieldCVI.minimize", graph, FactorGraph)
        now, seed, groups = graph.current(), self._seed(step), self.groups(list(graph.families))
        then = move_groups(graph, Moved.at(now), groups, self._size(step), graph.data, seed)
        if tf.executing_eagerly() and not then.ok:
            raise diagnose_messages(graph, now, graph.data, seed)
        graph.assign(
            tf.nest.map_structure(lambda new, old: tf.where(then.ok, new, old), then.messages, now)
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
        bar = tqdm(range(steps), disable=not progress, desc="CVI")
        if batch_size is not None:
            return _run_batches(self, graph, batch_size, bar)
        climber = _MessageClimber(self, graph, tolerance, bar)
        start = climber.start()
        if not start.ok:
            raise diagnose_messages(graph, start.messages, graph.data, start.seed)
        end = ascend(climber, start, bar)
        if end.reason == STUCK and end.refused is not None and not end.refused.ok:
            raise diagnose_messages(graph, end.now.messages, graph.data, end.refused.seed)
        return climber.record.result(end.reason, end.now.elbo)


# ---
# Runs: on all data, halving steps that lower the bound, and on minibatches.


class _Point(NamedTuple):
    messages: Messages
    elbo: float
    ok: bool
    """True if the messages are in their domains and the bound is finite."""
    seed: tf.Tensor
    size: float = np.nan
    change: float = np.inf
    """Squared length of a full step from the messages before."""
    shortened: int = 0
    """Halvings of the step to stay in the domains."""


class _MessageClimber:
    def __init__(self, rule: MeanFieldCVI, graph: FactorGraph, tolerance: float, bar: tqdm) -> None:
        self.rule, self.graph, self.tolerance, self.bar = rule, graph, tolerance, bar
        self.record = SiteRecorder()
        self.sampled = any(factor.samples is not None for factor in graph.factors.values())
        groups = rule.groups(list(graph.families))

        @Compiled
        def step(
            messages: Messages, step_size: tf.Tensor, seed: tf.Tensor
        ) -> tuple[Moved, tf.Tensor]:
            then = move_groups(graph, Moved.at(messages), groups, step_size, graph.data, seed)
            draws = tf.random.fold_in(seed, len(groups))
            return then, graph.bound(graph.naturals(then.messages), graph.data, draws)

        self._step = step

    def start(self) -> _Point:
        messages, seed = self.graph.current(), self.rule._seed(0)
        elbo = float(self.graph.bound(self.graph.naturals(messages), self.graph.data, seed))
        return _Point(messages, elbo, bool(np.isfinite(elbo)), seed)

    def propose(self, now: _Point, step: int, share: float) -> _Point:
        size, seed = self.rule._size(step, share), self.rule._seed(step)
        then, bound = self._step(now.messages, size, seed)
        ok, change = bool(then.ok) and bool(np.isfinite(bound)), float(then.change)
        numbers = float(size), change, int(then.shortened)
        return _Point(then.messages, float(bound), ok, seed, *numbers)

    def accept(self, now: _Point, then: _Point) -> bool:
        if not then.ok or not (self.sampled or not has_fallen(now.elbo, then.elbo)):
            self.record.shortened += 1
            return False
        self.record.shortened += then.shortened
        self.record.add(then.size, then.change, then.elbo)
        self.graph.assign(then.messages)
        self.bar.set_postfix(ELBO=f"{then.elbo:.6g}")
        return True

    def converged(self, now: _Point) -> bool:
        squares = [tf.reduce_sum(tf.square(part)) for part in tf.nest.flatten(now.messages)]
        return now.change <= self.tolerance * (1.0 + float(sum(squares)))


def _run_batches(
    rule: MeanFieldCVI, graph: FactorGraph, batch_size: int, bar: tqdm
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
    record, generator = SiteRecorder(), np.random.default_rng(rule.seed)
    blocks = np.array_split(generator.permutation(graph.num_data), -(-graph.num_data // batch_size))
    steps, divided = len(bar), rule.update == "local"

    # 1) messages for all rows, and those with a row per observation, on the host
    current = graph.current()
    shared = {
        key: {name: row[name] for name in row if name not in graph.local}
        for key, row in current.items()
    }
    own = {
        key: {
            name: tuple(part.numpy().copy() for part in row[name])
            for name in row
            if name in graph.local
        }
        for key, row in current.items()
    }
    # what each block has contributed to a message for all rows; an equal share to begin with
    parts = {key: row if divided and graph.in_plate(key) else {} for key, row in shared.items()}
    share = tf.nest.map_structure(lambda part: part / len(blocks), parts)
    memory = [share for _ in blocks]

    # 2) a step on a block: rows of their own first, then the rest
    inner = rule.groups([name for name in graph.families if name in graph.local])
    outer = rule.groups([name for name in graph.families if name not in graph.local])
    scale = 1.0 if divided else float(len(blocks))

    @Compiled
    def move(
        messages: Messages, parts: Messages, data: Rows, step_size: tf.Tensor, seed: tf.Tensor
    ) -> Moved:
        local = tf.constant(rule.local_step_size, step_size.dtype)
        now = Moved.at(messages, parts)
        now = move_groups(graph, now, rule.local_sweeps * inner, local, data, seed)
        later = tf.random.fold_in(seed, len(blocks))
        return move_groups(graph, now, outer, step_size, data, later, scale)

    def joined(rows: np.ndarray | slice) -> Messages:
        return {
            key: {
                **shared[key],
                **{
                    name: tuple(tf.constant(part[rows]) for part in kept)
                    for name, kept in row.items()
                },
            }
            for key, row in own.items()
        }

    order: list[int] = []
    try:
        for step in bar:
            order = order or list(generator.permutation(len(blocks)))
            block, size, seed = order.pop(), rule._size(step), rule._seed(step)
            rows = blocks[block]
            data = {
                key: tuple(tf.gather(array, rows) for array in arrays)
                for key, arrays in graph.data.items()
            }
            messages = joined(rows)
            then = move(messages, memory[block], data, size, seed)
            if not then.ok:
                raise diagnose_messages(graph, messages, data, seed)
            memory[block] = then.parts
            shared = {
                key: {name: then.messages[key][name] for name in row} for key, row in shared.items()
            }
            for key, row in own.items():
                for name, kept in row.items():
                    for array, new in zip(kept, then.messages[key][name]):
                        array[rows] = new.numpy()
            # a bound costs a pass over all factors: once an epoch, and at the end
            known, elbo = not order or step + 1 == steps, float("nan")
            if known:
                elbo = float(graph.bound(graph.naturals(joined(slice(None))), graph.data, seed))
            record.shortened += int(then.shortened)
            record.add(float(size), float(then.change), elbo)
    finally:
        graph.assign(joined(slice(None)))
    return record.result("steps done")
