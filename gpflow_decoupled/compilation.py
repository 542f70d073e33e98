"""Compilation of functions that run many times: `tf.function`, without AutoGraph where the code
allows it.
"""

from __future__ import annotations

__all__ = ["Compiled", "rarely", "traced_for_xla"]

import inspect
import itertools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Generic, ParamSpec, TypeVar

import tensorflow as tf
import tensorflow_probability as tfp

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Outcome = TypeVar("Outcome")


class Compiled(Generic[Arguments, Result]):
    """A `tf.function` that uses AutoGraph only if a kernel, a likelihood or a mean function needs
    it.

    AutoGraph rewrites the source of every function that is called. That takes five of the six
    seconds of a first training step, and the graph is the same unless Python's `if`, `while`, `for`
    or `assert` is applied to a tensor. TensorFlow refuses such a statement while it traces, before
    anything is computed. The function is then traced again with AutoGraph.

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
        self._bound: tuple[list, tf.types.experimental.ConcreteFunction] | None = None

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """What the function returns for these arguments."""
        if self._bound is not None and not kwargs and self._bound[0] == _kinds_of(args):
            return self._bound[1](*args)
        return self._use(lambda graph: graph(*args, **kwargs))

    def get_concrete_function(self, *arguments: object) -> tf.types.experimental.ConcreteFunction:
        """The graph for these arguments, which may be `tf.TensorSpec`s; traced if it is new."""
        return self._use(lambda graph: graph.get_concrete_function(*arguments))

    def bind(self, *arguments: tf.Tensor) -> None:
        """Trace the graph for these tensors, and let calls with others of their shapes and types go
        straight to it.

        To look a graph up takes TensorFlow 0.1 to 0.2 ms a call, a sixth of a small training step.
        """
        graph = self.get_concrete_function(*arguments)
        if not self._options.get("jit_compile"):
            self._bound = _kinds_of(arguments), graph

    @property
    def traces(self) -> int:
        """How many times the function has been traced with its present setting of AutoGraph."""
        return self._graph.experimental_get_tracing_count()

    def _use(self, use: Callable[[tf.types.experimental.PolymorphicFunction], Outcome]) -> Outcome:
        """Apply `use` to the graph; where that needs AutoGraph, replace the graph once and apply it
        again.
        """
        traces, last = self.traces, next(reversed(_registered_gradients()), None)
        try:
            outcome = use(self._graph)
            if self.traces > traces:
                _tidy(last)
            return outcome
        except (
            TypeError
        ):  # tf.errors.OperatorNotAllowedInGraphError is one; int(tensor) raises a plain one
            if not self._may_need_autograph:
                raise
        self._may_need_autograph = False
        self._graph = tf.function(self._function, **self._options)
        outcome = use(self._graph)
        _tidy(last)
        return outcome


def _kinds_of(tensors: tuple) -> list:
    """Shapes and types, which a graph is for; no list of them is that of anything but tensors."""
    return [
        (tensor.shape, tensor.dtype) if isinstance(tensor, tf.Tensor) else None
        for tensor in tensors
    ]


def _tidy(last: str | None) -> None:
    """What a trace left in tables that TensorFlow never empties lives as long as its graph:
    gradients added after `last`.
    """
    for name in list(
        itertools.takewhile(lambda name: name != last, reversed(_registered_gradients()))
    ):
        _keep_with_graphs(name)
    _forget_graph_tensors()


def _registered_gradients() -> dict[str, dict[str, object]]:
    """TensorFlow's table of gradients by name, to which each `tf.custom_gradient` of a graph adds
    one, for good.
    """
    module = sys.modules.get(tf.RegisterGradient.__module__)
    registry: dict[str, dict[str, object]] = getattr(
        getattr(module, "gradient_registry", None), "_registry", {}
    )
    return registry


def _keep_with_graphs(name: str) -> None:
    """Let a registered gradient live as long as the graph it was made in, or one around it, in
    place of for good.

    The table would keep the graph in memory. The graph may outlive the function that was traced:
    `tfp.math.lbeta` is a `tf.function` of its own, traced by its first user and used by all later
    ones.
    """
    entry = _registered_gradients()[name]
    gradient = entry.get("type")
    graphs = list(_graphs_of(gradient))
    if graphs:
        for graph in graphs:
            graph.get_collection_ref("gpflow_decoupled gradients").append(gradient)
        alive = weakref.ref(gradient)
        entry["type"] = lambda *args: alive()(*args)  # type: ignore[operator]
        weakref.finalize(gradient, _registered_gradients().pop, name, None)


def _graphs_of(gradient: object) -> Iterator[tf.Graph]:
    """The graph of the operation whose gradient this is, and those around it; none if it is not a
    `tf.custom_gradient`.
    """
    wrapped = _variables_of(gradient).get("tape_grad_fn")
    tensors = tf.nest.flatten(_variables_of(wrapped).get("result"))
    graph = next((tensor.graph for tensor in tensors if hasattr(tensor, "graph")), None)
    while graph is not None and graph.building_function:
        yield graph
        graph = getattr(graph, "outer_graph", None)


def _variables_of(function: object) -> dict[str, object]:
    """The variables of outer functions that a function refers to, by name."""
    return dict(inspect.getclosurevars(function).nonlocals) if inspect.isfunction(function) else {}


def _forget_graph_tensors() -> None:
    """Remove the tensors of graphs from the cache that all bijectors of TensorFlow Probability
    share.

    An entry of that cache lives as long as its output, and holds its input. In a graph the input
    keeps the output alive, so that each graph which reads a Parameter would stay in memory for
    good. The entries only save work while a graph is traced.
    """
    storage = getattr(getattr(tfp.bijectors.Bijector, "_cache", None), "storage", {})
    for key in list(storage):
        if any(hasattr(tensor, "graph") for tensor in tf.nest.flatten(key())):
            key.cancel()
            storage.pop(key, None)


def rarely(branch: Callable[[], Outcome]) -> Callable[[], Outcome]:
    """A branch of `tf.cond` that is hardly ever taken, as a single call in the graph.

    TensorFlow writes branches in line, and hands dead values through every operation of the one
    that is not taken. Three such branches were a fifth of a small training step.

    :param branch: a function without arguments that returns tensors; it may write to variables.

    Example::

        tf.cond(factor.ok, lambda: factor.chol, rarely(lambda: shifted(matrix)))
    """
    if tf.executing_eagerly() or traced_for_xla():
        return branch
    return tf.function(branch, autograph=False, experimental_attributes={"_noinline": True})


def traced_for_xla() -> bool:
    """Whether a `tf.function` with `jit_compile=True` is being traced, in which no shape may depend
    on values.

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
