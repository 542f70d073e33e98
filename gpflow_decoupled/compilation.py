"""How the package compiles what it repeats."""

from __future__ import annotations

__all__ = ["Compiled"]

from collections.abc import Callable
from typing import Any

import tensorflow as tf


class Compiled:
    """A `tf.function` without AutoGraph, or with it, where a kernel, a likelihood or a mean function needs it.

    AutoGraph rewrites the source of everything that is called, which takes five of the six seconds of a first training step
    and gives the same graph, unless Python's `if`, `while`, `for` or `assert` meets a tensor. TensorFlow refuses those while
    it traces, before anything is computed; then the function is traced anew, with AutoGraph.

    :param function: of tensors, without side effects while it is traced. :param options: of `tf.function`.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self._function, self._options = function, options
        self._graph: Any = tf.function(function, autograph=False, **options)
        self._may_need_autograph = True

    def __call__(self, *arguments: Any) -> Any:
        """What the function returns."""
        return self._use(lambda graph: graph(*arguments))

    def get_concrete_function(self, *arguments: Any) -> Any:
        """The graph for such arguments, traced if it is new."""
        return self._use(lambda graph: graph.get_concrete_function(*arguments))

    @property
    def traces(self) -> int:
        """How often it was traced."""
        return self._graph.experimental_get_tracing_count()

    def _use(self, use: Callable[[Any], Any]) -> Any:
        try:
            return use(self._graph)
        except TypeError:  # tf.errors.OperatorNotAllowedInGraphError is one; int(tensor) raises a plain one
            if not self._may_need_autograph:
                raise
        self._may_need_autograph = False
        self._graph = tf.function(self._function, **self._options)
        return use(self._graph)
