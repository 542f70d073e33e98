"""Compilation of functions that run many times: `tf.function`, without AutoGraph where the code allows it."""

from __future__ import annotations

__all__ = ["Compiled", "traced_for_xla"]

import sys
import weakref
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

import tensorflow as tf
import tensorflow_probability as tfp

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
        self._gradients = list[str]()
        weakref.finalize(self, _forget_gradients, self._gradients)

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
        traces, gradients = self.traces, len(_registered_gradients())
        try:
            outcome = use(self._graph)
            if self.traces > traces:
                self._tidy(gradients)
            return outcome
        except TypeError:  # tf.errors.OperatorNotAllowedInGraphError is one; int(tensor) raises a plain one
            if not self._may_need_autograph:
                raise
        self._may_need_autograph = False
        self._graph = tf.function(self._function, **self._options)
        outcome = use(self._graph)
        self._tidy(gradients)
        return outcome

    def _tidy(self, gradients: int) -> None:
        """Note the gradients that a trace registered, after the first so many, and empty the cache of bijectors."""
        self._gradients.extend(list(_registered_gradients())[gradients:])
        _forget_graph_tensors()


def _registered_gradients() -> dict[str, object]:
    """TensorFlow's table of gradients by name, to which each `tf.custom_gradient` of a graph adds one, for good."""
    module = sys.modules.get(tf.RegisterGradient.__module__)
    registry: dict[str, object] = getattr(getattr(module, "gradient_registry", None), "_registry", {})
    return registry


def _forget_gradients(names: list[str]) -> None:
    """Remove the gradients of a function that is gone: they would keep its graphs in memory."""
    for name in names:
        _registered_gradients().pop(name, None)


def _forget_graph_tensors() -> None:
    """Remove the tensors of graphs from the cache that all bijectors of TensorFlow Probability share.

    An entry of that cache lives as long as its output, and holds its input. In a graph the input keeps the output alive, so
    that each graph which reads a Parameter would stay in memory for good. The entries only save work while a graph is traced.
    """
    storage = getattr(getattr(tfp.bijectors.Bijector, "_cache", None), "storage", {})
    for key in list(storage):
        if any(hasattr(tensor, "graph") for tensor in tf.nest.flatten(key())):
            key.cancel()
            storage.pop(key, None)


def traced_for_xla() -> bool:
    """Whether a `tf.function` with `jit_compile=True` is being traced, in which no shape may depend on values.

    Example::

        rows = tf.linalg.diag(mask) if traced_for_xla() else tf.boolean_mask(tf.eye(N), mask)
    """
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        context = graph._get_control_flow_context()
        while context is not None:
            if context.IsXLAContext():
                return True
            context = context.outer_context
        graph = getattr(graph, "outer_graph", None)
    return False
