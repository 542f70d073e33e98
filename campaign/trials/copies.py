"""Every model after training through every way of copying and saving it: the copy predicts the
same.
"""

from __future__ import annotations

__all__ = ["PART"]

import copy
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

import gpflow_decoupled as gd

from ..outcome import Case, Outcome, Part
from ..problems import Problem, draw_problem
from ..problems.models import LOCAL, MODELS, data_of
from ..refusals import complaint_about

Copy = Callable[[GPModel, Problem, np.ndarray], list[np.ndarray]]
_READ = (
    "import pickle, sys, numpy, gpflow_decoupled\n"
    "with open(sys.argv[1], 'rb') as file: model, X = pickle.load(file)\n"
    "mean, variance = model.predict_f(X)\n"
    "numpy.savez(sys.argv[2], mean=mean, variance=variance)\n"
)


def predictions(model: GPModel, X: np.ndarray) -> list[np.ndarray]:
    """Mean and variance of f."""
    return [np.asarray(part) for part in model.predict_f(X)]


def _deepcopy(model: GPModel, problem: Problem, X: np.ndarray) -> list[np.ndarray]:
    return predictions(copy.deepcopy(model), X)


def _gpflow_deepcopy(model: GPModel, problem: Problem, X: np.ndarray) -> list[np.ndarray]:
    """A copy that is trained on leaves the model as it was."""
    twin, before = gpflow.utilities.deepcopy(model), predictions(model, X)
    found = predictions(twin, X)
    gd.fit(twin, data_of(twin, problem.data), steps=1, progress=False, compile=False)
    after = predictions(model, X)
    return found if all(np.array_equal(*pair) for pair in zip(before, after)) else after


def _pickle(model: GPModel, problem: Problem, X: np.ndarray) -> list[np.ndarray]:
    """In a new process."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "model.pickle", Path(folder) / "predictions.npz"
        source.write_bytes(pickle.dumps((model, X)))
        command = [sys.executable, "-c", _READ, str(source), str(target)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        if done.returncode:
            raise RuntimeError(f"the new process said: {done.stderr.strip().splitlines()[-1]}")
        with np.load(target) as arrays:
            return [arrays["mean"], arrays["variance"]]


def _file(model: GPModel, problem: Problem, X: np.ndarray) -> list[np.ndarray]:
    """By `save` and `load`; the loaded model can be trained on."""
    with tempfile.TemporaryDirectory() as folder:
        gd.save(model, Path(folder) / "model.zip")
        loaded = gd.load(Path(folder) / "model.zip")
    found = predictions(loaded, X)
    gd.fit(loaded, data_of(loaded, problem.data), steps=1, progress=False, compile=False)
    return found


def _checkpoint(model: GPModel, problem: Problem, X: np.ndarray) -> list[np.ndarray]:
    """Into a fresh model."""
    fresh = problem.build()
    if isinstance(
        model, gd.models.AffineIndependentGP
    ):  # the ascent may choose another base, which no checkpoint saves
        fresh.basis.base, fresh.basis.theta = (
            model.basis.base,
            gpflow.Parameter(np.zeros(model.basis.theta.shape)),
        )
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(model=model).write(str(Path(folder) / "state"))
        tf.train.Checkpoint(model=fresh).read(path).assert_existing_objects_matched()
        return predictions(fresh, X)


def _saved_model(model: GPModel, problem: Problem, X: np.ndarray) -> list[np.ndarray]:
    """The cached posterior where there is one, else the model itself."""
    served = tf.Module()
    served.source = model.posterior("variable") if hasattr(model, "posterior") else model
    signature = tf.TensorSpec([None, X.shape[1]], X.dtype)
    served.predict = tf.function(
        served.source.predict_f, input_signature=[signature], autograph=False
    )
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(served, folder)
        loaded = tf.saved_model.load(folder)  # whose variables live as long as it does
        return [np.asarray(part) for part in loaded.predict(tf.constant(X))]


WAYS: dict[str, Copy] = {
    "deepcopy": _deepcopy,
    "gpflow.utilities.deepcopy": _gpflow_deepcopy,
    "pickle": _pickle,
    "save and load": _file,
    "Checkpoint": _checkpoint,
    "SavedModel": _saved_model,
}


def run(case: Case) -> Outcome:
    """One model, one way."""
    rng = case.generator()
    names = [*MODELS, *LOCAL]
    name = names[case.number % len(names)]
    way = list(WAYS)[case.number // len(names) % len(WAYS)]
    problem = draw_problem(rng, moderate=True, gaussian=True, rows=12, model=name)
    outcome = Outcome(f"{way}: {problem.title}")
    try:
        model = problem.build()
        gd.fit(model, data_of(model, problem.data), steps=2, progress=False, compile=False)
        X = rng.uniform(-2.0, 2.0, (5, problem.data[0].shape[1]))
        expected = predictions(model, X)
        for what, one, other in zip(("mean", "variance"), expected, WAYS[way](model, problem, X)):
            if not np.allclose(one, other, rtol=1e-9, atol=1e-12):
                outcome.complaints.append(
                    f"the {what} of the copy is off by {np.max(np.abs(one - other)):.3g}"
                )
    except Exception as error:
        complaint = complaint_about(error)
        return Outcome(
            outcome.title, [complaint] if complaint else [], f"{type(error).__name__}: {error}"
        )
    return outcome


_NUMBER = len(MODELS) + len(LOCAL)
PART = Part("copies", f"{_NUMBER} models through {', '.join(WAYS)}", _NUMBER * len(WAYS), run)
