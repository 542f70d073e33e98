"""Runs of mean-field conjugate computation: on all data with a check of the bound, and on minibatches."""

from __future__ import annotations

__all__ = ["run_batches", "run_whole", "start"]

import time
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.config import default_float
from tqdm.auto import tqdm

from ...compilation import Compiled
from ...errors import DataError
from ...models.factor_graph.graph import FactorGraph, Messages, Rows
from ..conjugate.result import ConjugateResult, Record
from ..conjugate.runs import ROUND_OFF
from ..natural_gradient.optimizer import MAX_HALVINGS
from .steps import Moved, diagnose_messages, sweep


def start(messages: Messages, parts: Messages | None = None) -> Moved:
    """Messages before a step."""
    return Moved(messages, parts or {}, tf.zeros([], default_float()), tf.constant(0), tf.constant(True))


def run_whole(rule: Any, graph: FactorGraph, steps: int, tolerance: float, progress: bool) -> ConjugateResult:
    """Steps of `rule` on all data; one that lowers the bound is halved, and later ones grow back."""
    record, began = Record(), time.perf_counter()
    groups, data = rule.groups(list(graph.families)), graph.data
    sampled = any(factor.samples is not None for factor in graph.factors.values())

    @Compiled
    def step_from(messages: Messages, rho: tf.Tensor, seed: tf.Tensor) -> tuple[Moved, tf.Tensor]:
        then = sweep(graph, start(messages), groups, rho, data, seed)
        return then, graph.bound(graph.naturals(then.messages), data, tf.random.fold_in(seed, len(groups)))

    messages = graph.current()
    elbo = graph.bound(graph.naturals(messages), data, _seed(rule, 0))
    if not tf.math.is_finite(elbo):
        raise diagnose_messages(graph, messages, data, _seed(rule, 0))
    share, reason = 1.0, "steps done"
    bar = tqdm(range(steps), disable=not progress, desc="CVI")
    for step in bar:
        rho = share * rule.step_size(step)
        then, reached = step_from(messages, tf.constant(rho, default_float()), _seed(rule, step))
        sound = bool(then.ok) and bool(tf.math.is_finite(reached))
        if not sound and share < 0.5**MAX_HALVINGS:
            raise diagnose_messages(graph, messages, data, _seed(rule, step))
        if not sound or not (sampled or reached >= elbo - ROUND_OFF * tf.abs(elbo)):
            share, record.shortened = 0.5 * share, record.shortened + 1
            if sound and share < 0.5**MAX_HALVINGS:
                reason = "the bound does not rise any more"
                break
            continue
        messages, elbo, share = then.messages, reached, min(1.0, 2.0 * share)
        record.shortened += int(then.shortened)
        record.append(time.perf_counter() - began, rho, float(then.change), float(elbo), 0)
        graph.assign(messages)
        bar.set_postfix(ELBO=f"{float(elbo):.6g}")
        if then.change <= tolerance * (1.0 + _squared(messages)):
            reason = "converged"
            break
    return record.result(time.perf_counter() - began, reason)


def run_batches(rule: Any, graph: FactorGraph, steps: int, batch_size: int, progress: bool) -> ConjugateResult:
    """Steps of `rule` on the parts of a fixed division of the rows, in random order."""
    if graph.num_data is None:
        raise DataError(f"batch_size={batch_size} needs factors with data; give a Factor its arrays as data=.")
    if not 1 <= batch_size <= graph.num_data:
        raise DataError(f"batch_size={batch_size} must be from 1 to the number of observations, {graph.num_data}.")
    record, began, generator = Record(), time.perf_counter(), np.random.default_rng(rule.seed)
    blocks = np.array_split(generator.permutation(graph.num_data), -(-graph.num_data // batch_size))
    memory = _Memory(rule, graph, blocks)
    order: list[int] = []
    try:
        for step in tqdm(range(steps), disable=not progress, desc="CVI"):
            order = order or list(generator.permutation(len(blocks)))
            rho = rule.step_size(step)
            then = memory.step(order.pop(), rho, _seed(rule, step))
            elbo = float(memory.bound(_seed(rule, step))) if not order or step + 1 == steps else float("nan")
            record.shortened += int(then.shortened)
            record.append(time.perf_counter() - began, rho, float(then.change), elbo, 0)
    finally:
        graph.assign(memory.whole())
    return record.result(time.perf_counter() - began, "steps done")


class _Memory:
    """The messages of a run on minibatches: one for all, one a row, and one a block of rows.

    A step reads and writes the rows of its block alone; it is compiled once for each size of a block.
    """

    def __init__(self, rule: Any, graph: FactorGraph, blocks: list[np.ndarray]) -> None:
        self.graph, self.blocks = graph, blocks
        current = graph.current()
        self.shared = _select(current, lambda key, name: name not in graph.local)
        self.rows = tf.nest.map_structure(
            lambda part: part.numpy().copy(), _select(current, lambda key, name: name in graph.local)
        )
        divided = rule.update == "local"
        parts = _select(self.shared, lambda key, name: divided and graph.in_plate(key))
        self.parts = [tf.nest.map_structure(lambda part: part / len(blocks), parts) for _ in blocks]
        self._step = self._compiled(rule)

    def _compiled(self, rule: Any) -> Any:
        graph = self.graph
        inner = rule.groups([name for name in graph.families if name in graph.local])
        outer = rule.groups([name for name in graph.families if name not in graph.local])
        scale = 1.0 if rule.update == "local" else float(len(self.blocks))

        @Compiled
        def step(messages: Messages, parts: Messages, data: Rows, rho: tf.Tensor, seed: tf.Tensor) -> Moved:
            local_rho = tf.constant(rule.local_rho, rho.dtype)
            now = sweep(graph, start(messages, parts), rule.local_sweeps * inner, local_rho, data, seed)
            return sweep(graph, now, outer, rho, data, tf.random.fold_in(seed, len(self.blocks)), scale)

        return step

    def step(self, block: int, rho: float, seed: tf.Tensor) -> Moved:
        """Move on one block; `NumericalError` if it fails, with nothing changed."""
        rows = self.blocks[block]
        data = {key: tuple(tf.gather(array, rows) for array in arrays) for key, arrays in self.graph.data.items()}
        messages = _merge(self.shared, tf.nest.map_structure(lambda part: tf.constant(part[rows]), self.rows))
        then = self._step(messages, self.parts[block], data, tf.constant(rho, default_float()), seed)
        if not then.ok:
            raise diagnose_messages(self.graph, messages, data, seed)
        self.parts[block] = then.parts
        self.shared = {key: {name: then.messages[key][name] for name in row} for key, row in self.shared.items()}
        for key, row in self.rows.items():
            for name, parts in row.items():
                for kept, new in zip(parts, then.messages[key][name]):
                    kept[rows] = new.numpy()
        return then

    def bound(self, seed: tf.Tensor) -> tf.Tensor:
        """F of all data, in nats."""
        return self.graph.bound(self.graph.naturals(self.whole()), self.graph.data, seed)

    def whole(self) -> Messages:
        """All messages."""
        return _merge(self.shared, tf.nest.map_structure(tf.constant, self.rows))


def _select(messages: Messages, wanted: Any) -> Messages:
    return {key: {name: row[name] for name in row if wanted(key, name)} for key, row in messages.items()}


def _merge(left: Messages, right: Messages) -> Messages:
    return {key: {**row, **right[key]} for key, row in left.items()}


def _seed(rule: Any, step: int) -> tf.Tensor:
    return tf.constant([rule.seed, step], tf.int32)


def _squared(messages: Messages) -> float:
    return float(sum(tf.reduce_sum(tf.square(part)) for part in tf.nest.flatten(messages)))
