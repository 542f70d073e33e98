"""Compilation of functions that run many times."""

from __future__ import annotations

__all__ = ["Compiled", "rarely", "traced_for_xla"]

import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import tensorflow as tf

from .graph_memory import last_gradient, tidy

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Outcome = TypeVar("Outcome")


class Compiled(Generic[Arguments, Result]):
    """A `tf.function` that uses AutoGraph only if kernel, likelihood or mean function need it.

    :param function: of tensors, without side effects: it may be traced twice.
    :param options: of `tf.function`.
    """

    # AutoGraph takes five of the six seconds of a first training step, and matters only where
    # Python's `if`, `while`, `for` or `assert` is applied to a tensor. TensorFlow refuses such a
    # statement while tracing; the function is then traced again with AutoGraph.

    def __init__(self, function: Callable[Arguments, Result], **options: object) -> None:
        self._function, self._options = _counted_alone(function), options
        self._graph = tf.function(self._function, autograph=False, **options)
        self._may_need_autograph = True
        self._bound: tuple[list, tf.types.experimental.ConcreteFunction] | None = None

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        bound = self._bound
        if bound is not None and not kwargs and bound[0] == _kinds_of(args):
            return bound[1](*args)
        return self._use("__call__", *args, **kwargs)

    def get_concrete_function(self, *arguments: object) -> tf.types.experimental.ConcreteFunction:
        """The graph for these arguments, which may be `tf.TensorSpec`s; traced if it is new."""
        return self._use("get_concrete_function", *arguments)

    def bind(self, *arguments: tf.Tensor) -> None:
        """Trace the graph for these tensors; later calls of their types go straight to it."""
        # TensorFlow's search takes 0.1 to 0.2 ms a call, a sixth of a small training step.
        graph = self.get_concrete_function(*arguments)
        if not self._options.get("jit_compile"):
            self._bound = _kinds_of(arguments), graph

    @property
    def traces(self) -> int:
        """How many times the function has been traced with its present setting of AutoGraph."""
        return self._graph.experimental_get_tracing_count()

    def _use(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the graph, after one retrace if that needs AutoGraph."""
        traces, last = self.traces, last_gradient()
        may_need_autograph = self._may_need_autograph  # another thread may be at the same
        try:
            outcome = getattr(self._graph, method)(*args, **kwargs)
            if self.traces > traces:
                tidy(last)
            return outcome
        except (
            TypeError
        ):  # tf.errors.OperatorNotAllowedInGraphError is one; int(tensor) raises a plain one
            if not may_need_autograph:
                raise
        if self._may_need_autograph:
            self._graph = tf.function(self._function, **self._options)
            self._may_need_autograph = False
        outcome = getattr(self._graph, method)(*args, **kwargs)
        tidy(last)
        return outcome


def _counted_alone(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The same function with its own count of traces."""
    # TensorFlow counts by code object, so a method that is traced once for each of five models
    # looks like one function that is retraced five times, and it warns. A partial has no code
    # object.
    return functools.partial(function)


def _kinds_of(tensors: tuple) -> list:
    return [
        (tensor.shape, tensor.dtype) if isinstance(tensor, tf.Tensor) else None
        for tensor in tensors
    ]


def rarely(branch: Callable[[], Outcome]) -> Callable[[], Outcome]:
    """A branch of `tf.cond` that is hardly ever taken, as a single call in the graph.

    :param branch: a function without arguments that returns tensors; it may write to variables.
    """
    # TensorFlow writes branches in line and hands dead values through their operations: three took
    # a fifth of a small training step.
    if tf.executing_eagerly() or traced_for_xla():
        return branch
    attributes = {"_noinline": True}
    return tf.function(_counted_alone(branch), autograph=False, experimental_attributes=attributes)


def traced_for_xla() -> bool:
    """True while a `tf.function` with `jit_compile=True` is traced, where shapes must be static."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        context = graph._get_control_flow_context()
        while context is not None:
            if context.IsXLAContext():
                return True
            context = context.outer_context
        graph = getattr(graph, "outer_graph", None)
    return False
