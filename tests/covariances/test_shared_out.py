"""The parts of a product that several replicas compute add up to the product, and so do those of
its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_decoupled.covariances.blocks import chunks, shares
from gpflow_decoupled.covariances.products import kernel_product
from gpflow_decoupled.replicas import Group

N = 61


class Alone:
    """One replica of several, to which the others send nothing."""

    workers = 1

    def __init__(self, number: int, replicas: int) -> None:
        self.replicas, self.own = replicas, [(number, None)]
        self.sent: list[list[tuple[int, ...]]] = []

    def summed(self, function: Callable[[], Sequence[tf.Tensor]]) -> list[tf.Tensor]:
        """What this replica has."""
        own = list(function())
        self.sent.append([tuple(part.shape) for part in own])
        return own

    def parts_of(self, variable: tf.Variable) -> list[tf.Variable]:
        """The variable."""
        return [variable]


def product(kernel: gpflow.kernels.Kernel, group: Any) -> list[np.ndarray]:
    """K V, and the gradients of sum(U * K V) by V, X and the Parameters."""
    rng = np.random.default_rng(0)
    X, V, U = (
        tf.constant(rng.uniform(size=(N, 2))),
        tf.constant(rng.normal(size=(N, 1))),
        rng.normal(size=(N, 1)),
    )
    wanted = [V, X, *kernel.trainable_variables]
    block = (
        (8, 8) if isinstance(kernel, gpflow.kernels.Matern32) else (25, 25)
    )  # or strips of ten rows
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(wanted)
        value = kernel_product(kernel, X, None, V, block=block, xla=False, group=cast(Group, group))
        target = tf.reduce_sum(U * value)
    return [part.numpy() for part in (value, *tape.gradient(target, wanted))]


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["Matern32", "Matern12"])
def test_parts_add_up(kind: str) -> None:
    kernel = getattr(gpflow.kernels, kind)(lengthscales=0.4)
    whole, count = product(kernel, None), 3
    groups = [Alone(number, count) for number in range(count)]
    parts = [product(kernel, group) for group in groups]
    for place, expected in enumerate(whole):
        np.testing.assert_allclose(
            sum(part[place] for part in parts), expected, rtol=1e-10, atol=1e-10
        )
        assert all(np.max(np.abs(part[place])) > 0 for part in parts), "each has its share"
    of_parameters = [] if kind == "Matern32" else [()] * 2
    gradients = [(N, 1), (N, 2)] if kind == "Matern32" else [(N, 2), (N, 1), *of_parameters]
    assert [group.sent for group in groups] == [[[(N, 1)], gradients]] * count, (
        "8 N R bytes, and 8 N (D + R)"
    )


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("rows, count", [(16, 2), (16, 5), (3, 7), (1, 2)])
def test_shares_are_of_about_one_size(rows: int, count: int, same: bool) -> None:
    found = shares(rows, rows, same, count)
    assert found[0][0] == 0 and found[-1][1] == rows and len(found) == count
    assert all(one[1] == other[0] for one, other in zip(found, found[1:]))
    sizes = [
        sum(part.entries for part in chunks(rows, rows, (1, 1), same, share)) for share in found
    ]
    whole = rows * (rows + 1) // 2 if same else rows**2
    assert sum(sizes) == whole and max(sizes) <= whole / count + rows, "within one row of blocks"
