"""One line, or a small table, that says what an object is, in the place of all the arrays in it."""

from __future__ import annotations

__all__ = ["described", "html_table", "one_line", "settings_line"]

import html
import inspect
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

_LONGEST = 60
"""Characters of a value."""


def one_line(thing: object, *words: str, **values: object) -> str:
    """`Name(word, name=value, ...)` with arrays by their shape.

    :param thing: whose class is named.
    :param words: what is said without a name.
    :param values: what is said with one.

    Example::

        one_line(model, "Matern52", "Gaussian", beta=30)  # "ODVGP(Matern52, Gaussian, beta=30)"
    """
    parts = [*words, *(f"{name}={described(value)}" for name, value in values.items())]
    return f"{type(thing).__name__}({', '.join(parts)})"


def settings_line(thing: object) -> str:
    """`Name(setting=value, ...)` of the arguments of a constructor that the object keeps under their names.

    :param thing: for example an optimizer.

    Example::

        settings_line(JaakkolaJordan())  # "JaakkolaJordan(tolerance=1e-08, max_steps=2000)"
    """
    names = [name for name in inspect.signature(type(thing)).parameters if hasattr(thing, name)]
    return one_line(thing, **{name: getattr(thing, name) for name in names})


def html_table(title: str, values: Mapping[str, object]) -> str:
    """An HTML table of two columns, names and values, arrays by their shape."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(described(value))}</td></tr>"
        for name, value in values.items()
    )
    return f"<table><caption>{html.escape(title)}</caption>{rows}</table>"


def described(value: object) -> str:
    """A value in few characters: numbers to six digits, arrays by their shape, dicts and lists by what they have."""
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


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
