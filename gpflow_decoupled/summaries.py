"""Summaries of objects, with arrays by their shape."""

from __future__ import annotations

__all__ = [
    "described",
    "html_table",
    "model_line",
    "one_line",
    "part_name",
    "settings_line",
    "short_repr",
    "short_table",
]

import html
import inspect
import re
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kernels import Combination
from gpflow.models import GPModel

_LONGEST = 60
"""Characters of a value."""
_LONGEST_WORD = 120
_LONGEST_LINE = 280
_FEW = 6
"""Entries of an array that a message prints, as many as `reprlib` prints of a list."""
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _LONGEST
_MOST_ROWS = 20
"""Rows of a table, plus one that counts the others."""
_ROW = re.compile(r"<tr><td>.*?</tr>\n?", re.DOTALL)


def one_line(thing: object, *words: str, **values: object) -> str:
    """`Name(word, name=value, ...)` with arrays by shape, below 300 characters."""
    parts = [_cut(word, _LONGEST_WORD) for word in words]
    parts += [f"{name}={described(value)}" for name, value in values.items()]
    kind = type(thing).__name__
    return f"{kind}({_cut(', '.join(parts), _LONGEST_LINE - len(kind))})"


def model_line(model: GPModel, **values: object) -> str:
    """`one_line` of a GP model: class, kernel, likelihood, and `values`."""
    return one_line(model, *map(part_name, (model.kernel, model.likelihood)), **values)


def part_name(part: object) -> str:
    """The class of a kernel, with its parts, or of another part of a model."""
    name = type(part).__name__
    return (
        f"{name}({', '.join(map(part_name, part.kernels))})"
        if isinstance(part, Combination)
        else name
    )


def settings_line(thing: object) -> str:
    """`Name(setting=value, ...)` of the constructor arguments that the object keeps."""
    names = [name for name in inspect.signature(type(thing)).parameters if hasattr(thing, name)]
    return one_line(thing, **{name: getattr(thing, name) for name in names})


def html_table(title: str, values: Mapping[str, object]) -> str:
    """An HTML table of names and values, arrays by shape; 20 rows and a count of the others."""
    shown = dict(list(values.items())[:_MOST_ROWS])
    if len(values) > len(shown):
        shown["..."] = f"{len(values) - len(shown)} more"
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(_cut(name))}</th>"
        f"<td>{html.escape(described(value))}</td></tr>"
        for name, value in shown.items()
    )
    return f"<table><caption>{html.escape(_cut(title, _LONGEST_LINE))}</caption>{rows}</table>"


def short_table(text: str) -> str:
    """The first 20 rows of GPflow's HTML table of parameters, and a count of the others."""
    rows = list(_ROW.finditer(text))
    if len(rows) <= _MOST_ROWS:
        return text
    first = re.sub(r" +(?=</t[dh]>)", "", text[: rows[_MOST_ROWS].start()])
    more = (
        f"<tr><td>... {len(rows) - _MOST_ROWS} more; gpflow.utilities.print_summary has"
        " all</td></tr>\n"
    )
    return first + more + text[rows[-1].end() :]


def described(value: object) -> str:
    """A short text: numbers to six digits, arrays by shape, dicts and lists by their contents."""
    shape = getattr(value, "shape", None)
    if shape is not None and len(shape):
        return str(list(shape))
    if shape is not None:
        value = np.asarray(value).item() if not tf.is_symbolic_tensor(value) else "not known yet"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return f"{{{_cut(', '.join(map(str, value)))}}}"
    if isinstance(value, tuple):
        return _cut(f"({', '.join(map(described, value))})")
    if isinstance(value, list):
        return f"{len(value)} values"
    if inspect.isroutine(value):
        return _cut(getattr(value, "__name__", "function"))
    return _cut(str(value))


def short_repr(value: object) -> str:
    """`repr` for messages: large arrays by type and shape, others in a line."""
    # NumPy's numbers are shown as Python's, whose `repr` does not depend on NumPy's version.
    if isinstance(value, (np.ndarray, tf.Tensor)) or hasattr(
        value, "iloc"
    ):  # which data frames have
        array: Any = value
        count = array.shape.num_elements() if tf.is_tensor(array) else array.size
        if count is None or count > _FEW:
            return f"<{type(value).__name__} of shape {array.shape}>"
    return " ".join(_REPR.repr(value.item() if isinstance(value, np.generic) else value).split())


def _cut(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."
