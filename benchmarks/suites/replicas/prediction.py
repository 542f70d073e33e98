"""A plain model of the time of a step on many workers, from what a few of them have measured.

A worker with n rows computes for a + b n seconds: a is what every worker does for itself, mostly
factorisations of M x M matrices, and b is the work on a row. Then R workers in a ring add up V
bytes: each sends 2 (R - 1) / R V, in 2 (R - 1) hops for each message.

    T(R, n) = a + b n + 8 * 2 (R - 1) / R * V / bandwidth + 2 (R - 1) * messages * latency

The efficiency is the share of R-fold speed that R workers reach on a batch of R n rows, T(1, R n) /
(R T(R, n))."""

from __future__ import annotations

__all__ = ["Cost", "Network", "efficiency", "fitted", "least_rows", "step_seconds"]

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Network(NamedTuple):
    """What connects the workers."""

    gigabits: float
    """a second, from each worker to the next"""
    latency: float = 50e-6
    """seconds of a hop"""


class Cost(NamedTuple):
    """What a step costs."""

    fixed: float
    """a, seconds"""
    per_row: float
    """b, seconds"""
    size: float
    """V, bytes"""
    messages: int


def fitted(rows: Sequence[float], seconds: Sequence[float], size: float, messages: int) -> Cost:
    """The cost whose seconds have the least squared relative error, with a and b not below zero."""
    n, T = np.asarray(rows, float), np.asarray(seconds, float)
    design = np.stack([1.0 / T, n / T], axis=1)
    a, b = np.linalg.lstsq(design, np.ones_like(T), rcond=None)[0]
    if a < 0.0:
        a, b = 0.0, float(np.sum(n / T) / np.sum((n / T) ** 2))
    return Cost(float(a), float(b), size, messages)


def step_seconds(cost: Cost, rows: float, workers: int, network: Network) -> float:
    """T(R, n)."""
    hops = 2.0 * (workers - 1)
    sent = 8.0 * hops / workers * cost.size / (1e9 * network.gigabits)
    return cost.fixed + cost.per_row * rows + sent + hops * cost.messages * network.latency


def efficiency(cost: Cost, rows: float, workers: int, network: Network) -> float:
    """The share of R-fold speed, for n rows a worker."""
    return step_seconds(cost, workers * rows, 1, network) / (
        workers * step_seconds(cost, rows, workers, network)
    )


def least_rows(cost: Cost, workers: int, network: Network, share: float = 0.5) -> float:
    """The rows a worker below which the efficiency is less than `share`; 0 where it never is.

    With c(R) for the network, (a / R + b n) / (a + b n + c) = share has one solution in n.
    """
    network_seconds = step_seconds(cost, 0.0, workers, network) - cost.fixed
    missing = share * (cost.fixed + network_seconds) - cost.fixed / workers
    return max(0.0, missing / (cost.per_row * (1.0 - share)))
