"""One step, a pure function of the messages."""

from __future__ import annotations

__all__ = ["Moved", "diagnose_messages", "move", "move_groups"]

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.config import default_float

from ...distributions.families import Belief, Natural
from ...errors import NumericalError
from ...models.factor_graph import FactorGraph, Messages, Rows
from ..steps import largest_feasible_step


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
