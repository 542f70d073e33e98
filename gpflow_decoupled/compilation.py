"""Compilation of functions that run many times: `tf.function`, without AutoGraph where the code allows it."""

from __future__ import annotations

__all__ = ["Compiled", "traced_for_xla"]

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Outcome = TypeVar("Outcome")


class Compiled(Generic[Arguments, Result]):
    """A `tf.function` that uses AutoGraph only if a kernel, a likelihood or a mean function needs it.

    AutoGraph rewrites the source of every function that is called. That takes five of the six seconds of a first training
    step, and the graph is the same unless Python's `if`, `while`, `for` or `assert` is applied to a tensor. TensorFlow
    refuses such a statement while it traces, before anything is computed. The function is then traced again with AutoGraph.

    :param function: a function of tensors without side effects, because it may be traced twice.
    :param options: passed to `tf.function`, for example `reduce_retracing` or `input_signature`.

    Example::

        step = Compiled(lambda x: tf.reduce_sum(x**2), reduce_retracing=True)
        step(tf.ones([3]))
    """

    def __init__(self, function: Callable[Arguments, Result], **options: object) -> None:
        self._function, self._options = function, options
        self._graph = tf.function(function, autograph=False, **options)
        self._may_need_autograph = True

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """What the function returns for these arguments."""
        return self._use(lambda graph: graph(*args, **kwargs))

    def get_concrete_function(self, *arguments: object) -> tf.types.experimental.ConcreteFunction:
        """The graph for these arguments, which may be `tf.TensorSpec`s; traced if it is new."""
        return self._use(lambda graph: graph.get_concrete_function(*arguments))

    @property
    def traces(self) -> int:
        """How many times the function has been traced with its present setting of AutoGraph."""
        return self._graph.experimental_get_tracing_count()

    def _use(self, use: Callable[[tf.types.experimental.PolymorphicFunction], Outcome]) -> Outcome:
        """Apply `use` to the graph; where that needs AutoGraph, replace the graph once and apply it again."""
        try:
            return use(self._graph)
        except TypeError:  # tf.errors.OperatorNotAllowedInGraphError is one; int(tensor) raises a plain one
            if not self._may_need_autograph:
                raise
        self._may_need_autograph = False
        self._graph = tf.function(self._function, **self._options)
        return use(self._graph)


def traced_for_xla() -> bool:
    """Whether a `tf.function` with `jit_compile=True` is being traced, in which no shape may depend on values.

    Example::

        rows = tf.linalg.diag(mask) if traced_for_xla() else tf.boolean_mask(tf.eye(N), mask)
    """
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))
