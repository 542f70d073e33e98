"""Gram matrices of arrays with gradients, without a graph."""

# For few rows a compiled graph costs more to trace than all its calls; and operations on Parameters
# one by one cost more than those on matrices.

from __future__ import annotations

__all__ = ["ArrayGram", "Gradients", "Values", "array_gram"]

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.kernels import Constant, Kernel, Linear, Product, Stationary, Sum, White

from .profiles import PROFILES

Values: TypeAlias = Callable[[Parameter], np.ndarray]
"""The value of a Parameter."""
Gradients: TypeAlias = list[tuple[Parameter, np.ndarray]]
"""By Parameters, at their values; one may come several times, and the sum counts."""
Back: TypeAlias = Callable[[np.ndarray], Gradients]
"""From the gradient [N, N], symmetric, by the Gram matrix."""
ArrayGram: TypeAlias = Callable[[Values], tuple[np.ndarray, Back]]
"""Values -> k(X, X) [N, N] and its gradients."""


def array_gram(kernel: Kernel, X: np.ndarray) -> ArrayGram | None:
    """Return k(X, X) as a function of the Parameters' values; None for unknown kernels.

    Known: `profiles`, `Constant`, `White`, `Linear`, sums and products.

    :param kernel: its Parameters are keys, their values are not read.
    :param X: inputs [N, D].
    """
    kind = type(kernel)
    if kind in (Sum, Product):
        parts = [array_gram(part, X) for part in kernel.kernels]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return _sum(known) if kind is Sum else _product(known)
    if kind in PROFILES:
        return _stationary(kernel, np.asarray(kernel.slice(X)[0]))
    if kind is Linear:
        return _linear(kernel, np.asarray(kernel.slice(X)[0]))
    if kind in (Constant, White):
        return _static(kernel, np.eye(len(X)) if kind is White else np.ones((len(X), len(X))))
    return None


def _stationary(kernel: Stationary, X: np.ndarray) -> ArrayGram:
    profile, centred = PROFILES[type(kernel)], X - np.median(X, axis=0)

    def evaluate(values: Values) -> tuple[np.ndarray, Back]:
        variance, lengths = values(kernel.variance), values(kernel.lengthscales)
        scaled = centred / lengths
        norms = np.sum(np.square(scaled), axis=1)
        squares = np.maximum(norms[:, None] + norms - 2.0 * scaled @ scaled.T, 0.0)
        np.fill_diagonal(squares, 0.0)
        K, slopes = (part.numpy() for part in profile(tf.constant(squares), tf.constant(variance)))

        def back(upstream: np.ndarray) -> Gradients:
            weights = upstream * slopes
            # sum_ij w_ij (x_i - x_j)^2 of scaled columns, [D]
            moments = 2.0 * np.sum(weights, axis=1) @ np.square(scaled)
            moments -= 2.0 * np.sum(scaled * (weights @ scaled), axis=0)
            moments = moments if lengths.ndim else np.sum(moments)
            of_variance = np.vdot(upstream, K) / variance
            return [(kernel.variance, of_variance), (kernel.lengthscales, -2.0 * moments / lengths)]

        return K, back

    return evaluate


def _static(kernel: Kernel, ones: np.ndarray) -> ArrayGram:
    def evaluate(values: Values) -> tuple[np.ndarray, Back]:
        K = values(kernel.variance) * ones
        return K, lambda upstream: [(kernel.variance, np.asarray(np.vdot(upstream, ones)))]

    return evaluate


def _linear(kernel: Linear, X: np.ndarray) -> ArrayGram:
    def evaluate(values: Values) -> tuple[np.ndarray, Back]:
        variance = values(kernel.variance)

        def back(upstream: np.ndarray) -> Gradients:
            found = np.sum(X * (upstream @ X), axis=0)
            return [(kernel.variance, found if variance.ndim else np.sum(found))]

        return (X * variance) @ X.T, back

    return evaluate


def _sum(parts: list[ArrayGram]) -> ArrayGram:
    def evaluate(values: Values) -> tuple[np.ndarray, Back]:
        grams, backs = zip(*(part(values) for part in parts))
        return sum(grams[1:], grams[0]), lambda upstream: [
            one for back in backs for one in back(upstream)
        ]

    return evaluate


def _product(parts: list[ArrayGram]) -> ArrayGram:
    def evaluate(values: Values) -> tuple[np.ndarray, Back]:
        grams, backs = zip(*(part(values) for part in parts))

        def back(upstream: np.ndarray) -> Gradients:
            found: Gradients = []
            for place, one in enumerate(backs):
                others = [gram for other, gram in enumerate(grams) if other != place]
                found += one(np.prod(others, axis=0) * upstream)
            return found

        return np.prod(grams, axis=0), back

    return evaluate
