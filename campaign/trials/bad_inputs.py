"""One wrong argument to one public call: refused by an error of the package that says what to
change, nothing else.
"""

from __future__ import annotations

__all__ = ["PART"]

import numpy as np

from ..inputs.entries import ENTRIES
from ..inputs.wrong_values import WRONG_VALUES
from ..outcome import Case, Outcome, Part
from ..refusals import complaint_about


def every() -> list[tuple[str, str, str]]:
    """All combinations of an entry, an argument, and what is wrong with it."""
    return [
        (name, argument, words)
        for name, entry in ENTRIES.items()
        for argument, kind in entry.kinds.items()
        for words in WRONG_VALUES[kind]
        if words not in entry.accepted.get(argument, ())
    ]


def run(case: Case) -> Outcome:
    """The combination that comes at this place when all are shuffled by the seed."""
    combinations = every()
    order = np.random.default_rng(case.seed).permutation(len(combinations))
    name, argument, words = combinations[order[case.number % len(order)]]
    entry = ENTRIES[name]
    right = {key: value() if callable(value) else value for key, value in entry.right.items()}
    wrong = WRONG_VALUES[entry.kinds[argument]][words](right.get(argument))
    outcome = Outcome(f"{name} with {argument} = {words}")
    try:
        entry.call(**{**right, argument: wrong})
        outcome.complaints.append("was taken")
    except Exception as error:
        complaint = complaint_about(error)
        outcome.complaints += [complaint] if complaint else []
        outcome.refusal = f"{type(error).__name__}: {error}"
    return outcome


PART = Part("bad_inputs", "one wrong argument to a public call", 200, run)
