"""Steps that keep each document's bound rising."""

from __future__ import annotations

__all__ = ["ascend"]

from typing import Protocol, TypeVar

import numpy as np

from .documents import PerDocument, Words, chosen, copied, put_rows, rows_of

_LEAST_STEP = 1e-3  # a document with shorter steps stays where it is


class _Evaluation(PerDocument, Protocol):
    @property
    def bound(self) -> np.ndarray:
        """[b]; minus infinity for an invalid state."""

    @property
    def expected(self) -> np.ndarray:
        """Expected words of each topic [b, K]."""


State = TypeVar("State", bound=PerDocument)
Found = TypeVar("Found", bound=_Evaluation)


class _Family(Protocol[State, Found]):
    def evaluate(self, words: Words, state: State) -> Found:
        """The bound, with anything that `propose` needs."""

    def propose(self, state: State, now: Found, rho: np.ndarray) -> State:
        """The state after a step of size rho [b]."""


def ascend(
    family: _Family[State, Found], words: Words, state: State, tolerance: float, max_steps: int
) -> State:
    """Step until expected words per topic change by less than `tolerance`, averaged over topics.

    A step that would lower a document's bound is refused and its size divided by four; each
    accepted step doubles it, up to 1. States are arrays [b, ...].
    """
    state, now = copied(state), family.evaluate(words, state)
    active, rho = np.arange(len(now.bound)), np.ones(len(now.bound))
    moving = np.ones(len(active), bool)
    part_state, part_now, part_words = state, now, words
    for _ in range(max_steps):
        # 1) a trial step in every document that is not done
        trial_state = family.propose(part_state, part_now, rho)
        trial = family.evaluate(part_words, trial_state)
        # 2) kept where the bound has not fallen
        better = trial.bound >= part_now.bound
        change = np.abs(trial.expected - part_now.expected).mean(1) / rho
        part_state, part_now = (
            chosen(better, trial_state, part_state),
            chosen(better, trial, part_now),
        )
        # a document stops at its own end, whatever others the call has
        put_rows(state, active[moving], rows_of(part_state, moving))
        # 3) the next step sizes, and the documents that go on
        rho = np.where(better, np.minimum(1.0, 2.0 * rho), 0.25 * rho)
        moving &= np.where(better, change >= tolerance, rho > _LEAST_STEP)
        if not moving.any():
            break
        # a few large copies cost less than dropping each document when it is done
        if moving.mean() < 0.5:
            active, rho, part_words = active[moving], rho[moving], part_words.take(moving)
            part_state, part_now = rows_of(part_state, moving), rows_of(part_now, moving)
            moving = moving[moving]
    return state
