"""Marginals of f at the data against a long run of NUTS, and the log evidence against importance
sampling.
"""

from __future__ import annotations

__all__ = ["PART"]

import argparse
from collections.abc import Callable
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from scipy.special import logsumexp

from gpflow_decoupled.likelihoods import BernoulliLogit
from gpflow_decoupled.models import CVIGP, LCLGP, NNGP
from gpflow_decoupled.optimizers import (
    ConjugateComputation,
    ExpectationPropagation,
    LaplaceApproximation,
    LinearlyConstrainedLagrangian,
    OpperArchambeau,
    SiteSweeps,
)

from ...harness.machine import clock
from ...harness.nuts import nuts_draws
from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part
from .problems import coal, labels

_Model = CVIGP | LCLGP | NNGP
_JITTER = 1e-6
_NEIGHBOURS = {f"{count} neighbours": count for count in (10, 20, 40)}
_IMPORTANCE = 100_000
"""Draws of q(f) whose weights estimate the evidence."""


class Marginals(NamedTuple):
    """One method on one problem, beside the truth."""

    problem: str
    num_data: int
    method: str
    seconds: float
    """with compilation"""
    elbo: float
    estimate: float | None
    """of the log evidence, nats"""
    mean_errors: list[float]
    """of each f_n, in standard deviations of the truth"""
    deviation_ratios: list[float]
    """of each f_n, to that of the truth"""
    evidence: float
    """the log evidence by importance sampling, nats"""
    evidence_error: float
    """its standard error, nats"""
    worst_r_hat: float
    least_effective: float
    nuts_seconds: float


class _Setting(NamedTuple):
    """A model's parts, and the log density [...] of its labels given f [..., N]."""

    name: str
    X: np.ndarray
    Y: np.ndarray
    kernel: gpflow.kernels.Kernel
    likelihood: gpflow.likelihoods.Likelihood
    log_labels: Callable[[tf.Tensor], tf.Tensor]
    mean: float = 0.0

    def model(self, kind: type[_Model], **options: int) -> _Model:
        """A model of its own for each method."""
        mean = gpflow.functions.Constant(self.mean)
        return kind((self.X, self.Y), self.kernel, self.likelihood, mean_function=mean, **options)


def _settings(options: argparse.Namespace, name: str) -> _Setting:
    if name == "coal":
        X, counts = coal(options)
        rate = float(np.log(counts.mean()))

        def of_counts(f: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(
                tfp.distributions.Poisson(log_rate=f).log_prob(counts[:, 0]), axis=-1
            )

        kernel = gpflow.kernels.Matern32(1.0, lengthscales=5.0)
        return _Setting("coal", X, counts, kernel, gpflow.likelihoods.Poisson(), of_counts, rate)
    problem = labels(options, options.gp_data)

    def of_labels(f: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(
            tfp.distributions.Bernoulli(logits=f).log_prob(problem.Y[:, 0]), axis=-1
        )

    return _Setting(
        problem.name, problem.X, problem.Y, problem.kernel(), BernoulliLogit(), of_labels
    )


def _pieces(options: argparse.Namespace) -> list[tuple]:
    """Labels and counts; without a data folder, labels alone."""
    return [("labels",), ("coal",)] if options.data else [("labels",)]


def _measure(options: argparse.Namespace, name: str) -> list[Marginals]:
    setting, methods = (
        _settings(options, name),
        ("CVI", "LCL", "Opper", "EP", "EP, power 1/2", "Laplace", *_NEIGHBOURS),
    )
    began = clock()
    f = _nuts(setting, options)
    nuts_seconds = clock() - began
    r_hat = float(np.max(tfp.mcmc.potential_scale_reduction(tf.constant(f), split_chains=True)))
    effective = float(np.min(tf.reduce_sum(tfp.mcmc.effective_sample_size(tf.constant(f)), axis=0)))
    mean, deviation = f.mean((0, 1)), f.std((0, 1))
    fits = {method: _fitted(setting, method) for method in methods}
    truth = _importance(setting, fits["EP"].model, options.seed)
    rows = []
    for method, (seconds, model, elbo, estimate) in fits.items():
        m, v = (np.asarray(part)[:, 0] for part in model.predict_f(setting.X))
        errors, ratios = (m - mean) / deviation, np.sqrt(v) / deviation
        shown = errors.tolist(), ratios.tolist()
        rows.append(
            Marginals(
                setting.name,
                len(mean),
                method,
                seconds,
                elbo,
                estimate,
                *shown,
                *truth,
                r_hat,
                effective,
                nuts_seconds,
            )
        )
    return rows


class _Fitted(NamedTuple):
    seconds: float
    model: _Model
    elbo: float
    estimate: float | None


def _fitted(setting: _Setting, method: str) -> _Fitted:
    began = clock()
    if method in _NEIGHBOURS:
        model = setting.model(NNGP, num_neighbours=_NEIGHBOURS[method])
        SiteSweeps(model).run()
        return _Fitted(
            clock() - began, model, float(model.maximum_log_likelihood_objective()), None
        )
    if method in ("LCL", "Opper"):
        model = setting.model(LCLGP)
        (
            LinearlyConstrainedLagrangian() if method == "LCL" else OpperArchambeau(tolerance=1e-9)
        ).run(model)
        return _Fitted(clock() - began, model, float(model.elbo()), None)
    model = setting.model(CVIGP)
    if method == "CVI":
        result = ConjugateComputation().run(model)
        return _Fitted(clock() - began, model, result.elbo, None)
    rule = (
        LaplaceApproximation()
        if method == "Laplace"
        else ExpectationPropagation(1.0 if method == "EP" else 0.5)
    )
    found = rule.run(model)
    return _Fitted(clock() - began, model, found.elbo, found.evidence_estimate)


def _nuts(setting: _Setting, options: argparse.Namespace) -> np.ndarray:
    """Draws of f [draws, C, N], from chains on v of f = mean + L v."""
    K = setting.kernel(setting.X).numpy() + _JITTER * np.eye(len(setting.X))
    root = tf.constant(np.linalg.cholesky(K))

    def values(v: tf.Tensor) -> tf.Tensor:
        return setting.mean + tf.matmul(v, root, transpose_b=True)

    def log_joint(v: tf.Tensor) -> tf.Tensor:
        return setting.log_labels(values(v)) - 0.5 * tf.reduce_sum(tf.square(v), axis=-1)

    start = tf.constant(
        np.random.default_rng(options.seed).standard_normal((options.chains, len(K)))
    )
    v = nuts_draws(
        log_joint, start, options.draws, options.draws // 3, options.seed, not options.no_jit
    )
    return (
        values(tf.reshape(v, [-1, len(K)])).numpy().reshape(options.draws, options.chains, len(K))
    )


def _importance(setting: _Setting, model: CVIGP, seed: int) -> tuple[float, float]:
    """The log evidence and its standard error in nats, by draws of the model's q(f), which is the
    prior times its sites.

    The weight of a draw is the density of the labels over that of the sites, times the evidence of
    the sites."""
    nu, tau = (site.numpy()[:, 0] for site in (model.basis.nu, model.basis.tau))
    mean, cov = (np.asarray(part) for part in model.predict_f(setting.X, full_cov=True))
    root = np.linalg.cholesky(cov[0] + 1e-10 * np.eye(len(nu)))
    draws = np.random.default_rng(seed).standard_normal((_IMPORTANCE, len(nu)))
    u = mean[:, 0] - setting.mean + draws @ root.T
    log_sites = u @ nu - 0.5 * np.square(u) @ tau
    scale = float(model.basis.log_partition(model.basis.factor(model.kernel)))
    log_weights = setting.log_labels(tf.constant(setting.mean + u)).numpy() - log_sites + scale
    value = float(logsumexp(log_weights) - np.log(_IMPORTANCE))
    return value, float(np.std(np.exp(log_weights - value)) / np.sqrt(_IMPORTANCE))


def _section(rows: list[Marginals], options: argparse.Namespace) -> Section:
    """A table per problem, and two panels: errors of means and ratios of deviations, sorted."""
    header = [
        "method",
        "error of means: mean",
        "largest",
        "ratio of deviations: mean",
        "least",
        "largest",
        "ELBO",
    ]
    header += ["estimate of log evidence", "less the truth", "s with compilation"]
    tables, panels = [], []
    for name in dict.fromkeys(row.problem for row in rows):
        mine = [row for row in rows if row.problem == name]
        one = mine[0]
        title = (
            f"{name}, N = {one.num_data}: log evidence {one.evidence:.4f}"
            f" ({one.evidence_error:.4f}) nats; NUTS with {options.chains} x {options.draws} draws,"
            f" R-hat {one.worst_r_hat:.4f}, at least {one.least_effective:.0f} effective,"
            f" {one.nuts_seconds:.0f} s"
        )
        tables.append(Table(title, header, [_row(row) for row in mine]))
        places = range(1, one.num_data + 1)
        errors = [
            Series(row.method, places, np.sort(np.abs(row.mean_errors)).tolist()) for row in mine
        ]
        ratios = [
            Series(row.method, places, np.sort(row.deviation_ratios).tolist()) for row in mine
        ]
        panels.append(
            Panel(
                f"{name}, N = {one.num_data}",
                "sites, sorted",
                "error of means (deviations)",
                errors,
                "y",
            )
        )
        panels.append(Panel(name, "sites, sorted", "deviation, over that of NUTS", ratios))
    note = (
        "Errors of means are in standard deviations of the truth, by NUTS. The log evidence is by"
        " importance sampling "
    )
    note += f"with {_IMPORTANCE:,} draws of the q(f) of EP, its standard error in brackets."
    figure = Figure(
        "rivals_marginals", "Marginals of f at the data beside those of NUTS.", panels, columns=2
    )
    return Section(tables, [figure], [note])


def _row(row: Marginals) -> list[str]:
    errors, ratios = np.abs(row.mean_errors), row.deviation_ratios
    return [
        row.method,
        f"{np.mean(errors):.4f}",
        f"{np.max(errors):.4f}",
        f"{np.mean(ratios):.4f}",
        f"{np.min(ratios):.4f}",
        f"{np.max(ratios):.4f}",
        f"{row.elbo:.4f}",
        "-" if row.estimate is None else f"{row.estimate:.4f}",
        f"{(row.elbo if row.estimate is None else row.estimate) - row.evidence:+.4f}",
        f"{row.seconds:.1f}",
    ]


PART = Part(Marginals, _pieces, _measure, _section)
