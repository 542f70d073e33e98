"""Matrix products of traced graphs, and those that TensorFlow gets wrong in float32.

TensorFlow's oneDNN kernel of `BatchMatMulV2` writes out of bounds where one operand has rank 4 or
more and the other is broadcast (TensorFlow issues 117700 and 123109): the process dies, or a number
is wrong. Sizes and luck decide whether it dies, so a test looks at the ranks.
"""

from __future__ import annotations

__all__ = ["broadcast_products"]

from collections.abc import Callable

import tensorflow as tf


def broadcast_products(function: Callable[..., object], *arguments: object) -> list[str]:
    """Trace a function; name its products with an operand of rank 4 or more that are broadcast.

    :param function: of tensors; its gradient is looked at where it takes it.
    :param arguments: tensors or `tf.TensorSpec`s.
    :return: one line a product: the shapes and the name of the operation.
    """
    graph = tf.function(function, autograph=False).get_concrete_function(*arguments).graph
    graphs: dict[int, tf.Graph] = {}
    _collect(graph, graphs)
    products = {
        op.name: [one.shape for one in op.inputs]
        for one in graphs.values()
        for op in one.get_operations()
        if op.type.startswith("BatchMatMul")
    }
    return [
        f"{left} times {right}: {name}"
        for name, (left, right) in products.items()
        if _is_broadcast(left, right)
    ]


def _collect(graph: tf.Graph, graphs: dict[int, tf.Graph]) -> None:
    """Add a graph and the graphs of its loops, branches and functions."""
    if id(graph) not in graphs:
        graphs[id(graph)] = graph
        for function in graph._functions.values():  # no public name reaches them with their shapes
            _collect(function.graph, graphs)


def _is_broadcast(left: tf.TensorShape, right: tf.TensorShape) -> bool:
    """True where the leading axes differ and one operand has two or more; ranks must be known."""
    if left.rank is None or right.rank is None:
        return True
    one, other = left[:-2].as_list(), right[:-2].as_list()
    return max(len(one), len(other)) > 1 and one != other
