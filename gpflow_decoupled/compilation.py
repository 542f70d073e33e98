"""Compilation of functions that run many times."""

from __future__ import annotations

__all__ = [
    "Compiled", "counted_alone", "last_gradient", "rarely", "tidy", "traced_for_xla", "untidied",
]  # fmt: skip

import functools
import inspect
import itertools
import sys
import weakref
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, Generic, ParamSpec, TypeVar

import tensorflow as tf

from .probability import tfp
from .user_warnings import warn_user

# ---
# Memory of compiled functions: graphs go with their function.


# Two tables keep every graph for the life of the process, without a public way to remove an entry:
#
# - TensorFlow's registry of gradients refers to tensors of the graph of each `tf.custom_gradient`.
# - TensorFlow Probability's cache of bijectors holds the input of each living output; in a graph
#   the input keeps the output alive.
#
# A process would grow by 22 MB for each `fit(model, data, steps=2)` of a new `ODVGP` with 20
# points; with `tidy` after each trace it does not. `tidy` relies on private names of both
# libraries, in `_registry`, `_graph_of` and `_cache`. `untidied` tries them on a tiny graph at
# import, in 30 ms, and the package warns where a release has changed them: memory then grows,
# nothing else.


def last_gradient() -> str | None:
    """Name the gradient registered last, for `tidy` after a trace."""
    return next(reversed(_registry()), None)


def tidy(last: str | None) -> None:
    """Drop gradients registered after `last` with their graphs, and graph tensors cached by
    bijectors.
    """
    names = reversed(list(_registry()))  # a list: the collector may remove entries meanwhile
    for name in itertools.takewhile(lambda name: name != last, names):
        _keep_with_graphs(name)
    _forget_graph_tensors()


def untidied() -> list[str]:
    """The tables that `tidy` cannot clear in the installed versions, tried on a tiny graph."""
    last, missing = last_gradient(), []
    with tf.Graph().as_default() as graph:
        x = tf.constant(1.0)
        tf.custom_gradient(lambda x: (2.0 * x, lambda slope: 2.0 * slope))(x)
        y = tfp.bijectors.Exp().forward(x)
        entry = _registry().get(name := last_gradient() or "", {})
        if name == last or _graph_of(entry.get("type")) is not graph:
            missing.append("TensorFlow's registry of gradients")
        else:
            del _registry()[name]
        if not any(one is x for key in _cache() for one in tf.nest.flatten(key())):
            missing.append("the cache of TensorFlow Probability's bijectors")
        del y
    _forget_graph_tensors()
    return missing


def _registry() -> dict[str, dict[str, object]]:
    module = sys.modules.get(tf.RegisterGradient.__module__)
    registry: dict[str, dict[str, object]] = getattr(
        getattr(module, "gradient_registry", None), "_registry", {}
    )
    return registry


def _graph_of(gradient: object) -> tf.Graph | None:
    wrapped = _variables_of(gradient).get("tape_grad_fn")
    tensors = tf.nest.flatten(_variables_of(wrapped).get("result"))
    return next((tensor.graph for tensor in tensors if hasattr(tensor, "graph")), None)


def _variables_of(function: object) -> dict[str, object]:
    return dict(inspect.getclosurevars(function).nonlocals) if inspect.isfunction(function) else {}


def _cache() -> MutableMapping:
    storage: MutableMapping = getattr(
        getattr(tfp.bijectors.Bijector, "_cache", None), "storage", {}
    )
    return storage


def _keep_with_graphs(name: str) -> None:
    """Let a registered gradient live as long as the graph it was made in, or one around it."""
    # The graph may outlive the function traced: `tfp.math.lbeta` is itself a `tf.function`, traced
    # by its first user and used by all later ones.
    entry = _registry().get(name, {})  # removed where the collector ran since names were listed
    gradient = entry.get("type")
    graphs = list(_and_those_around(_graph_of(gradient)))
    if graphs:
        for graph in graphs:
            graph.get_collection_ref("gpflow_decoupled gradients").append(gradient)
        alive = weakref.ref(gradient)
        entry["type"] = lambda *args: alive()(*args)  # type: ignore[operator]
        weakref.finalize(gradient, _registry().pop, name, None)


def _and_those_around(graph: tf.Graph | None) -> Iterator[tf.Graph]:
    while graph is not None and graph.building_function:
        yield graph
        graph = getattr(graph, "outer_graph", None)


def _forget_graph_tensors() -> None:
    """Remove graph tensors from the bijectors' cache, of use only while a graph is traced."""
    storage = _cache()
    for key in list(storage):
        if any(hasattr(tensor, "graph") for tensor in tf.nest.flatten(key())):
            key.cancel()  # before the entry goes, or its callback would look for it later
            storage.pop(key, None)


def _warn_of_untidied() -> None:
    if missing := untidied():
        warn_user(
            f"TensorFlow {tf.__version__} with TensorFlow Probability {tfp.__version__} is not"
            f" known to this version of gpflow_decoupled: {' and '.join(missing)} cannot be"
            " cleared, so that each compiled function stays in memory for good. Results are not"
            " affected. Where one process trains many models, use versions of"
            " packaging/constraints.txt, or start a new process for each.",
            RuntimeWarning,
        )


_warn_of_untidied()


# ---


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
        self._function, self._options = counted_alone(function), options
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


def counted_alone(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
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
    return tf.function(counted_alone(branch), autograph=False, experimental_attributes=attributes)


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
