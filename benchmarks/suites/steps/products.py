"""Seconds of a product K(X, X) V with a matrix that is never stored, against the number of rows and
of right-hand sides.

Beside them stands the share of the processor's single-precision peak, as a product of two large
matrices reaches it: additions and multiplications of the distances and of the product with V alone,
as if exponentials cost nothing."""

from __future__ import annotations

__all__ = ["PART", "Product", "measure"]

import argparse
import itertools
from collections.abc import Callable
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_decoupled.covariances.products import kernel_product

from ...harness.machine import clock
from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part

_SQUARE = 2048
"""Rows of the matrices whose product gives the peak."""


class Product(NamedTuple):
    """One product."""

    num_rows: int
    num_inputs: int
    right_hand_sides: int
    dtype: str
    """of the blocks; sums are in float64"""
    seconds: float
    """least of the rounds"""
    gradient_seconds: float
    """least of the rounds, of the product and its gradient with respect to the kernel's
    parameters
    """
    share: float
    """of the peak in single precision, in the product"""


def measure(
    options: argparse.Namespace, num_rows: int, num_inputs: int, right: int, dtype: str
) -> list[Product]:
    """Time one product, and one with its gradient, on standard normal inputs."""
    rng = np.random.default_rng(options.seed)
    X, V = (
        tf.constant(rng.standard_normal([num_rows, columns])) for columns in (num_inputs, right)
    )
    kernel = gpflow.kernels.Matern32(lengthscales=np.full(num_inputs, num_inputs**0.5))

    def product() -> tf.Tensor:
        return kernel_product(kernel, X, None, V, dtype=tf.as_dtype(dtype))

    def with_gradient() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(V * product())
        return tape.gradient(value, kernel.trainable_variables)

    square = tf.constant(rng.standard_normal([_SQUARE, _SQUARE]), tf.float32)
    seconds, gradient, peak = (
        _least(function, options.rounds)
        for function in (product, with_gradient, lambda: tf.matmul(square, square))
    )
    operations = 2.0 * num_rows**2 * (num_inputs + 2 + right)
    share = operations / seconds / (2.0 * _SQUARE**3 / peak)
    return [Product(num_rows, num_inputs, right, dtype, seconds, gradient, share)]


def _least(function: Callable[[], object], rounds: int) -> float:
    """Seconds of the fastest of `rounds` calls, after a first one, which compiles."""
    function()
    times = []
    for _ in range(rounds):
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)


def section(products: list[Product], _: argparse.Namespace) -> Section:
    """A row per product, and seconds against the number of rows."""
    rows = [
        [
            f"{one.num_rows:,}",
            str(one.num_inputs),
            str(one.right_hand_sides),
            one.dtype,
            f"{one.seconds:.3f}",
            f"{one.gradient_seconds:.3f}",
            f"{100 * one.share:.0f}",
        ]
        for one in products
    ]
    header = ["N", "D", "right-hand sides", "blocks", "seconds", "with gradient", "% of the peak"]
    note = (
        "Products: K(X, X) V, Matern-3/2, which is never stored; least of the rounds. The peak is"
        f" that of a product of two matrices of {_SQUARE:,} rows in single precision; exponentials"
        " and roots are not counted as work."
    )
    series = []
    for key in dict.fromkeys((one.num_inputs, one.right_hand_sides, one.dtype) for one in products):
        mine = [one for one in products if (one.num_inputs, one.right_hand_sides, one.dtype) == key]
        label = f"D = {key[0]}, {key[1]} right-hand sides, {key[2]}"
        series.append(Series(label, [one.num_rows for one in mine], [one.seconds for one in mine]))
    figure = Figure(
        "steps_products",
        "Seconds of a product.",
        [Panel("", "rows N", "seconds", series, log="xy")],
        columns=1,
    )
    return Section([Table("Products with kernel matrices", header, rows)], [figure], [note])


def _pieces(options: argparse.Namespace) -> list[tuple]:
    return list(
        itertools.product(
            options.product_rows,
            options.product_inputs,
            options.right_hand_sides,
            ("float32", "float64"),
        )
    )


PART = Part(Product, _pieces, measure, section)
