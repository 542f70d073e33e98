"""Columns that a model reads as indices, and kernels in units of X: `build` scales neither, and no
number that is no index is taken for one.
"""

from __future__ import annotations

__all__ = ["PART"]

import re
from collections.abc import Callable
from dataclasses import dataclass

import gpflow
import numpy as np
from gpflow.functions import Constant, SwitchedFunction

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.optimizers import ConjugateComputation, LinearlyConstrainedLagrangian

from ..outcome import Case, Outcome, Part
from ..refusals import complaint_about
from ..turns import Check, by_turns

SEEN = ("kernel", "kernel", "mean", "noise")
"""Which part of a model reads the index; kernels twice as often as the others."""
JITTER = 1e-6
"""Of an `NNGP`."""
WRONG = (-1.0, -0.5, 0.5, 1e-9, 1.5, 1e9)


@dataclass
class Tasks:
    """Rows of several tasks of different sizes: times x [N] and numbers of the tasks [N]."""

    x: np.ndarray
    task: np.ndarray
    Y: np.ndarray
    reader: str
    first: bool
    W: np.ndarray
    values: np.ndarray

    @property
    def X(self) -> np.ndarray:
        """Inputs [N, 2]; a kernel may read its index in the first column."""
        columns = (self.task, self.x) if self.first else (self.x, self.task)
        return np.stack(columns, axis=1)

    @property
    def column(self) -> int:
        """The column of the index."""
        return 0 if self.first else 1

    def _switched(self) -> SwitchedFunction:
        return SwitchedFunction([Constant(np.full(1, value)) for value in self.values])

    @property
    def kernel(self) -> gpflow.kernels.Kernel:
        """Of times, times a coregionalisation where the kernel is the reader."""
        kernel = gpflow.kernels.Matern52(lengthscales=0.7, active_dims=[1 - self.column])
        if self.reader != "kernel":
            return kernel
        tasks = gpflow.kernels.Coregion(*self.W.shape, active_dims=[self.column])
        tasks.W.assign(self.W)
        return kernel * tasks

    @property
    def mean_function(self) -> gpflow.functions.Function | None:
        """A constant for each task where the mean function is the reader."""
        return self._switched() if self.reader == "mean" else None

    @property
    def likelihood(self) -> gpflow.likelihoods.Likelihood:
        """Gaussian noise, of each task where it is the reader."""
        reads = self.reader == "noise"
        return gpflow.likelihoods.Gaussian(self._switched() if reads else 0.1)

    def exact(self, scale: float, jitter: float) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances [N] of f in units of Y by NumPy, x divided by `scale`.

        :param jitter: noise of each row, in units of its prior variance.
        """
        index = self.task.astype(int)
        r = np.sqrt(5.0) * np.abs(self.x[:, None] - self.x) / scale / 0.7
        K = (1.0 + r + r**2 / 3.0) * np.exp(-r)
        if self.reader == "kernel":
            K = K * (self.W @ self.W.T + np.eye(len(self.W)))[index][:, index]
        mean = self.values[index] if self.reader == "mean" else 0.0
        noise = self.values[index] if self.reader == "noise" else np.full(len(K), 0.1)
        noise = noise + jitter * np.diag(K)
        centre, spread = self.Y.mean(), self.Y.std()
        gain = np.linalg.solve(K + np.diag(noise), K).T
        f = mean + gain @ ((self.Y[:, 0] - centre) / spread - mean)
        return centre + spread * f, spread**2 * np.diag(K - gain @ K)


def _draw(rng: np.random.Generator) -> Tasks:
    sizes = rng.integers(1, 12, size=int(rng.integers(2, 5)))
    task = rng.permutation(np.repeat(np.arange(len(sizes)), sizes)).astype(float)
    x = rng.uniform(-2.0, 2.0, len(task))
    reader = SEEN[rng.integers(len(SEEN))]
    Y = 10.0 ** rng.uniform(-3.0, 3.0) * (np.sin(2.0 * x) + task + rng.normal(size=len(x)))
    first = reader == "kernel" and bool(rng.random() < 0.5)
    W, values = rng.normal(size=(len(sizes), 2)), rng.uniform(0.05, 1.0, len(sizes))
    return Tasks(x, task, Y[:, None], reader, first, W, values)


def _owner(name: str, tasks: Tasks, X: np.ndarray, Y: np.ndarray) -> gpflow.models.GPModel:
    """A model that owns X [N, 2] and Y [N, 1]."""
    parts, mean = ((X, Y), tasks.kernel, tasks.likelihood), {"mean_function": tasks.mean_function}
    if name == "NNGP":
        return gd.models.NNGP(*parts, num_neighbours=len(X), **mean)
    return getattr(gd.models, name)(*parts, **mean)


def _solved(model: gpflow.models.GPModel) -> None:
    """Take the best q."""
    if isinstance(model, gd.models.LCLGP):
        LinearlyConstrainedLagrangian().run(model)
    elif isinstance(model, gd.models.CVIGP):
        ConjugateComputation().run(model)


def _read_as_they_are(rng: np.random.Generator) -> Outcome:
    """Predictions are the exact posterior of the tasks by their numbers, in `build` and others."""
    tasks, name = _draw(rng), str(rng.choice(["build", "CVIGP", "LCLGP", "NNGP"]))
    if (name, tasks.reader) in (("build", "mean"), ("LCLGP", "noise")):  # which take none
        name = "CVIGP"
    X, Y = tasks.X, tasks.Y
    outcome = Outcome(f"{name}, {len(tasks.W)} tasks in {len(X)} rows read by the {tasks.reader}")
    if name == "build":
        model = gd.build(X, Y, tasks.likelihood, tasks.kernel, verbose=False)
    else:
        model = gd.Standardized(lambda X, Y: _owner(name, tasks, X, Y), (X, Y))
    _solved(model.model)
    scale = 1.0 if name == "build" else float(tasks.x.std())
    expected = tasks.exact(scale, JITTER if name == "NNGP" else 0.0)
    size = float(Y.std())
    for words, found, of in zip(("mean", "variance"), model.predict_f(X), expected):
        unit = size if words == "mean" else size**2
        off = float(np.max(np.abs(np.asarray(found)[:, 0] - of))) / unit
        if not off <= 1e-5:
            outcome.complaints.append(f"the {words} is off by {off:.3g} deviations of Y")
    return outcome


def _no_index(rng: np.random.Generator) -> Outcome:
    """A number that is no index is refused with its place, by every way into a model."""
    tasks = _draw(rng)
    X, Y, bad = tasks.X, tasks.Y, tasks.X
    row, wrong = int(rng.integers(len(X))), float(rng.choice([*WRONG, float(len(tasks.W))]))
    bad[row, tasks.column] = wrong
    kernel, likelihood, mean = tasks.kernel, tasks.likelihood, tasks.mean_function
    one = gd.models.ODVGP(kernel, likelihood, X[:1], X[1:2], mean_function=mean, num_data=len(X))
    ways: dict[str, Callable[[], object]] = {
        "Standardized": lambda: gd.Standardized(
            lambda X, Y: _owner("CVIGP", tasks, X, Y), (bad, Y)
        ),
        "CVIGP": lambda: _owner("CVIGP", tasks, bad, Y),
        "LCLGP": lambda: _owner("LCLGP", tasks, bad, Y),
        "elbo": lambda: one.elbo((bad, Y)),
        "predict_y": lambda: one.predict_y(bad),
        "predict_log_density": lambda: one.predict_log_density((bad, Y)),
        "fit": lambda: gd.fit(one, (bad, Y), steps=1, progress=False, compile=False),
    }
    if mean is None:
        ways["build"] = lambda: gd.build(bad, Y, likelihood, kernel, verbose=False)
    name = str(rng.choice(list(ways)))
    outcome = Outcome(f"{name}: {wrong:g} where the {tasks.reader} reads an index")
    try:
        ways[name]()
        outcome.complaints.append("was taken")
    except DataError as error:
        place = re.escape(f"[{row}, {tasks.column}] is {wrong:g}, and ")
        outcome.refusal, complaint = f"DataError: {error}", complaint_about(error)
        if complaint or not re.search(place, str(error)):
            outcome.complaints.append(complaint or f"does not say {place}: {error}")
    return outcome


def _kernels(unit: float, origin: float) -> dict[str, gpflow.kernels.Kernel]:
    """The same kernels of inputs in any unit and from any origin."""
    k = gpflow.kernels
    days = k.Periodic(k.SquaredExponential(lengthscales=0.8), period=0.7 * unit)
    before, after = k.Matern52(lengthscales=0.5 * unit), k.Matern32(lengthscales=2.0 * unit)
    change = k.ChangePoints([before, after], [origin + 0.25 * unit], steepness=3.0 / unit)
    return {"Periodic": days, "ChangePoints": change, "locally periodic": days * after}


def _units(rng: np.random.Generator) -> Outcome:
    """A kernel in the units of X, which are changed with it, gives `build` the same predictions."""
    # powers of two and multiples of 2^-10, so that other units round nothing
    unit = float(2.0 ** rng.integers(-20, 21))
    origin = unit * float(rng.integers(-(2**20), 2**20))
    x = rng.choice(4096, size=(int(rng.integers(3, 25)), 1), replace=False) / 1024.0 - 2.0
    Y = np.sin(5.0 * x) + 0.1 * rng.normal(size=x.shape)
    name = str(rng.choice(list(_kernels(1.0, 0.0))))
    outcome = Outcome(f"{name}, {len(x)} rows, X times {unit:g} plus {origin:g}")
    found = []
    for scale, start in ((1.0, 0.0), (unit, origin)):
        model = gd.build(start + scale * x, Y, kernel=_kernels(scale, start)[name], verbose=False)
        _solved(model.model)
        found.append([np.asarray(part) for part in model.predict_f(start + scale * (x + 0.125))])
    for words, one, other in zip(("mean", "variance"), *found):
        if not np.allclose(one, other, rtol=1e-6, atol=1e-6):
            moved = np.max(np.abs(one - other))
            outcome.complaints.append(f"the {words} depends on the units of X by {moved:.3g}")
    return outcome


CHECKS: tuple[Check, ...] = (_read_as_they_are, _no_index, _units)


def run(case: Case) -> Outcome:
    """One of the checks, by turns."""
    return by_turns(CHECKS, case, may_refuse=False)


PART = Part("columns", "columns of indices, and kernels in units of X", 100, run)
