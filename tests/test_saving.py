"""`save` and `load`: the same model afterwards, and no file runs anything; `test_tasks.py` loads in
a new process.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import likelihoods as gl

import gpflow_decoupled as gd
from gpflow_decoupled.errors import CheckpointError, DataError, ModelError

X = np.random.default_rng(0).uniform(-1, 1, size=(20, 2))
Y = np.sin(3.0 * X[:, :1])
LABELS = (Y > 0.2).astype(float)
NEW = np.linspace(-1.0, 1.0, 6).reshape(3, 2)


class OwnKernel(gpflow.kernels.Matern32):
    """A kernel that no library knows."""


def _kernel() -> gpflow.kernels.Kernel:
    kernel = gpflow.kernels.Matern52(lengthscales=[0.7, 1.2]) + gpflow.kernels.Linear()
    kernel.kernels[0].variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(2.0))
    gpflow.set_trainable(kernel.kernels[1], False)
    return kernel


def _data_mean() -> gd.models.ODVGP:
    model = gd.models.ODVGP(_kernel(), gl.Gaussian(0.1), "data", X[:4] + 0.01)
    gd.optimizers.ConjugateGradients().run(model, (X, Y))
    return model


MODELS: dict[str, Callable[[], Any]] = {
    "ODVGP": lambda: gd.models.ODVGP(
        _kernel(),
        gl.Bernoulli(invlink=tf.sigmoid),
        X[5:12],
        X[:5],
        mean_function=gpflow.functions.Constant(0.3),
    ),
    "a mean on all data": _data_mean,
    "CVIGP": lambda: gd.models.CVIGP((X, LABELS), _kernel(), gd.likelihoods.BernoulliLogit()),
    "LCLGP": lambda: gd.models.LCLGP((X, LABELS), _kernel(), gl.Bernoulli()),
    "AffineIndependentGP": lambda: gd.models.AffineIndependentGP(
        (X, LABELS), _kernel(), gd.likelihoods.BernoulliLogit()
    ),
    "a base with blocks": lambda: gd.models.AffineIndependentGP(
        (X, LABELS),
        _kernel(),
        gd.likelihoods.BernoulliLogit(),
        inducing_variable=X[:4],
        base=gd.distributions.BlockBase([("skew_normal", 2), ("variance_gamma", 1), ("normal", 1)]),
    ),
    "CVIGLM": lambda: gd.models.CVIGLM((X, LABELS), gl.Poisson()),
    "softmax": lambda: gd.models.SparseCVIGP(
        _kernel(), gd.likelihoods.CategoricalLogit(3), X[:5], num_data=9
    ),
    "GPflow's SVGP": lambda: gpflow.models.SVGP(
        _kernel(), gl.MultiClass(3), X[:5], num_latent_gps=3
    ),
    "Standardized": lambda: gd.Standardized(
        lambda X, Y: gd.models.SOLVEGP(_kernel(), gl.StudentT(), X[5:12], X[:5]), (X, 5.0 * Y + 3.0)
    ),
}


@pytest.mark.costly(keep=5)
@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_is_the_model(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    part = model.model if isinstance(model, gd.Standardized) else model
    for variable in part.trainable_variables:
        variable.assign_add(0.01 * tf.ones_like(variable))
    gd.save(model, tmp_path / "model.zip")
    loaded = gd.load(tmp_path / "model.zip")
    assert type(loaded) is type(model) and os.listdir(tmp_path) == ["model.zip"]
    for verb in ("predict_f", "predict_y"):
        for ours, theirs in zip(getattr(model, verb)(NEW), getattr(loaded, verb)(NEW)):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)
    other = loaded.model if isinstance(loaded, gd.Standardized) else loaded
    for before, after in zip(part.parameters, other.parameters):
        np.testing.assert_array_equal(before, after)
        assert before.trainable == after.trainable
    np.testing.assert_allclose(part.log_prior_density(), other.log_prior_density())


def _archive(path: Path, content: bytes, **versions: Any) -> None:
    """A file of `save` with another content."""
    gd.save(MODELS["CVIGLM"](), path)
    with zipfile.ZipFile(path) as archive:
        known = json.loads(archive.read("versions.json"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("versions.json", json.dumps({**known, **versions}))
        archive.writestr("model.pickle", content)


class _Call:
    """Pickled as the call of a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple:
        return self.call


CALLS: dict[str, Callable[[Path], object]] = {
    "a function of Python": lambda path: _Call(os.mkdir, str(path)),
    "eval": lambda path: _Call(eval, f"__import__('os').mkdir({str(path)!r})"),
    "a function of TensorFlow": lambda path: _Call(tf.io.write_file, str(path), "text"),
    "a function of this package": lambda path: _Call(gd.save, MODELS["CVIGLM"](), str(path)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_file_calls_nothing(name: str, tmp_path: Path) -> None:
    file, trace = tmp_path / "model.zip", tmp_path / "trace"
    _archive(file, pickle.dumps([CALLS[name](trace)]))
    with pytest.raises(DataError, match="needs .*do not trust the file"):
        gd.load(file)
    assert not trace.exists()


def _pushed(*names: str) -> bytes:
    """Pickle's opcodes for the class or function of a module, MODULE and NAME."""
    return b"".join(b"\x8c" + bytes([len(name)]) + name.encode() for name in names) + b"\x93"


@pytest.mark.parametrize(
    "names",
    [
        ("gpflow.kernels.stationaries", "Matern52"),
        ("gpflow.likelihoods.utils", "inv_probit"),
        ("tensorflow.python.framework.dtypes", "as_dtype"),
    ],
)
@pytest.mark.parametrize("slots", [True, False])
def test_a_file_changes_no_class_and_no_function(
    names: tuple[str, str], slots: bool, tmp_path: Path
) -> None:
    """By a state for its attributes, before a model that is in order."""
    gd.save(MODELS["CVIGLM"](), tmp_path / "model.zip")
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        model = archive.read("model.pickle")[2:]
    state = b"}\x8c\x03K_r" + _pushed("tensorflow.python.ops.math_ops", "exp") + b"s"
    state = b"N" + state + b"\x86" if slots else state
    _archive(tmp_path / "model.zip", b"\x80\x04" + _pushed(*names) + state + b"b0" + model)
    target = getattr(importlib.import_module(names[0]), names[1])
    before = getattr(target, "K_r", None)
    with pytest.raises(DataError, match="would change .* do not trust it"):
        gd.load(tmp_path / "model.zip")
    assert getattr(target, "K_r", None) is before


@pytest.mark.parametrize(
    "module, name", [("gpflow.base", "tf.io.write_file"), ("gpflow.models.svgp", "np")]
)
def test_what_a_module_imports_is_not_its_own(module: str, name: str, tmp_path: Path) -> None:
    _archive(tmp_path / "model.zip", b"\x80\x04" + _pushed(module, name) + b".")
    with pytest.raises(DataError, match=f"needs {module}.{name}"):
        gd.load(tmp_path / "model.zip")


def test_own_classes_are_named(tmp_path: Path) -> None:
    model = gd.models.BasisGP(OwnKernel(), gl.Gaussian(), gd.bases.CoupledBasis(X[:4]))
    gd.save(model, tmp_path / "model.zip")
    with pytest.raises(DataError, match=r"needs .*OwnKernel.*classes=\[OwnKernel\]"):
        gd.load(tmp_path / "model.zip")
    loaded = gd.load(tmp_path / "model.zip", classes=[OwnKernel])
    np.testing.assert_array_equal(loaded.predict_f(NEW)[1], model.predict_f(NEW)[1])


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    model = gd.models.BasisGP(
        _kernel(), gl.Bernoulli(invlink=lambda f: f), gd.bases.CoupledBasis(X[:4])
    )
    with pytest.raises(DataError, match="cannot be saved.*parameter_dict"):
        gd.save(model, tmp_path / "model.zip")
    with pytest.raises(ModelError, match="save is for models, and ndarray is none"):
        gd.save(X, tmp_path / "model.zip")
    with pytest.raises(CheckpointError, match="cannot be written"):
        gd.save(MODELS["CVIGLM"](), tmp_path / "no folder" / "model.zip")
    assert os.listdir(tmp_path) == []


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.zip"
    with pytest.raises(CheckpointError, match="cannot be read"):
        gd.load(file)
    file.write_bytes(b"no archive")
    with pytest.raises(DataError, match="damaged, or was not written"):
        gd.load(file)
    gd.save(MODELS["CVIGLM"](), file)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="damaged"):
        gd.load(file)
    _archive(file, pickle.dumps({}))
    with pytest.raises(DataError, match="has a dict in it"):
        gd.load(file)
    _archive(file, pickle.dumps(MODELS["CVIGLM"]())[:200])
    with pytest.raises(DataError, match="damaged"):
        gd.load(file)


def test_other_versions(tmp_path: Path) -> None:
    file, content = tmp_path / "model.zip", pickle.dumps(MODELS["CVIGLM"]())
    _archive(file, content, format=2)
    with pytest.raises(DataError, match="has format 2"):
        gd.load(file)
    _archive(file, content, gpflow="1.0.0")
    with pytest.warns(UserWarning, match="was written with gpflow 1.0.0; compare a prediction"):
        gd.load(file)
    assert isinstance(pickle.load(io.BytesIO(content)), gpflow.models.GPModel)


def test_an_interrupt_leaves_no_half_of_a_file(tmp_path, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    model = gd.models.BasisGP(
        gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(), gd.bases.CoupledBasis([[0.0]])
    )
    monkeypatch.setattr("gpflow_decoupled.saving.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gd.save(model, tmp_path / "model.zip")
    assert list(tmp_path.iterdir()) == []
