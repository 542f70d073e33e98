"""Whether a refusal is one: an error of the package whose message names an array or parameter, says
its value, and the fix.
"""

from __future__ import annotations

__all__ = ["ERRORS", "complaint_about"]

import re

from gpflow_decoupled.errors import (
    CheckpointError,
    DataError,
    ModelError,
    NumericalError,
    UnknownOptionError,
)

ERRORS = (CheckpointError, DataError, ModelError, NumericalError, UnknownOptionError)

_FIX = re.compile(
    r"\b(use|pass|remove|choose|must|needs?|give|set|call|takes?|recode|encode|leave|make|start"
    r"|scale|likely fixes|train|increase|expects|change|repair|declare|impute|add|build"
    r"|standardi[sz]e|owns|empty|wait|derive|swap|filter|check|drop)\b",
    re.IGNORECASE,
)


def complaint_about(error: BaseException) -> str:
    """What is wrong with an error as a refusal; empty if nothing is."""
    kind, text = type(error).__name__, " ".join(str(error).split())
    if not isinstance(error, ERRORS):
        return f"{kind} is no error of the package: {text[:300]}"
    if len(text) < 20 or not re.search(r"[A-Za-z_]\w*", text):
        return f"{kind} says too little: {text!r}"
    if not _FIX.search(text):
        return f"{kind} does not say what to change: {text[:300]}"
    return ""
