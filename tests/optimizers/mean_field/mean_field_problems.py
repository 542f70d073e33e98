"""Small factor graphs with known answers."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from gpflow_decoupled.distributions.families import Beta, Categorical, Dirichlet, Gamma, Gaussian
from gpflow_decoupled.distributions.family import Belief
from gpflow_decoupled.models import Factor, FactorGraph, SampledFactor, prior_factor

COUNTS = np.random.default_rng(0).poisson(2.5, 12)
LOG_RATE = (0.3, 0.05)
"""Mean and variance of the log rate under the log-normal prior: narrow, so that full steps leave
the domain.
"""
TRIALS, SUCCESSES, LOG_ODDS = 10, 3, (0.5, 0.8)
REGRESSION_PRIOR = (0.7, 1.5, 0.4)
"""Weight precision, shape and rate."""


def poisson_terms(z: Belief, y: tf.Tensor) -> tf.Tensor:
    log_rate, rate = z.expectation
    return tf.reduce_sum(y * log_rate - rate - tf.math.lgamma(y + 1.0))


def gamma_poisson() -> FactorGraph:
    factors = {
        "prior": prior_factor("rate", Gamma().belief(2.0, 0.5)),
        "counts": Factor("rate", poisson_terms, data=COUNTS),
    }
    return FactorGraph({"rate": Gamma().belief(1.0, 1.0)}, factors)


def log_normal(z: Belief) -> tf.Tensor:
    """E log p(z): the mean of log z as it stands, its variance by lambda."""
    center, variance = LOG_RATE
    shape = z.natural[0] + 1.0
    spread = tf.square(z.expectation[0] - center) + tf.math.polygamma(tf.ones_like(shape), shape)
    return -z.expectation[0] - 0.5 * spread / variance - 0.5 * math.log(2.0 * math.pi * variance)


def log_normal_density(z: tf.Tensor) -> tf.Tensor:
    center, variance = LOG_RATE
    residual = tf.square(tf.math.log(z) - center)
    return -tf.math.log(z) - 0.5 * residual / variance - 0.5 * math.log(2.0 * math.pi * variance)


def log_normal_rate(samples: int | None = None) -> FactorGraph:
    prior = (
        Factor("rate", log_normal)
        if samples is None
        else SampledFactor("rate", log_normal_density, samples=samples)
    )
    factors = {"prior": prior, "counts": Factor("rate", poisson_terms, data=COUNTS)}
    return FactorGraph({"rate": Gamma().belief(1.0, 1.0)}, factors)


def logit_normal_odds() -> FactorGraph:
    center, variance = LOG_ODDS
    constant = -0.5 * math.log(2.0 * math.pi * variance)

    def prior(z: Belief) -> tf.Tensor:
        e_1, e_0 = z.expectation
        c = tf.stack(z.natural) + 1.0
        spread = tf.square(e_1 - e_0 - center) + tf.reduce_sum(
            tf.math.polygamma(tf.ones_like(c), c)
        )
        return -e_1 - e_0 - 0.5 * spread / variance + constant

    def data(z: Belief) -> tf.Tensor:
        choose = math.log(math.comb(TRIALS, SUCCESSES))
        return SUCCESSES * z.expectation[0] + (TRIALS - SUCCESSES) * z.expectation[1] + choose

    return FactorGraph(
        {"odds": Beta().belief(1.0, 1.0)},
        {"prior": Factor("odds", prior), "data": Factor("odds", data)},
    )


def normal_gamma(x: np.ndarray, center: float, scale: float, a: float, b: float) -> FactorGraph:
    """Unknown mean and precision, of which the prior of the mean depends on the precision."""

    def normal(mean: Belief, precision: Belief, weight: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        m, second = mean.expectation[0][0], mean.expectation[1][0, 0]
        log_t, t = precision.expectation
        log_weight = tf.math.log(weight / (2.0 * math.pi))
        return tf.reduce_sum(
            0.5 * (log_t + log_weight) - 0.5 * weight * t * (tf.square(y) - 2.0 * y * m + second)
        )

    one, prior_weight, prior_point = (
        np.ones_like(x),
        tf.constant(scale, tf.float64),
        tf.constant(center, tf.float64),
    )
    factors = {
        "prior of the mean": Factor(
            ("mean", "precision"), lambda m, t: normal(m, t, prior_weight, prior_point)
        ),
        "prior of the precision": prior_factor("precision", Gamma().belief(a, b)),
        "data": Factor(("mean", "precision"), normal, data=(one, x)),
    }
    return FactorGraph(
        {"mean": Gaussian().belief([0.0], [[1.0]]), "precision": Gamma().belief(1.0, 1.0)}, factors
    )


COUPLING, PULL = 0.6, (1.0, -2.0, 0.5)


def coupled_gaussians() -> FactorGraph:
    """Three numbers with unit precision and strong positive couplings: parallel full steps
    overshoot.
    """

    def joint(*q: Belief) -> tf.Tensor:
        means = [one.expectation[0][0] for one in q]
        squares = tf.add_n([one.expectation[1][0, 0] for one in q])
        pairs = means[0] * means[1] + means[0] * means[2] + means[1] * means[2]
        return -0.5 * squares - COUPLING * pairs + tf.add_n([b * m for b, m in zip(PULL, means)])

    names = ("first", "second", "third")
    return FactorGraph(
        {name: Gaussian().belief([0.0], [[1.0]]) for name in names}, {"joint": Factor(names, joint)}
    )


def regression_data(N: int = 24, p: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, p))
    return X, X @ rng.normal(size=p) + 0.5 * rng.normal(size=N)


def regression(X: np.ndarray, y: np.ndarray) -> FactorGraph:
    """Linear regression with unknown noise."""
    p, (weight_precision, a, b) = X.shape[1], REGRESSION_PRIOR

    def likelihood(w: Belief, t: Belief, X: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        (m, second), (log_t, mean_t) = w.expectation, t.expectation
        rest = (
            tf.square(y) - 2.0 * y * tf.linalg.matvec(X, m) + tf.einsum("ni,ij,nj->n", X, second, X)
        )
        return tf.reduce_sum(0.5 * (log_t - math.log(2.0 * math.pi)) - 0.5 * mean_t * rest)

    w_prior = Gaussian().belief(np.zeros(p), np.eye(p) / weight_precision)
    factors = {
        "weights": prior_factor("w", w_prior),
        "noise": prior_factor("t", Gamma().belief(a, b)),
        "data": Factor(("w", "t"), likelihood, data=(X, y)),
    }
    return FactorGraph(
        {"w": Gaussian().belief(np.zeros(p), np.eye(p)), "t": Gamma().belief(1.0, 1.0)}, factors
    )


def mixture_data(N: int = 60) -> np.ndarray:
    rng = np.random.default_rng(2)
    return np.where(rng.uniform(size=N) < 0.3, rng.normal(-2.0, 0.7, N), rng.normal(1.5, 0.7, N))


def mixture(x: np.ndarray, K: int = 2) -> FactorGraph:
    """A mixture of normals of known width: assignments [N], means [K], weights."""

    def normal(z: Belief, means: Belief, x: tf.Tensor) -> tf.Tensor:
        m, second = means.expectation[0][:, 0], means.expectation[1][:, 0, 0]
        square = tf.square(x)[:, None] - 2.0 * x[:, None] * m + second
        return tf.reduce_sum(z.expectation[0] * (-square - 0.5 * math.log(0.5 * 2.0 * math.pi)))

    def choice(z: Belief, weights: Belief) -> tf.Tensor:
        return tf.reduce_sum(z.expectation[0] * weights.expectation[0])

    start = np.linspace(-1.0, 1.0, K)[:, None]
    unit = np.ones((K, 1, 1))
    variables = {
        "z": Categorical().belief(np.zeros((len(x), K))),
        "means": Gaussian().belief(start, unit),
        "weights": Dirichlet().belief(np.ones(K)),
    }
    factors = {
        "data": Factor(("z", "means"), normal, data=x, local="z"),
        "choice": Factor(("z", "weights"), choice, local="z"),
        "prior of means": prior_factor("means", Gaussian().belief(np.zeros((K, 1)), 4.0 * unit)),
        "prior of weights": prior_factor("weights", Dirichlet().belief(np.ones(K))),
    }
    return FactorGraph(variables, factors)
