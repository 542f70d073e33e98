"""One random problem, tried: what held, what was refused, what was not as it must be."""

from __future__ import annotations

__all__ = ["trial"]

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from .outcome import Case, Outcome
from .problems import Problem
from .refusals import complaint_about


def trial(
    case: Case,
    draw: Callable[[np.random.Generator], Problem],
    complaints: Callable[[Problem, np.random.Generator], list[str]],
) -> Outcome:
    """Draw a problem, in its own float type, and say what `complaints` finds; an error of the
    package is a refusal.
    """
    rng = case.generator()
    problem = draw(rng)
    outcome = Outcome(problem.title)
    tf.random.set_seed(case.number)
    with problem.config():
        try:
            outcome.complaints += complaints(problem, rng)
        except Exception as error:
            complaint = complaint_about(error)
            outcome.complaints += [complaint] if complaint else []
            outcome.refusal = f"{type(error).__name__}: {error}"
    return outcome
