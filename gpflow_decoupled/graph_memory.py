"""Memory of compiled functions: graphs go with their function."""

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

from __future__ import annotations

__all__ = ["last_gradient", "tidy", "untidied"]

import inspect
import itertools
import sys
import weakref
from collections.abc import Iterator, MutableMapping

import tensorflow as tf

from .probability import tfp
from .user_warnings import warn_user


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
            " constraints.txt, or start a new process for each.",
            RuntimeWarning,
        )


_warn_of_untidied()
