"""A part that has several checks, which its cases take by turns."""

from __future__ import annotations

__all__ = ["Check", "by_turns"]

import warnings
from collections.abc import Callable, Sequence

import gpflow
import numpy as np
import tensorflow as tf

from .outcome import Case, Outcome
from .refusals import complaint_about

Check = Callable[[np.random.Generator], Outcome]
"""Draws something, tries it, and says what did not hold."""


def by_turns(checks: Sequence[Check], case: Case, *, may_refuse: bool) -> Outcome:
    """Try the check whose turn it is in this case.

    :param may_refuse: whether an error of the package that says what to change is a refusal; else
        each error is wrong.
    """
    check = checks[case.number % len(checks)]
    tf.random.set_seed(case.number)
    try:
        with warnings.catch_warnings(), gpflow.config.as_context():
            warnings.simplefilter("ignore")
            return check(case.generator())
    except Exception as error:
        complaint = complaint_about(error) or ("" if may_refuse else "was not computed")
        title = f"{(check.__doc__ or '').strip()} (case {case.number})"
        return Outcome(title, [complaint] if complaint else [], f"{type(error).__name__}: {error}")
