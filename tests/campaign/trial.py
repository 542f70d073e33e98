"""One random problem, tried: what held, what was refused, and whether the refusal is one, an error
of the package whose message names an array or parameter, says its value, and the fix.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from gpflow_decoupled import errors

from .outcome import Case, Outcome
from .problems import Problem

_ERRORS = (
    errors.CheckpointError, errors.DataError, errors.ModelError, errors.NumericalError,
    errors.UnknownOptionError,
)  # fmt: skip
_FIX = re.compile(
    r"\b(use|pass|remove|choose|must|needs?|give|set|call|takes?|recode|encode|leave|make|start"
    r"|scale|likely fixes|train|increase|expects|change|repair|declare|impute|add|build"
    r"|standardi[sz]e|owns|empty|wait|derive|swap|filter|check|drop)\b",
    re.IGNORECASE,
)


def complaint_about(error: BaseException) -> str:
    """What is wrong with an error as a refusal; empty if nothing is."""
    kind, text = type(error).__name__, " ".join(str(error).split())
    if not isinstance(error, _ERRORS):
        return f"{kind} is no error of the package: {text[:300]}"
    if len(text) < 20 or not re.search(r"[A-Za-z_]\w*", text):
        return f"{kind} says too little: {text!r}"
    if not _FIX.search(text):
        return f"{kind} does not say what to change: {text[:300]}"
    return ""


def refused(title: str, error: Exception) -> Outcome:
    """The outcome of a case that ended in an error: a refusal, if it is the package's and helps."""
    complaint = complaint_about(error)
    return Outcome(title, [complaint] if complaint else [], f"{type(error).__name__}: {error}")


def trial(
    case: Case,
    draw: Callable[[np.random.Generator], Problem],
    complaints: Callable[[Problem, np.random.Generator], list[str]],
) -> Outcome:
    """Draw a problem, in its own float type, and say what `complaints` finds."""
    rng = case.generator()
    problem = draw(rng)
    tf.random.set_seed(case.number)
    with problem.config():
        try:
            return Outcome(problem.title, complaints(problem, rng))
        except Exception as error:
            return refused(problem.title, error)
