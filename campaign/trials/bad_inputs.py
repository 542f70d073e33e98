"""One wrong argument to one public call: refused by an error of the package that says what to
change, and nothing is changed.
"""

from __future__ import annotations

__all__ = ["PART", "attempt", "every"]

import re

import gpflow
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


def attempt(name: str, argument: str, words: str) -> Outcome:
    """Call an entry with one wrong argument, and see how it is refused."""
    entry = ENTRIES[name]
    right = {key: value() if callable(value) else value for key, value in entry.right.items()}
    change, says = WRONG_VALUES[entry.kinds[argument]][words]
    wrong = change(right.get(argument))
    before = _values(right.get("model"))
    outcome = Outcome(f"{name} with {argument} = {words}")
    try:
        entry.call(**{**right, argument: wrong})
        outcome.complaints.append("was taken")
    except Exception as error:
        outcome.refusal = f"{type(error).__name__}: {error}"
        complaint = complaint_about(error)
        if not complaint and not re.search(says, str(error)):
            complaint = f"does not say {says!r}: {error}"
        outcome.complaints += [complaint] if complaint else []
    after = _values(right.get("model"))
    outcome.complaints += [f"{key} changed" for key in before if not _same(before, after, key)]
    return outcome


def _values(model: object) -> dict[str, np.ndarray]:
    """The Parameters of a model, none where there is no model."""
    found = gpflow.utilities.parameter_dict(model) if hasattr(model, "parameters") else {}
    return {name: parameter.numpy() for name, parameter in found.items()}


def _same(before: dict[str, np.ndarray], after: dict[str, np.ndarray], name: str) -> bool:
    return np.array_equal(before[name], after[name])


def run(case: Case) -> Outcome:
    """The combination that comes at this place when all are shuffled by the seed."""
    combinations = every()
    order = np.random.default_rng(case.seed).permutation(len(combinations))
    return attempt(*combinations[order[case.number % len(order)]])


PART = Part("bad_inputs", "one wrong argument to a public call", 200, run)
