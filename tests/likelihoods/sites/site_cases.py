"""Likelihoods with labels, and the losses of the numpy reference that belong to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl

from gpflow_decoupled import likelihoods as own
from tests.reference import lcl_sites as ref

BINARY = np.array([[0.0], [1.0], [1.0], [0.0], [1.0], [0.0]])
COUNTS = np.array([[0.0], [1.0], [3.0], [7.0], [2.0], [0.0]])
REAL = np.array([[-1.2], [0.1], [0.7], [3.0], [-0.4], [0.0]])
POSITIVE = np.array([[0.2], [1.0], [0.7], [3.0], [0.01], [8.0]])
H = np.array([[0.4], [-1.0], [0.0], [1.7], [-3.0], [2.2]])
SIGMA = np.array([[0.3], [0.9], [1.2], [0.5], [2.0], [0.05]])


class Case(NamedTuple):
    """One kind of site."""

    make: Callable[[], gl.Likelihood]
    Y: np.ndarray
    loss: Callable[[float], ref.Loss]
    """of one label"""
    nodes: int | None = None
    """of the Gauss-Hermite rule that the loss is defined by, or None for exact integrals"""


CASES = {
    "Gaussian": Case(lambda: gl.Gaussian(0.3), REAL, lambda y: ref.gaussian(y, 0.3)),
    "Gaussian by scale": Case(
        lambda: gl.Gaussian(scale=0.6), REAL, lambda y: ref.gaussian(y, 0.36)
    ),
    "Poisson": Case(lambda: gl.Poisson(binsize=0.4), COUNTS, lambda y: ref.poisson(y, 0.4)),
    "Exponential": Case(gl.Exponential, POSITIVE, ref.exponential),
    "Gamma": Case(lambda: gl.Gamma(shape=2.5), POSITIVE, lambda y: ref.gamma(y, 2.5)),
    "Laplace": Case(lambda: own.Laplace(0.7), REAL, lambda y: ref.laplace(y, 0.7)),
    "hinge": Case(own.Hinge, BINARY, ref.hinge),
    "logit": Case(own.BernoulliLogit, BINARY, ref.bernoulli_logit),
    "logit of GPflow": Case(lambda: gl.Bernoulli(invlink=tf.sigmoid), BINARY, ref.bernoulli_logit),
    "probit": Case(own.BernoulliProbit, BINARY, ref.bernoulli_probit),
    "probit of GPflow": Case(gl.Bernoulli, BINARY, lambda y: ref.bernoulli_probit(y, 1e-3)),
    "negative binomial": Case(
        lambda: own.NegativeBinomial(2.5), COUNTS, lambda y: ref.negative_binomial(y, 2.5)
    ),
    "Student-t": Case(lambda: gl.StudentT(0.6, 4.0), REAL, lambda y: ref.student_t(y, 4.0, 0.6)),
}
CONCAVE = [name for name in CASES if name not in ("probit of GPflow", "Student-t")]
CLOSED = ["Gaussian", "Gaussian by scale", "Poisson", "Exponential", "Gamma", "Laplace", "hinge"]


def reference(case: Case, y: float, h: float, sigma: float, kinks: tuple[float, ...] = ()) -> float:
    """f(h, sigma) as the loss defines it."""
    loss = case.loss(y)
    return (
        ref.integral(loss, h, sigma, (y, 2.0 * y - 1.0, *kinks))
        if case.nodes is None
        else ref.hermite(loss, h, sigma, case.nodes)
    )


def built(name: str) -> own.SiteLoss:
    """The site loss of a case."""
    return own.site_loss(CASES[name].make(), CASES[name].Y)


def points(*scales: tuple[float, float]) -> tuple[tf.Tensor, tf.Tensor]:
    """h and sigma [6, L], a column for each pair of factors."""
    h = np.concatenate([factor * H for factor, _ in scales], axis=1)
    sigma = np.concatenate([factor * SIGMA for _, factor in scales], axis=1)
    return tf.constant(h), tf.constant(sigma)
