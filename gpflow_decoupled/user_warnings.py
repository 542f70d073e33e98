"""Warnings at the user's line, by the user's columns."""

from __future__ import annotations

__all__ = ["naming_columns", "warn_user"]

import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

_LIBRARIES = frozenset(
    {
        __package__, "gpflow", "tensorflow", "tensorflow_probability", "tf_keras", "keras",
        "check_shapes", "scipy", "numpy", "sklearn", "joblib", "contextlib", "functools",
        "importlib",
    }
)  # fmt: skip
"""Packages whose frames are nobody's own code: they call each other between a user and a warning.
Frames of a user's framework are not in the list, because the line there is the one to change."""
_TRANSLATED = "__autograph_generated_file"
"""In the file name of a user's function that AutoGraph has translated, whose lines are others."""

_PLACE = re.compile(r"\b([XY])\[(:|\d+), (\d+)\]")
"""A column, or an entry, of the data as messages write it."""
_names: ContextVar[dict[str, Sequence[object]]] = ContextVar("names of columns")


@contextmanager
def naming_columns(X: Sequence[object] = (), Y: Sequence[object] = ()) -> Iterator[None]:
    """Let warnings and errors of data name columns of a data frame beside their numbers.

    :param X: names of the columns [D] of X; none if X was an array.
    :param Y: of the targets [P].
    """
    token = _names.set({"X": X, "Y": Y})
    try:
        yield
    except ValueError as error:  # of which DataError is one
        if error.args and isinstance(error.args[0], str):
            error.args = (_named(error.args[0]), *error.args[1:])
        raise
    finally:
        _names.reset(token)


def _named(message: str) -> str:
    names = _names.get({})

    def name(place: re.Match[str]) -> str:
        own, column = names.get(place[1], ()), int(place[3])
        return f"{place[0]} (column {str(own[column])!r})" if column < len(own) else place[0]

    return _PLACE.sub(name, message)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line outside of this package and the libraries below it.

    :param message: complete sentences: what was found, and what to do.
    :param category: the class of the warning, by which users silence it.
    """
    # `warnings.warn(..., stacklevel=n)` counts frames, so each function between caller and warning
    # changes the line; Python 3.12's `skip_file_prefixes` does not serve 3.10. Without such a line,
    # for example in a thread of TensorFlow, the outermost frame is named.
    frame = _users_frame(sys._getframe(1))
    warnings.warn_explicit(
        _named(message),
        category,
        filename=frame.f_code.co_filename,
        lineno=frame.f_lineno,
        module=frame.f_globals.get("__name__", "<unknown>"),
        # Python's own table of what was said at this line, so that "once a line" holds
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def _users_frame(frame: FrameType) -> FrameType:
    """The first of `frame` and its callers outside of the libraries, else the outermost."""
    while frame.f_back is not None and _is_nobodys(frame):
        frame = frame.f_back
    return frame


def _is_nobodys(frame: FrameType) -> bool:
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    return package in _LIBRARIES or _TRANSLATED in frame.f_code.co_filename
