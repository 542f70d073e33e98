"""PAC-Bayes certificates of GP classifiers beside their true held-out errors, and how often a certificate fails.

Part coverage resamples data sets of a problem with known risk; part errors has real data, priors fixed beforehand, chosen by
certificate from a grid, learned on a split of the data, or (which certifies nothing) on the same data.
"""

from __future__ import annotations

__all__ = ["PARTS", "add_arguments", "run"]

import argparse
import warnings
from collections.abc import Callable
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from scipy.stats import norm

import gpflow_decoupled as gd
from gpflow_decoupled.certificates import (
    CertifiedSelection,
    classifier_errors,
    pac_bayes_certificate,
    select_by_certificate,
    split_for_certificate,
)
from gpflow_decoupled.likelihoods import BernoulliLogit
from gpflow_decoupled.models import CVIGP, ODVGP, SparseCVIGP
from gpflow_decoupled.optimizers import ConjugateComputation, NaturalGradient, sweep

from .full_gp_methods import TASKS, make_problem
from .journal import Journal, setting_of
from .report import Figure, Panel, Report, Series, Table, write

PARTS = ("coverage", "errors")
BOUNDS = ("seeger", "maurer", "pinsker", "mcallester")
VARIANCES = (1.0, 10.0, 100.0)
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Lengthscales of the grid, times that of the fixed prior."""
_INPUTS = np.linspace(-2.0, 2.0, 9)[:, None]
_PROBABILITY = 1.0 / (1.0 + np.exp(-4.0 * np.sin(1.5 * _INPUTS[:, 0])))
_SPARSE, _MEAN_POINTS = 100, 200
_COMPILED = 10
"""Data sets below which compilation takes longer than it saves."""
ROWS = ("fixed", "sparse", "orthogonal", "split", "same-data")
"""Of the part errors, beside the grid."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument(
        "--tasks", nargs="+", choices=list(TASKS), help="default: USPS with --data, and the embedded breast cancer"
    )
    parser.add_argument("--num-data", type=int, help="at most so many rows of a task")
    parser.add_argument(
        "--rows", nargs="*", default=list(ROWS), choices=list(ROWS), help="of the part errors, beside the grid"
    )
    parser.add_argument("--delta", type=float, default=0.05)
    parser.add_argument("--sets", type=int, default=200, help="resampled data sets of the part coverage")
    parser.add_argument("--sizes", nargs="+", type=int, default=[60, 250, 1000], help="of resampled data sets")
    parser.add_argument(
        "--settings", type=int, default=len(VARIANCES) * len(SCALES), help="at most so many of the grid"
    )
    parser.add_argument("--steps", type=int, default=100, help="where hyperparameters are learned")
    parser.set_defaults(lengthscale=None, variance=10.0, exact=True)


def run(options: argparse.Namespace, command: str, folder: Path) -> list[dict[str, Any]]:
    """Run the parts and write the report: coverage by sample size, errors by task."""
    tasks = options.tasks or [name for name in ("usps35", "cancer") if options.data or name == "cancer"]
    pieces = {"coverage": options.sizes, "errors": tasks}
    found = Journal(folder, "certificates", setting_of(options, "parts", "tasks", "sizes"), options.resume).collect(
        [(part, which) for part in options.parts for which in pieces[part]],
        lambda part, which: _MEASURES[part](which, options),
        lambda found: _write([row for rows in found for row in rows], options, command, folder),
    )
    return [row for rows in found for row in rows]


def _write(rows: list[dict[str, Any]], options: argparse.Namespace, command: str, folder: Path) -> None:
    notes = [
        f"delta = {options.delta:g}; a bound of the grid is at delta / J. Logit, expectations exact. A fifth is held out.",
        "Fixed: variance 10, lengthscale the root of the number of columns. Pixels are from 0 or -1 to 1; other inputs have "
        "the scale of the held-out rows, since that of the sample would be in the prior.",
        "Split: half of the training rows for the hyperparameters, the other half for posterior and certificate.",
        f"Sparse: {_SPARSE} inducing inputs; orthogonal: {_MEAN_POINTS} mean points more. Both under the grid's best prior.",
    ]
    groups = {part: [row for row in rows if row["part"] == part] for part in ("coverage", "errors", "grid")}
    tables, panels = [], []
    if groups["coverage"]:
        tables.append(_coverage_table(groups["coverage"], options.sets))
        panels.append(_coverage_panel(groups["coverage"]))
    if groups["errors"]:
        tables.append(_errors_table(groups["errors"]))
        panels += [panel for grid in groups["grid"] for panel in _panels(grid)]
    figures = [Figure("certificates", "Dashed: held-out Gibbs error.", panels, columns=3)]
    data = [row for row in rows if row["part"] != "grid"]
    write(folder, Report("certificates", "PAC-Bayes certificates", command, data, tables, figures, notes))


def _coverage(n: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """An example is one of nine inputs and a label of its probability; one compiled model for each sample size."""
    certificates, risks = _resampled(n, options)
    row: dict[str, Any] = {"part": "coverage", "n": n, "risk": float(np.mean(risks))}
    row["sample"] = float(np.mean([one.gibbs_error for one in certificates]))
    for name in BOUNDS:
        bounds = np.array([getattr(one, name) for one in certificates])
        row[name], row[f"{name}_violated"] = float(np.mean(bounds)), float(np.mean(bounds < risks))
    return [row]


def _coverage_table(rows: list[dict[str, Any]], sets: int) -> Table:
    cells = []
    for row in rows:
        means = [f"{row[name]:.3f} ({100 * row[f'{name}_violated']:.1f} %)" for name in BOUNDS]
        cells.append([str(row["n"]), f"{row['risk']:.4f}", f"{row['sample']:.4f}", *means])
    header = ("n", "Gibbs risk", "Gibbs error, sample", *(f"{name} (violated)" for name in BOUNDS))
    return Table(f"{sets} resampled data sets: means, and how often a bound is violated", header, cells)


def _coverage_panel(rows: list[dict[str, Any]]) -> Panel:
    lines = {
        "risk": "Gibbs risk",
        "seeger": "Seeger",
        "maurer": "Maurer",
        "pinsker": "Pinsker",
        "mcallester": "McAllester",
    }
    sizes = [row["n"] for row in rows]
    series = [Series(label, sizes, [row[name] for row in rows]) for name, label in lines.items()]
    return Panel("resampled data", "n", "mean bound", series, "x")


def _resampled(n: int, options: argparse.Namespace) -> tuple[list, np.ndarray]:
    """Certificates and true Gibbs risks of `options.sets` data sets of n examples."""
    rng = np.random.default_rng(options.seed)
    model = SparseCVIGP(gpflow.kernels.SquaredExponential(4.0, 1.0), BernoulliLogit(), _INPUTS, num_data=n)
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
        certificates.append(pac_bayes_certificate(model, data, options.delta, hyperparameters="fixed"))
        mean, variance = (part.numpy()[:, 0] for part in model.predict_f(_INPUTS))
        wrong = norm.cdf(0.0, mean, np.sqrt(variance))  # for label 1
        risks.append(np.mean(_PROBABILITY * wrong + (1.0 - _PROBABILITY) * (1.0 - wrong)))
    return certificates, np.array(risks)


def _errors(task: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each way to come by a prior, and one with the whole grid."""
    problem = make_problem(task, options.num_data, options)
    test, data = split_for_certificate((problem.X, problem.Y), 0.2, options.seed)
    if TASKS[task].unit is None:  # statistics of the sample itself would be in the prior
        centre, spread = test[0].mean(0), test[0].std(0)
        test, data = (((X - centre) / spread, Y) for X, Y in (test, data))
    certified, chosen = _certified(data, test, options)
    rows = [
        {
            "part": "errors",
            "task": task,
            "prior": label,
            **asdict(certificate),
            "bayes_bound": certificate.bayes_bound,
            **_named(classifier_errors(model, test)),
        }
        for label, model, certificate in certified
    ]
    return [*rows, _grid(task, chosen)]


def _errors_table(rows: list[dict[str, Any]]) -> Table:
    cells = []
    for row in rows:
        rates = ["gibbs_error", *BOUNDS, "bayes_bound", *(f"held_out_{name}" for name in ("gibbs", "bayes", "voting"))]
        numbers = [str(row["n"]), f"{row['kl']:.1f}", *(f"{row[name]:.3f}" for name in rates)]
        cells.append([f"{row['task']}, {row['prior']}", *numbers])
    header = ("task, prior", "n", "KL, nats", "Gibbs, sample", *BOUNDS, "Bayes bound")
    header += ("held out: Gibbs", "Bayes", "voting")
    return Table("Certificates and held-out errors", header, cells)


def _named(errors: Any) -> dict[str, float]:
    return {f"held_out_{name}": value for name, value in errors._asdict().items()}


def _certified(data: tuple, test: tuple, options: argparse.Namespace) -> tuple[list[tuple], CertifiedSelection]:
    """(label, model, certificate) for each way to come by a prior, and for sparse posteriors under the best of the grid."""
    width, found = float(np.sqrt(data[0].shape[1])), []
    if "fixed" in options.rows:
        model = _full(data, 10.0, width)
        found.append(
            (
                f"fixed: {_prior(model)}",
                model,
                pac_bayes_certificate(model, data, options.delta, hyperparameters="fixed"),
            )
        )
    grid = [(v, scale * width) for v, scale in product(VARIANCES, SCALES)][: options.settings]
    chosen = select_by_certificate(lambda setting: _full(data, *setting), grid, data, options.delta, test=test)
    found.append((f"grid of {len(grid)}: {_prior(chosen.model)}", chosen.model, chosen.certificate))
    for label, build in (("sparse", _sparse), ("orthogonal", _orthogonal)):
        if label in options.rows:
            model = build(data, *chosen.settings[chosen.best], options)
            origin = {"hyperparameters": "fixed", "settings": len(grid)}
            found.append((f"the same, {label}", model, pac_bayes_certificate(model, data, options.delta, **origin)))
    learned = {"split": split_for_certificate(data, 0.5, options.seed), "same-data": (data, data)}
    found += [_learned(label, *learned[label], width, options) for label in learned if label in options.rows]
    return found, chosen


def _learned(label: str, first: tuple, data: tuple, width: float, options: argparse.Namespace) -> tuple:
    """Hyperparameters learned on the first data, posterior and certificate on the others."""
    learned = CVIGP(first, gpflow.kernels.SquaredExponential(10.0, width), BernoulliLogit())
    gd.fit(learned, steps=options.steps, progress=False)
    model = _full(data, *(float(one.numpy()) for one in (learned.kernel.variance, learned.kernel.lengthscales)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rows in common, which are meant here
        certificate = pac_bayes_certificate(model, data, options.delta, learned_on=first)
    return f"learned on {label}{'' if certificate.holds else ' (no bound)'}: {_prior(model)}", model, certificate


def _prior(model: CVIGP) -> str:
    kernel = model.kernel
    return f"variance {kernel.variance.numpy():.3g}, lengthscale {kernel.lengthscales.numpy():.3g}"


def _full(data: tuple, variance: float, lengthscale: float) -> CVIGP:
    model = CVIGP(data, gpflow.kernels.SquaredExponential(variance, lengthscale), BernoulliLogit())
    ConjugateComputation().run(model)
    return model


def _sparse(data: tuple, variance: float, lengthscale: float, options: argparse.Namespace) -> SparseCVIGP:
    kernel = gpflow.kernels.SquaredExponential(variance, lengthscale)
    model = SparseCVIGP(kernel, BernoulliLogit(), _points(data[0], _SPARSE, kernel, None, options))
    sweep(model, data)
    return model


def _orthogonal(data: tuple, variance: float, lengthscale: float, options: argparse.Namespace) -> ODVGP:
    kernel = gpflow.kernels.SquaredExponential(variance, lengthscale)
    beta = _points(data[0], _SPARSE, kernel, None, options)
    model = ODVGP(kernel, BernoulliLogit(), _points(data[0], _MEAN_POINTS, kernel, beta, options), beta)
    for part in (kernel, model.basis.beta, model.basis.gamma):
        gpflow.set_trainable(part, False)
    gd.fit(model, data, steps=30, batch_size=None, natural_gradient=0.9, mean_solver="newton", progress=False)
    return model


def _points(X: np.ndarray, num: int, kernel: Any, given: Any, options: argparse.Namespace) -> np.ndarray:
    return gd.inducing.select(X, min(num, len(X) // 3), kernel, given=given, seed=options.seed)


def _grid(task: str, chosen: CertifiedSelection) -> dict[str, Any]:
    """Bound, held-out Gibbs error and log evidence of each (variance, lengthscale)."""
    return {
        "part": "grid",
        "task": task,
        "settings": [list(setting) for setting in chosen.settings],
        "bound": [one.bound for one in chosen.certificates],
        "held_out": [one.gibbs for one in chosen.test_errors],
        "log_evidence": list(chosen.log_evidence),
    }


def _panels(grid: dict[str, Any]) -> list[Panel]:
    """Bound and held-out Gibbs error against the lengthscale, a colour a variance; and the log evidence."""
    rates, evidence = [], []
    for variance in dict.fromkeys(variance for variance, _ in grid["settings"]):
        mine = [place for place, setting in enumerate(grid["settings"]) if setting[0] == variance]
        x, label = [grid["settings"][place][1] for place in mine], f"variance {variance:g}"
        bound, held_out, log_evidence = (
            [grid[name][place] for place in mine] for name in ("bound", "held_out", "log_evidence")
        )
        rates += [Series(label, x, bound), Series(label, x, held_out, dashed=True)]
        evidence.append(Series(label, x, log_evidence))
    return [
        Panel(f"{grid['task']}: bound, held-out Gibbs error", "lengthscale", "error rate", rates, "x"),
        Panel(f"{grid['task']}: log evidence", "lengthscale", "ELBO, nats", evidence, "x"),
    ]


_MEASURES: dict[str, Callable[..., list[dict[str, Any]]]] = {"coverage": _coverage, "errors": _errors}
