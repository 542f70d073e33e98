"""Eight things that a new user does, in as few lines as this: each function is a whole script,
whose statements are counted.

The runs are short, so that they show that the lines work together; what the methods are worth is
measured in `benchmarks/`."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import gpflow
import matplotlib
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

matplotlib.use("Agg")

import gpflow_decoupled as gd  # noqa: E402
from gpflow_decoupled.wrappers.sklearn import DecoupledGPRegressor  # noqa: E402

_RNG = np.random.default_rng(0)
X = _RNG.uniform(0.0, 10.0, (40, 1))
Y = 150.0 + 100.0 * np.sin(X) + 5.0 * _RNG.standard_normal(X.shape)
LABELS = np.digitize(Y, [100.0, 200.0])
COUNTS = _RNG.poisson(np.exp(np.sin(X)))
SHORT = {"steps": 3, "compile": False, "progress": False}
"""What a user would leave out."""


def regression(folder: Path) -> bool:
    """From arrays to predictions in their units, and a picture."""
    model = gd.build(X, Y)
    gd.fit(model, (X, Y), **SHORT)
    mean, _ = model.predict_y(X)
    gd.wrappers.plot_posterior(model).savefig(folder / "posterior.png")
    return (
        np.corrcoef(mean[:, 0], Y[:, 0])[0, 1] > 0.8
        and (folder / "posterior.png").stat().st_size > 5000
    )


def multi_class(folder: Path) -> bool:
    """Probabilities of three classes."""
    model = gd.build(X, LABELS, "multiclass", num_inducing=8, num_mean_points=0)
    gd.fit(
        model, (X, LABELS), **{**SHORT, "steps": 20}
    )  # the natural step is small in the first ten
    probabilities = model.predict_y(X)[0].numpy()
    return np.mean(np.argmax(probabilities, axis=1) == LABELS[:, 0]) > 0.6


def counts(folder: Path) -> bool:
    """A rate with its interval."""
    model = gd.build(X, COUNTS, "poisson")
    gd.fit(model, (X, COUNTS), **SHORT)
    mean, variance = model.predict_f(X)
    low, high = np.exp(mean - 2.0 * np.sqrt(variance)), np.exp(mean + 2.0 * np.sqrt(variance))
    return np.all(low < high) and np.corrcoef(mean[:, 0], np.sin(X[:, 0]))[0, 1] > 0.7


def stream(folder: Path) -> bool:
    """A posterior that takes one batch after the other, and is in the end that of all of them."""
    model = gd.models.CVIGP(
        (X[:20], COUNTS[:20]), gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson()
    )
    for start in (20, 30):
        model.update((X[start : start + 10], COUNTS[start : start + 10]))
        result = gd.optimizers.ConjugateComputation().run(model)
    whole = gd.models.CVIGP((X, COUNTS), gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson())
    return abs(result.elbo - gd.optimizers.ConjugateComputation().run(whole).elbo) < 1e-3


def saving(folder: Path) -> bool:
    """A model in a file, and its predictions from there in a new process."""
    model = trained()
    gd.save(model, folder / "model.zip")
    return np.allclose(predicted_elsewhere(folder / "model.zip"), model.predict_y(X)[0], rtol=1e-12)


def trained() -> gd.Standardized:
    """A model whose predictions are not those of a new one."""
    model = gd.build(X, Y)
    gd.fit(model, (X, Y), **SHORT)
    assert np.ptp(model.predict_y(X)[0]) > 100.0
    return model


def predicted_elsewhere(file: Path) -> np.ndarray:
    """The predictions [N, 1] at X of a model in a file, by a Python that has seen neither the model
    nor its data.
    """
    inputs, outputs = file.with_name("X.npy"), file.with_name("mean.npy")
    np.save(inputs, X)
    code = (
        "import sys, numpy as np, gpflow_decoupled as gd\n"
        "mean, _ = gd.load(sys.argv[1]).predict_y(np.load(sys.argv[2]))\n"
        "np.save(sys.argv[3], mean)"
    )
    subprocess.run([sys.executable, "-c", code, *map(str, (file, inputs, outputs))], check=True)
    return np.load(outputs)


def scikit_learn(folder: Path) -> bool:
    """A data frame through a pipeline and a search."""
    frame = pd.DataFrame(X, columns=["time"])
    estimator = DecoupledGPRegressor(
        num_inducing=5, num_mean_points=0, steps=1, fit_options={"compile": False}
    )
    search = GridSearchCV(
        make_pipeline(StandardScaler(), estimator),
        {"decoupledgpregressor__num_inducing": [5]},
        cv=2,
    )
    search.fit(frame, Y[:, 0])
    return search.predict(frame).shape == (40,) and np.isfinite(search.best_score_)


class Cauchy(gpflow.kernels.IsotropicStationary):
    """A kernel of one's own: 1 / (1 + r^2)."""

    def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
        return self.variance / (1.0 + r2)


class Logistic(gpflow.likelihoods.ScalarLikelihood):
    """A likelihood of one's own: y = f + logistic noise."""

    def _scalar_log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return -(Y - F) - 2.0 * tf.math.softplus(F - Y)

    def _conditional_mean(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return tf.identity(F)

    def _conditional_variance(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return tf.fill(tf.shape(F), tf.constant(np.pi**2 / 3.0, F.dtype))


def own_parts(folder: Path) -> bool:
    """A kernel and a likelihood of one's own."""
    model = gd.models.CVIGP((X, Y / 50.0 - 3.0), Cauchy(), Logistic())
    result = gd.fit(model, **SHORT)
    return result.history["elbo"][-1] > result.history["elbo"][0]


def port(folder: Path) -> bool:
    """A script for `gpflow.models.SVGP` with another constructor; `test_gpflow_scripts.py` has a
    longer one.
    """
    model = gd.models.ODVGP(
        gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(), X[::5] + 0.1, X[::4], num_data=40
    )
    loss = model.training_loss_closure((X, Y / 100.0), compile=False)
    before = float(loss())
    gpflow.optimizers.NaturalGradient(gamma=0.5).minimize(loss, [(model.q_mu, model.q_sqrt)])
    return float(loss()) < before


TASKS: dict[Callable[[Path], bool], int] = {
    regression: 4,
    multi_class: 3,
    counts: 4,
    stream: 5,
    saving: 2,
    scikit_learn: 4,
    own_parts: 2,
    port: 4,
}
"""Statements of each without its own check."""
AT_LENGTH = (saving, multi_class, scikit_learn)
"""Their parts have tests of their own in the short run."""


@pytest.mark.filterwarnings(
    "ignore:The bound of .* is not accurate"
)  # after three steps q(f) is wide
@pytest.mark.parametrize(
    "task",
    [
        pytest.param(task, marks=[pytest.mark.exhaustive] if task in AT_LENGTH else [])
        for task in TASKS
    ],
    ids=[task.__name__ for task in TASKS],
)
def test_a_task_works(task: Callable[[Path], bool], tmp_path: Path) -> None:
    assert task(tmp_path)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_a_task_is_short(task: Callable[[Path], bool]) -> None:
    assert statements(task) == TASKS[task], "write the new number into TASKS, if it is smaller"


def test_statements_are_counted() -> None:
    def example(folder: Path) -> bool:
        """Not counted."""
        for _ in range(2):
            print(
                "one statement in three lines",
            )
        return True

    assert statements(example) == 2


def statements(task: Callable[[Path], bool]) -> int:
    """The statements of a function, those inside of loops too, without its docstring and the check
    at its end.
    """
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(task))).body
    assert isinstance(function, ast.FunctionDef)
    inner = [
        node for node in ast.walk(function) if isinstance(node, ast.stmt) and node is not function
    ]
    return len(inner) - 2
