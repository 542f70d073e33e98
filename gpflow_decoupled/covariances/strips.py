"""Products with any kernel, by strips of rows."""

from __future__ import annotations

__all__ = ["strip_product"]

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import tensorflow as tf
from gpflow.kernels import Kernel

from ..errors import ModelError
from ..replicas import Group
from .centring import covariance

_ALONE = Group()


class _Rows(NamedTuple):
    first: tf.Tensor | int
    last: tf.Tensor | int
    device: str | None

    def place(self) -> AbstractContextManager[object]:
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
    """Return K(X, Z) V [N, R], storing at most `entries` of K (or one row) at a time.

    Differentiable once, in variables of the kernel too.

    X is [N, D], V [M, R], Z [M, D], or None for X with the exact diagonal.

    :param group: if eager, the replicas that share the rows, see `kernel_product`.
    """

    @tf.custom_gradient
    def run(X: tf.Tensor, V: tf.Tensor, *others: tf.Tensor) -> tuple:
        product = _Product(kernel, (X, V, *others), entries, progress, group)
        return product.value(), product.gradient

    return run(X, V, *(() if Z is None else (Z,)))


class _Product:
    """K(X, Z) V by strips, shared out among replicas.

    :param arrays: X [N, D], V [M, R], and Z [M, D] unless it is X.
    """

    def __init__(
        self,
        kernel: Kernel,
        arrays: tuple[tf.Tensor, ...],
        entries: int,
        progress: Callable[[float], None] | None,
        group: Group,
    ) -> None:
        self.kernel, self.arrays, self.progress, self.group = kernel, arrays, progress, group
        X, V = arrays[:2]
        self.N = tf.maximum(tf.shape(X)[0], 1)  # one strip, without rows, where there are none
        self.rows = tf.maximum(entries // tf.maximum(tf.shape(V)[0], 1), 1)
        self.own = _own_rows(group, self.N)

    def value(self) -> tf.Tensor:
        # `recompute_grad` keeps what is computed within a strip out of the tape of the caller
        unrecorded = tf.recompute_grad(lambda *given: _strip(self.kernel, *given))
        X, V = self.arrays[:2]

        def of_replica(share: _Rows) -> tf.Tensor:
            def forward(first: tf.Tensor, done: tf.TensorArray) -> tuple:
                last = tf.minimum(first + self.rows, share.last)
                strip = unrecorded(first, last, *self.arrays)
                self._report(last)
                return first + self.rows, done.write((first - share.first) // self.rows, strip)

            count = -(-(share.last - share.first) // self.rows)
            pieces = tf.TensorArray(
                V.dtype, count, element_shape=[None, V.shape[1]], infer_shape=False
            )
            return _strips(share, forward, pieces)[1].concat()

        def of_process() -> list[tf.Tensor]:
            parts = []
            for share in self.own:
                with share.place():
                    parts.append(of_replica(share))
            if self.group.replicas == 1:
                return parts
            return [
                tf.pad(
                    tf.concat(parts, axis=0),
                    [[self.own[0].first, self.N - self.own[-1].last], [0, 0]],
                )
            ]

        (result,) = self.group.summed(of_process)
        result.set_shape([X.shape[0], V.shape[1]])
        return result

    def gradient(
        self, upstream: tf.Tensor, variables: Sequence[tf.Variable] | None = None
    ) -> tuple:
        known = _in_order(self.kernel, self.group, variables or ())
        wanted = [*self.arrays, *known]

        def backward(share: _Rows, first: tf.Tensor, *sums: tf.Tensor) -> tuple:
            last = tf.minimum(first + self.rows, share.last)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(wanted)
                strip = _strip(self.kernel, first, last, *self.arrays)
            found = tape.gradient(
                strip,
                wanted,
                upstream[first:last],
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
            self._report(last)
            return first + self.rows, *(total + part for total, part in zip(sums, found))

        def of_process() -> list[tf.Tensor]:
            sums = [tf.zeros_like(one) for one in wanted]
            for share in self.own:
                with share.place():
                    _, *sums = _strips(share, functools.partial(backward, share), *sums)
            return sums

        found, inputs = self.group.summed(of_process), len(self.arrays)
        if variables is None:
            return tuple(found[:inputs])
        of_variables = {one.ref(): part for one, part in zip(known, found[inputs:])}
        return tuple(found[:inputs]), [of_variables[one.ref()] for one in variables]

    def _report(self, last: tf.Tensor) -> None:
        if self.progress is not None and tf.executing_eagerly():
            first, end = self.own[0].first, self.own[-1].last
            self.progress(min(1.0, int(last - first) / int(end - first)))


def _strip(
    kernel: Kernel,
    first: tf.Tensor,
    last: tf.Tensor,
    X: tf.Tensor,
    V: tf.Tensor,
    *others: tf.Tensor,
) -> tf.Tensor:
    part = X[first:last]
    strip = covariance(kernel, others[0] if others else X, part)  # the data first, see `centred`
    product = tf.matmul(tf.cast(strip, V.dtype), V, transpose_a=True)
    if others:
        return product
    at = tf.range(tf.shape(part)[0])
    # noise kernels count here alone, and rough kernels would depend on how the distance of a point
    # to itself is rounded
    excess = kernel(part, full_cov=False) - tf.gather_nd(strip, tf.stack([first + at, at], axis=1))
    return product + tf.cast(excess, V.dtype)[:, None] * V[first:last]


def _own_rows(group: Group, N: tf.Tensor) -> list[_Rows]:
    R = group.replicas
    return [_Rows(N * number // R, N * (number + 1) // R, device) for number, device in group.own]


def _strips(rows: _Rows, body: Callable[..., tuple], *state: tf.Tensor | tf.TensorArray) -> tuple:
    return tf.while_loop(
        lambda first, *_: first < rows.last, body, (rows.first, *state), parallel_iterations=1
    )


def _in_order(kernel: Kernel, group: Group, variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Sort variables in an order shared by all workers; TensorFlow's is by address."""
    if group.workers == 1:
        return list(variables)
    parts = [part.ref() for variable in kernel.variables for part in group.parts_of(variable)]
    if not all(variable.ref() in parts for variable in variables):
        raise ModelError(
            f"The {type(kernel).__name__} reads a variable that is not among its own, so that"
            " workers cannot add up its gradient: make it an attribute of the kernel, or leave"
            " strategy out."
        )
    return sorted(variables, key=lambda variable: parts.index(variable.ref()))
