"""Conjugate-computation steps for a block of documents, each with a step size of its own that keeps its bound rising."""

from __future__ import annotations

__all__ = ["ascend"]

from typing import Any

import numpy as np

from ..words import Words

_LEAST_STEP = 1e-3


def ascend(family: Any, words: Words, state: Any, tolerance: float, max_steps: int) -> Any:
    """Steps from `state` until the expected words of a topic change by less than `tolerance` in the mean over topics.

    :param family: has `evaluate(words, state)`, a NamedTuple of arrays [b, ...] with `bound` and `expected`, the bound -inf
        where the state is not allowed; and `propose(state, evaluation, rho [b])`, a state.

    A step that would lower a document's bound is not made, and its rho is quartered; each success doubles it, up to 1.
    """
    state, now = _copy(state), family.evaluate(words, state)
    active, rho = np.arange(len(now.bound)), np.ones(len(now.bound))
    part_state, part_now, part_words = state, now, words
    for _ in range(max_steps):
        trial_state = family.propose(part_state, part_now, rho)
        trial = family.evaluate(part_words, trial_state)
        better = trial.bound >= part_now.bound
        change = np.abs(trial.expected - part_now.expected).mean(1) / rho
        part_state, part_now = _choose(better, trial_state, part_state), _choose(better, trial, part_now)
        _put(state, active, part_state)
        rho = np.where(better, np.minimum(1.0, 2.0 * rho), 0.25 * rho)
        moving = np.where(better, change >= tolerance, rho > _LEAST_STEP)
        if not moving.any():
            break
        if moving.mean() < 0.5:  # fewer, larger copies than dropping each document when it is done
            active, rho, part_words = active[moving], rho[moving], part_words.take(moving)
            part_state, part_now = (type(it)(*(array[moving] for array in it)) for it in (part_state, part_now))
    return state


def _copy(state: Any) -> Any:
    return type(state)(*(array.copy() for array in state))


def _choose(which: np.ndarray, first: Any, second: Any) -> Any:
    """Document by document, that of `first` where `which` [b], else of `second`."""
    pairs = zip(first, second)
    return type(first)(*(np.where(which.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in pairs))


def _put(state: Any, rows: np.ndarray, part: Any) -> None:
    for array, values in zip(state, part):
        array[rows] = values
