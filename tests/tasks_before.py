"""The tasks of `test_tasks.py` as they were written before `build`, `save` and `plot_posterior`, to
compare with.

Tasks that are written today as they were then are not repeated. `python -m tests.tasks_before`
prints statements and processor seconds of all, both ways, with the short runs of the tests."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_decoupled as gd
from tests import test_tasks
from tests.test_tasks import COUNTS, LABELS, SHORT, TASKS, X, Y, statements


def regression(folder: Path) -> bool:
    """From arrays to predictions in their units, and a picture."""

    def build(X: np.ndarray, Y: np.ndarray) -> gpflow.models.GPModel:
        kernel = gpflow.kernels.Matern52(lengthscales=0.2)
        beta = gd.inducing.select(X, 10, kernel)
        gamma = gd.inducing.select(X, 10, kernel, given=beta)
        return gd.models.ODVGP(kernel, gpflow.likelihoods.Gaussian(0.1), gamma, beta)

    model = gd.Standardized(build, (X, Y))
    model.fit(**SHORT)
    mean, _ = model.predict_y(X)
    gd.wrappers.plot_posterior_1d(model, (X, Y)).figure.savefig(folder / "posterior.png")
    return np.all(np.isfinite(mean)) and (folder / "posterior.png").stat().st_size > 5000


def multi_class(folder: Path) -> bool:
    """Probabilities of three classes."""

    def build(X: np.ndarray, Y: np.ndarray) -> gpflow.models.GPModel:
        kernel = gpflow.kernels.Matern52()
        Z = gd.inducing.select(X, 8, kernel)
        return gd.models.SparseCVIGP(kernel, gpflow.likelihoods.MultiClass(3), Z, num_latent_gps=3)

    model = gd.Standardized(build, (X, LABELS))
    model.fit(**SHORT)
    probabilities = model.predict_y(X)[0].numpy()
    return np.allclose(np.sum(probabilities, axis=1), 1.0, atol=0.1)


def counts(folder: Path) -> bool:
    """A rate with its interval."""
    model = gd.Standardized(
        lambda X, Y: gd.models.CVIGP(
            (X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson()
        ),
        (X, COUNTS),
    )
    model.fit(**SHORT)
    mean, variance = model.predict_f(X)
    low, high = np.exp(mean - 2.0 * np.sqrt(variance)), np.exp(mean + 2.0 * np.sqrt(variance))
    return np.all(low < high)


def saving(folder: Path) -> bool:
    """A model in a file: who loads it needs the code that built it, and the data."""

    def build(X: np.ndarray, Y: np.ndarray) -> gpflow.models.GPModel:
        return gd.models.CVIGP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian())

    model = gd.Standardized(build, (X, Y))
    tf.train.Checkpoint(model=model.model).write(str(folder / "model"))
    twin = gd.Standardized(build, (X, Y))
    tf.train.Checkpoint(model=twin.model).read(str(folder / "model"))
    return np.array_equal(twin.predict_y(X)[0], model.predict_y(X)[0])


def port(folder: Path) -> bool:
    """A script for `gpflow.models.SVGP` with another constructor, and q under other names."""
    model = gd.models.ODVGP(
        gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(), X[::5] + 0.1, X[::4], num_data=40
    )
    loss = model.training_loss_closure((X, Y / 100.0), compile=False)
    before = float(loss())
    gpflow.optimizers.NaturalGradient(gamma=0.5).minimize(
        loss, [(model.basis.q_mu, model.basis.q_sqrt)]
    )
    return float(loss()) < before


BEFORE: dict[str, Callable[[Path], bool]] = {
    task.__name__: task for task in (regression, multi_class, counts, saving, port)
}
"""By the name that they have in `TASKS`."""


def main() -> None:
    """A row for each task: statements and processor seconds, before and now."""
    print("| task | statements before | now | processor s before | now |\n|---|---|---|---|---|")
    test_tasks.regression(
        Path(tempfile.mkdtemp())
    )  # imports and what is traced once are not counted
    for task in TASKS:
        ways = (BEFORE.get(task.__name__, task), task)
        seconds = []
        for way in ways:
            began = time.process_time()
            way(Path(tempfile.mkdtemp()))
            seconds.append(time.process_time() - began)
        lines = [statements(way) for way in ways]
        print(
            f"| {task.__name__} | {lines[0]} | {lines[1]} | {seconds[0]:.1f} | {seconds[1]:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
