"""How time and memory of the whole training step grow with one size at a time, beside GPflow's and
GPyTorch's `SVGP`.

Ours is the step of `fit` with its own minibatches. At one setting, the steps of all models are
timed in turn in one process; then each of them is taken in a process of its own, whose peak memory
is measured."""

from __future__ import annotations

__all__ = ["FACTORS", "MODELS", "PART", "Cost", "measure"]

import argparse
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_decoupled import bases, models

from ...harness.data import Data
from ...harness.measuring import interleave, peak_megabytes, slopes
from ...harness.pictures import Figure, Panel, Series
from ...harness.processes import in_a_process
from ...harness.report import Section, Table
from ...harness.runner import Part
from ...libraries.gpflow_svgp import gpflow_steps
from ...libraries.gpytorch_svgp import gpytorch_step
from ...libraries.models import Settings
from ...libraries.ours import fit_step
from ...libraries.training import missing

FACTORS = {
    "M_beta": (0.25, 0.5, 1, 2),
    "M_gamma": (0.25, 1, 4),
    "N": (0.1, 1, 10),
    "D": (0.25, 1, 4, 16),
    "L": (1, 2, 4, 8),
}
"""The size that varies, and the multiples of its base at which it is measured."""
_LABELS = {
    "M_beta": "inducing points M_beta",
    "M_gamma": "mean points M_gamma",
    "N": "rows N",
    "D": "inputs D",
    "L": "latent functions L",
}
_D, _L = 8, 1


class Sizes(NamedTuple):
    M_beta: int
    M_gamma: int
    N: int
    D: int
    L: int


class Cost(NamedTuple):
    """One model at one setting."""

    M_beta: int
    M_gamma: int
    N: int
    D: int
    L: int
    model: str
    ms: float
    """median over rounds"""
    ratio: float
    """median over rounds of GPflow's time over this one's"""
    step_mb: float
    """peak memory over what the process had before model and step were built; NaN where it is not
    measured
    """


def measure(options: argparse.Namespace, *numbers: int) -> list[Cost]:
    """Measure all models at one setting: times in turn here, then memory, each in a process of its
    own.
    """
    sizes, settings = Sizes(*numbers), Settings(batch_size=options.batch_size, seed=options.seed)
    labels = [
        label for label in _models_at(sizes, _base(options)) if label in (*options.models, _PEER)
    ]
    steps = {
        label: MODELS[label](sizes, options.subsample, settings, _data(sizes, settings))
        for label in labels
    }
    times = interleave(steps, options.rounds, options.seconds)
    costs = []
    for label in labels:
        ratio, megabytes = np.median(times[_PEER] / times[label]), math.nan
        if options.processes:
            megabytes = in_a_process(
                _megabytes, label, sizes, options.subsample, settings, options.steps
            )
        costs.append(Cost(*sizes, label, float(np.median(times[label])), float(ratio), megabytes))
    return costs


def _base(options: argparse.Namespace) -> Sizes:
    return Sizes(options.num_beta, options.num_gamma, options.num_data, _D, _L)


def _pieces(options: argparse.Namespace) -> list[tuple]:
    """The base, and every dimension at its multiples of the base."""
    base = _base(options)
    moved = [
        base._replace(**{name: max(1, round(factor * getattr(base, name)))})
        for name in options.dimensions
        for factor in FACTORS[name][: options.points]
    ]
    return list(dict.fromkeys(tuple(sizes) for sizes in (base, *moved)))


def _models_at(sizes: Sizes, base: Sizes) -> list[str]:
    """The models that are measured there.

    Whitening is measured only where the number of mean points varies, and GPyTorch only where it is
    installed and there is one latent."""
    left_out = set() if sizes._replace(M_gamma=base.M_gamma) == base else {"orthogonal-whitened"}
    if sizes.L > 1 or missing("gpytorch"):
        left_out.add("GPyTorch")
    return [label for label in MODELS if label not in left_out]


def _data(sizes: Sizes, settings: Settings) -> Data:
    """Random inputs; the outputs are waves in random directions, with noise."""
    rng = np.random.default_rng(settings.seed)
    X = rng.standard_normal([sizes.N, sizes.D])
    Y = np.sin(X @ rng.standard_normal([sizes.D, sizes.L])) + 0.1 * rng.standard_normal(
        [sizes.N, sizes.L]
    )
    return Data("random", X, Y, X[:1], Y[:1])


def _megabytes(label: str, sizes: Sizes, subsample: int, settings: Settings, steps: int) -> float:
    """Peak memory of some steps, less the peak with the data alone."""
    data = _data(sizes, settings)
    tf.linalg.cholesky(tf.eye(2)).numpy()  # starts TensorFlow
    before = peak_megabytes()
    step = MODELS[label](sizes, subsample, settings, data)
    for _ in range(1 + steps):
        step()
    return peak_megabytes() - before


def _points(sizes: Sizes, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """gamma [M_gamma, D] and beta [M_beta, D]."""
    rng = np.random.default_rng(settings.seed + 1)
    return rng.standard_normal([sizes.M_gamma, sizes.D]), rng.standard_normal(
        [sizes.M_beta, sizes.D]
    )


def _prior(sizes: Sizes) -> tuple[gpflow.kernels.Kernel, gpflow.likelihoods.Likelihood]:
    return gpflow.kernels.Matern52(lengthscales=np.ones(sizes.D)), gpflow.likelihoods.Gaussian(0.1)


def _coupled(sizes: Sizes, subsample: int, settings: Settings, data: Data) -> Callable[[], object]:
    _, beta = _points(sizes, settings)
    model = models.BasisGP(
        *_prior(sizes), bases.CoupledBasis(beta, num_latent_gps=sizes.L), num_data=sizes.N
    )
    return fit_step(model, data, settings)


def _orthogonal(
    scaling: str, sizes: Sizes, subsample: int, settings: Settings, data: Data
) -> Callable[[], object]:
    mean = {"mean_scaling": scaling, "mean_subsample": None if scaling == "whitened" else subsample}
    shape = {"num_data": sizes.N, "num_latent_gps": sizes.L}
    return fit_step(
        models.ODVGP(*_prior(sizes), *_points(sizes, settings), **shape, **mean), data, settings
    )


def _gpflow(sizes: Sizes, subsample: int, settings: Settings, data: Data) -> Callable[[], object]:
    _, beta = _points(sizes, settings)
    model = gpflow.models.SVGP(*_prior(sizes), beta, num_latent_gps=sizes.L, num_data=sizes.N)
    return gpflow_steps(model, data, settings).both


def _gpytorch(sizes: Sizes, subsample: int, settings: Settings, data: Data) -> Callable[[], object]:
    return gpytorch_step(_points(sizes, settings)[1], data, settings)


def section(costs: list[Cost], _: argparse.Namespace) -> Section:
    """Slopes between neighbouring sizes, and a panel per dimension for time and for memory."""
    base = Sizes(*costs[0][: len(Sizes._fields)])
    tables, panels = [], {"ms": [], "step_mb": []}
    for name in FACTORS:
        mine = [
            one
            for one in costs
            if Sizes(*one[: len(base)])._replace(**{name: getattr(base, name)}) == base
        ]
        mine.sort(key=lambda one: getattr(one, name))
        groups = {label: [one for one in mine if one.model == label] for label in MODELS}
        groups = {label: group for label, group in groups.items() if len(group) > 1}
        if not groups:
            continue
        tables.append(_table(name, groups))
        for field, label in (("ms", "ms per step"), ("step_mb", "MB over the base")):
            if all(math.isfinite(getattr(one, field)) for one in mine):
                panels[field].append(
                    Panel("", _LABELS[name], label, _series(name, field, groups), log="xy")
                )
    named = ", ".join(f"{name} = {value:,}" for name, value in base._asdict().items())
    notes = [
        (
            f"Scaling: {named} where they do not vary. Steps are timed in turn in one process;"
            " times faster: median of ratios."
        ),
        (
            "Ours: the step of `fit` with its own minibatches, sites held. Orthogonal:"
            " `mean_scaling` diagonal and a sampled divergence; whitened: the default, without the"
            " refresh of every hundredth step. GPyTorch: Adam alone, in float32."
        ),
        (
            "Memory: peak of a process less what it had with the data, before the model;"
            " TensorFlow's copy of the data counts."
        ),
    ]
    caption = "Time of a whole step, then peak memory, as one size varies."
    figure = Figure(
        "steps", caption, [*panels["ms"], *panels["step_mb"]], columns=len(panels["ms"]) or 1
    )
    return Section(tables, [figure] if tables else [], notes)


def _table(name: str, groups: dict[str, list[Cost]]) -> Table:
    """A row per model: ms, times faster than GPflow, MB, and the slopes of the first and the
    last.
    """
    sizes = [f"{getattr(one, name):,}" for one in max(groups.values(), key=len)]
    rows = []
    for label, group in groups.items():
        x, ms, mb = ([getattr(one, field) for one in group] for field in (name, "ms", "step_mb"))
        joined = [" / ".join(map(form, values)) for form, values in _columns(x, ms, mb, group)]
        rows.append([label, *joined])
    header = [
        "model",
        "ms per step",
        "slopes",
        "times faster than GPflow",
        "MB over the base",
        "slopes",
    ]
    return Table(f"Scaling in {name}: {', '.join(sizes)}", header, rows)


def _columns(x: list[int], ms: list[float], mb: list[float], group: list[Cost]) -> list[tuple]:
    number, ratio, whole = (partial(_text, form) for form in ("{:.3g}", "{:.2f}", "{:.0f}"))
    ratios = [one.ratio for one in group]
    return [
        (number, ms),
        (ratio, slopes(x, ms)),
        (ratio, ratios),
        (whole, mb),
        (ratio, slopes(x, mb)),
    ]


def _text(form: str, value: float) -> str:
    return form.format(value) if math.isfinite(value) else "-"


def _series(name: str, field: str, groups: dict[str, list[Cost]]) -> list[Series]:
    return [
        Series(
            label,
            [getattr(c, name) for c in group],
            [getattr(c, field) for c in group],
            label in _PEERS,
        )
        for label, group in groups.items()
    ]


_PEER = "GPflow"
_PEERS = (_PEER, "GPyTorch")
MODELS: dict[str, Callable[..., Callable[[], object]]] = {
    "coupled": _coupled,
    "orthogonal": partial(_orthogonal, "diagonal"),
    "orthogonal-whitened": partial(_orthogonal, "whitened"),
    _PEER: _gpflow,
    "GPyTorch": _gpytorch,
}
"""Label -> a function of sizes, rows of the sampled divergence, settings and data that gives a
training step.
"""
PART = Part(Cost, _pieces, measure, section)
