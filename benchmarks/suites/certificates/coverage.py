"""Certificates on many resampled data sets of a problem whose risk is known, and how often they
fail.
"""

from __future__ import annotations

__all__ = ["BOUNDS", "PART"]

import argparse
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from scipy.stats import norm

from gpflow_decoupled.certificates import PacBayesCertificate, pac_bayes_certificate
from gpflow_decoupled.likelihoods import BernoulliLogit
from gpflow_decoupled.models import SparseCVIGP
from gpflow_decoupled.optimizers import NaturalGradient

from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part

BOUNDS = {"seeger": "Seeger", "maurer": "Maurer", "pinsker": "Pinsker", "mcallester": "McAllester"}
"""Field of a certificate -> name of its bound."""
_INPUTS = np.linspace(-2.0, 2.0, 9)[:, None]
_PROBABILITY = 1.0 / (1.0 + np.exp(-4.0 * np.sin(1.5 * _INPUTS[:, 0])))
"""Probability of label 1 at each of the inputs."""
_COMPILED = 10
"""Below so many data sets, compilation takes longer than it saves."""


class Coverage(NamedTuple):
    """Means over data sets of n examples."""

    n: int
    risk: float
    """true Gibbs risk"""
    sample: float
    """Gibbs error on the sample"""
    seeger: float
    maurer: float
    pinsker: float
    mcallester: float
    seeger_violated: float
    """share of the data sets on which the bound is below the risk"""
    maurer_violated: float
    pinsker_violated: float
    mcallester_violated: float


def _measure(options: argparse.Namespace, n: int) -> list[Coverage]:
    """An example is one of nine inputs and a label of its probability."""
    certificates, risks = _resampled(n, options)
    found = {"n": n, "risk": float(np.mean(risks))}
    found["sample"] = float(np.mean([one.gibbs_error for one in certificates]))
    for name in BOUNDS:
        bounds = np.array([getattr(one, name) for one in certificates])
        found[name], found[f"{name}_violated"] = (
            float(np.mean(bounds)),
            float(np.mean(bounds < risks)),
        )
    return [Coverage(**found)]


def _resampled(n: int, options: argparse.Namespace) -> tuple[list[PacBayesCertificate], np.ndarray]:
    """Certificates and true Gibbs risks of `options.sets` data sets of n examples; one model serves
    all of them.
    """
    rng = np.random.default_rng(options.seed)
    model = SparseCVIGP(
        gpflow.kernels.SquaredExponential(4.0, 1.0), BernoulliLogit(), _INPUTS, num_data=n
    )
    rule, prior = NaturalGradient(gamma=1.0), [p.numpy() for p in model.basis.gaussian_parameters()]

    def train(X: tf.Tensor, Y: tf.Tensor) -> None:
        for _ in range(6):
            rule.minimize(model, (X, Y))

    if options.sets > _COMPILED:
        train = tf.function(train, autograph=False)

    certificates, risks = [], []
    for _ in range(options.sets):
        places = rng.integers(0, len(_INPUTS), n)
        data = _INPUTS[places], (rng.uniform(size=n) < _PROBABILITY[places]).astype(float)[:, None]
        for parameter, value in zip(model.basis.gaussian_parameters(), prior):
            parameter.assign(value)
        train(*map(tf.constant, data))
        certificates.append(
            pac_bayes_certificate(model, data, options.delta, hyperparameters="fixed")
        )
        mean, variance = (part.numpy()[:, 0] for part in model.predict_f(_INPUTS))
        wrong = norm.cdf(0.0, mean, np.sqrt(variance))  # probability of an error for label 1
        risks.append(np.mean(_PROBABILITY * wrong + (1.0 - _PROBABILITY) * (1.0 - wrong)))
    return certificates, np.array(risks)


def _section(rows: list[Coverage], options: argparse.Namespace) -> Section:
    """Mean bounds by sample size, and how often they are violated."""
    lines = []
    for row in rows:
        means = [
            f"{getattr(row, name):.3f} ({100 * getattr(row, f'{name}_violated'):.1f} %)"
            for name in BOUNDS
        ]
        lines.append([str(row.n), f"{row.risk:.4f}", f"{row.sample:.4f}", *means])
    header = ("n", "Gibbs risk", "Gibbs error, sample", *(f"{name} (violated)" for name in BOUNDS))
    title = f"{options.sets} resampled data sets: means, and how often a bound is violated"
    sizes = [row.n for row in rows]
    labels = {"risk": "Gibbs risk", **BOUNDS}
    series = [
        Series(label, sizes, [getattr(row, name) for row in rows]) for name, label in labels.items()
    ]
    panel = Panel("resampled data", "n", "mean bound", series, "x")
    figure = Figure(
        "certificates_coverage", "Mean bounds and risks of resampled data sets.", [panel]
    )
    return Section([Table(title, header, lines)], [figure], [f"delta = {options.delta:g}."])


PART = Part(Coverage, lambda options: [(size,) for size in options.sizes], _measure, _section)
