"""Products with the matrix of any kernel, by strips of its rows."""

from __future__ import annotations

__all__ = ["strip_product"]

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import tensorflow as tf
from gpflow.kernels import Kernel

from ..errors import ModelError
from ..replicas import Group

_ALONE = Group()


class _Rows(NamedTuple):
    """The rows of one replica, from `first` up to but without `last`."""

    first: tf.Tensor | int
    last: tf.Tensor | int
    device: str | None

    def place(self) -> AbstractContextManager[object]:
        """Where to compute them."""
        return nullcontext() if self.device is None else tf.device(self.device)


def strip_product(
    kernel: Kernel,
    X: tf.Tensor,
    Z: tf.Tensor | None,
    V: tf.Tensor,
    entries: int,
    progress: Callable[[float], None] | None = None,
    group: Group = _ALONE,
) -> tf.Tensor:
    """K(X, Z) V [N, R], without storing more than `entries` of K (or one row) and what its kernel needs besides.

    It can be differentiated once; the gradient computes every strip again. Gradients with respect to what the kernel depends
    on go to variables alone, of which GPflow's parameters are made.

    :param X: [N, D].
    :param Z: [M, D], or None for X; then the diagonal is that of `kernel(X, full_cov=False)`, which rounding cannot change.
    :param V: [M, R].
    :param progress: called with the share that is done, where it is executed eagerly.
    :param group: whose replicas share out the rows, as of `kernel_product`; where it is executed eagerly.

    Example::

        strip_product(gpflow.kernels.Matern12(), X, None, V, entries=1_000_000)
    """

    @tf.custom_gradient
    def run(X: tf.Tensor, V: tf.Tensor, *others: tf.Tensor) -> tuple:
        N, R = tf.maximum(tf.shape(X)[0], 1), V.shape[1]  # one strip, without rows, where there are none
        rows = tf.maximum(entries // tf.maximum(tf.shape(V)[0], 1), 1)
        own = _own_rows(group, N)
        start, whole = own[0].first, own[-1].last - own[0].first

        # `recompute_grad` keeps what is computed within a strip out of the tape of the caller
        unrecorded = tf.recompute_grad(lambda first, last, X, V, *others: _strip(kernel, first, last, X, V, others))

        def product() -> list[tf.Tensor]:
            parts = []
            for share in own:

                def forward(first: tf.Tensor, done: tf.TensorArray, share: _Rows = share) -> tuple:
                    last = tf.minimum(first + rows, share.last)
                    strip = unrecorded(first, last, X, V, *others)
                    _report(progress, last - start, whole)
                    return first + rows, done.write((first - share.first) // rows, strip)

                count = -(-(share.last - share.first) // rows)
                pieces = tf.TensorArray(V.dtype, count, element_shape=[None, R], infer_shape=False)
                with share.place():
                    _, pieces = _strips(share, forward, pieces)
                    parts.append(pieces.concat())
            if group.replicas == 1:
                return parts
            return [tf.pad(tf.concat(parts, axis=0), [[start, N - own[-1].last], [0, 0]])]

        (result,) = group.summed(product)

        def grad(upstream: tf.Tensor, variables: Sequence[tf.Variable] | None = None) -> tuple:
            known = _in_order(kernel, group, variables or ())
            wanted = [X, V, *others, *known]

            def sums() -> list[tf.Tensor]:
                state = [tf.zeros_like(one) for one in wanted]
                for share in own:

                    def backward(first: tf.Tensor, *state: tf.Tensor, share: _Rows = share) -> tuple:
                        last = tf.minimum(first + rows, share.last)
                        with tf.GradientTape(watch_accessed_variables=False) as tape:
                            tape.watch(wanted)
                            strip = _strip(kernel, first, last, X, V, others)
                        found = tape.gradient(
                            strip, wanted, upstream[first:last], unconnected_gradients=tf.UnconnectedGradients.ZERO
                        )
                        _report(progress, last - start, whole)
                        return first + rows, *(total + part for total, part in zip(state, found))

                    with share.place():
                        _, *state = _strips(share, backward, *state)
                return state

            inputs, found = 2 + len(others), group.summed(sums)
            if variables is None:
                return tuple(found[:inputs])
            of_variables = {one.ref(): part for one, part in zip(known, found[inputs:])}
            return tuple(found[:inputs]), [of_variables[one.ref()] for one in variables]

        result.set_shape([X.shape[0], R])
        return result, grad

    return run(X, V, *(() if Z is None else (Z,)))


def _strip(
    kernel: Kernel, first: tf.Tensor, last: tf.Tensor, X: tf.Tensor, V: tf.Tensor, others: tuple[tf.Tensor, ...]
) -> tf.Tensor:
    """The rows of K V from `first` up to but without `last`."""
    part = X[first:last]
    if others:
        return tf.matmul(tf.cast(kernel(part, others[0]), V.dtype), V)
    strip = kernel(part, X)
    at = tf.range(tf.shape(part)[0])
    # noise kernels count here alone, and rough kernels would depend on how the distance of a point to itself is rounded
    excess = kernel(part, full_cov=False) - tf.gather_nd(strip, tf.stack([at, first + at], axis=1))
    return tf.matmul(tf.cast(strip, V.dtype), V) + tf.cast(excess, V.dtype)[:, None] * V[first:last]


def _own_rows(group: Group, N: tf.Tensor) -> list[_Rows]:
    """The rows of the replicas of this process; one after the other."""
    R = group.replicas
    return [_Rows(N * number // R, N * (number + 1) // R, device) for number, device in group.own]


def _strips(rows: _Rows, body: Callable[..., tuple], *state: tf.Tensor | tf.TensorArray) -> tuple:
    """`body` of the first row of every strip, and what the one before it returned."""
    return tf.while_loop(lambda first, *_: first < rows.last, body, (rows.first, *state), parallel_iterations=1)


def _in_order(kernel: Kernel, group: Group, variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """The variables in an order that is the same on all workers; TensorFlow's own is by their addresses."""
    if group.workers == 1:
        return list(variables)
    parts = [part.ref() for variable in kernel.variables for part in group.parts_of(variable)]
    if not all(variable.ref() in parts for variable in variables):
        raise ModelError(
            f"The {type(kernel).__name__} reads a variable that is not among its own, so that workers cannot add up its "
            "gradient: make it an attribute of the kernel, or leave strategy out."
        )
    return sorted(variables, key=lambda variable: parts.index(variable.ref()))


def _report(progress: Callable[[float], None] | None, done: tf.Tensor, whole: tf.Tensor) -> None:
    if progress is not None and tf.executing_eagerly():
        progress(min(1.0, int(done) / int(whole)))
