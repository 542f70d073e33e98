"""Runs of `MeanFieldCVI`."""

from __future__ import annotations

__all__ = ["MessageRule", "run_batches", "run_whole"]

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from gpflow.config import default_float
from tqdm.auto import tqdm

from ...compilation import Compiled
from ...errors import DataError
from ...models.factor_graph import FactorGraph, Messages, Rows
from ..ascent import STUCK, ascend, has_fallen
from ..conjugate.conjugate_result import ConjugateRecorder, ConjugateResult
from .messages import Moved, diagnose_messages, move_groups


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
