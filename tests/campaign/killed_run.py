"""A run with checkpoints in a process that may not survive it; for the part `kills`."""

from __future__ import annotations

__all__ = ["ROUTES", "Kill", "Run", "execute"]

import os
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_decoupled as gd

ROUTES = (
    "inducing points",
    "minibatches",
    "dataset",
    "SVGP",
    "sites",
    "multipliers",
    "mean field",
    "natural mean",
    "neighbours",
    "sites of neighbours",
    "classes of neighbours",
)
"""Every route of `fit` that takes a checkpoint; the ascent of affine-independent models refuses
one.
"""

_NEIGHBOURS = {
    "neighbours": None,
    "sites of neighbours": gd.likelihoods.BernoulliLogit(),
    "classes of neighbours": gd.likelihoods.CategoricalLogit(2),
}
"""Likelihoods of the labels; None for Gaussian noise."""


@dataclass(frozen=True)
class Run:
    """What is run: a route, the seed of its data, and its steps."""

    route: str
    seed: int
    steps: int
    every: int


@dataclass(frozen=True)
class Kill:
    """When: `after` so many seconds, by the parent; or `delay` seconds after the n-th `access` to
    the folder.
    """

    after: float | None = None
    access: int = 0
    delay: float = 0.0

    def __str__(self) -> str:
        """In words."""
        if self.after is not None:
            return f"killed after {self.after:.2f} s"
        return f"killed {1e3 * self.delay:.0f} ms after access {self.access} to its folder"


def execute(one: Run, folder: Path | None, kill: Kill | None, result: Path | None) -> None:
    """Run, and write traces and predictions to `result`, or what went wrong beside it."""
    if kill is not None and kill.access and folder is not None:
        _kill_at(kill, str(folder))
    try:
        arrays = _run(one, folder)
    except BaseException:
        if result is not None:
            result.with_suffix(".txt").write_text(traceback.format_exc()[-1500:])
        os._exit(1)
    if result is not None:
        np.savez(result, **arrays)


def _kill_at(kill: Kill, folder: str) -> None:
    """Have this process killed at an access to a file of the folder."""
    seen = 0

    def hook(event: str, arguments: tuple) -> None:
        nonlocal seen
        if event not in ("open", "os.rename", "os.remove", "os.listdir", "shutil.rmtree"):
            return
        if not any(
            isinstance(given, (str, os.PathLike)) and folder in os.fspath(given)
            for given in arguments[:2]
        ):
            return
        seen += 1
        if seen != kill.access:
            return
        if not kill.delay:
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Timer(kill.delay, os.kill, (os.getpid(), signal.SIGKILL)).start()

    sys.addaudithook(hook)


def _run(one: Run, folder: Path | None) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(one.seed)
    X = rng.uniform(size=(24, 1))
    Y = np.sin(6.0 * X) + 0.1 * rng.normal(size=X.shape)
    labels = (Y > 0).astype(float)
    kernel, noise = gpflow.kernels.Matern52(lengthscales=0.3), gpflow.likelihoods.Gaussian(0.1)
    points = np.linspace(0.0, 1.0, 9)[:, None]
    options: dict = {"steps": one.steps, "progress": False, "compile": False}
    if folder is not None:
        options["checkpoint"] = gd.training.Checkpoints(folder, every=one.every)
    data: object = None
    if one.route == "sites":
        model: object = gd.models.CVIGP((X, labels), kernel, gpflow.likelihoods.Bernoulli())
    elif one.route == "multipliers":
        model = gd.models.LCLGP((X, labels), kernel, gd.likelihoods.BernoulliLogit())
    elif one.route in _NEIGHBOURS:
        likelihood = _NEIGHBOURS[one.route]
        model = gd.models.NNGP(
            (X, labels if likelihood else Y), kernel, likelihood or noise, num_neighbours=5
        )
    elif one.route == "mean field":
        model = _graph(rng.poisson(3.0, 24))
    elif one.route == "SVGP":
        model, data = gpflow.models.SVGP(kernel, noise, points[::2]), (X, Y)
    else:
        subsample = 3 if one.route == "minibatches" else None
        model = gd.models.ODVGP(
            kernel, noise, points[1::2], points[::2], num_data=24, mean_subsample=subsample
        )
        data = (X, Y)
    if one.route == "minibatches":
        options["batch_size"] = 7
    elif one.route == "natural mean":
        options["mean_solver"] = "natural"
    elif one.route == "dataset":
        tf.random.set_seed(0)  # the global seed enters that of a shuffled dataset
        data = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(24, seed=1).batch(7)
    result = gd.fit(model, data, **options)
    trace = {"bounds": result.history["elbo"], "steps": np.array(result.steps)}
    if isinstance(model, gd.models.FactorGraph):
        return {**trace, "belief": np.asarray(model["rate"].distribution.mean())}
    mean, variance = model.predict_f(points)
    return {**trace, "mean": np.asarray(mean), "variance": np.asarray(variance)}


def _graph(counts: np.ndarray) -> gd.models.FactorGraph:
    gamma = gd.distributions.families.Gamma()
    counted = gd.models.Factor(
        "rate", lambda z, y: tf.reduce_sum(y * z.expectation[0] - z.expectation[1]), data=counts
    )
    prior = gd.models.prior_factor("rate", gamma.belief(2.0, 0.5))
    return gd.models.FactorGraph(
        {"rate": gamma.belief(1.0, 1.0)}, {"prior": prior, "counts": counted}
    )
