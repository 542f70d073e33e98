"""`save` and `load`: the same model afterwards, and no file runs anything; `test_tasks.py` loads in
a new process.
"""

from __future__ import annotations

import gc
import io
import json
import os
import pickle
import socket
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
from gpflow_decoupled.saving.archive import Names, read_archive

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
        base=gd.distributions.BlockBase([("skew_normal", 2), ("laplace", 1), ("normal", 1)]),
    ),
    "CVIGLM": lambda: gd.models.CVIGLM((X, LABELS), gl.Poisson()),
    "softmax": lambda: gd.models.SparseCVIGP(
        _kernel(), gd.likelihoods.CategoricalLogit(3), X[:5], num_data=9
    ),
    "GPflow's SVGP": lambda: gpflow.models.SVGP(
        _kernel(), gl.MultiClass(3), X[:5], num_latent_gps=3
    ),
    "noise that varies": lambda: gd.build(X, Y, "heteroskedastic", verbose=False),
    "Standardized": lambda: gd.Standardized(
        lambda X, Y: gd.models.SOLVEGP(_kernel(), gl.StudentT(), X[5:12], X[:5]), (X, 5.0 * Y + 3.0)
    ),
}


@pytest.mark.costly(keep=1)
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


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", ["ODVGP", "CVIGP", "AffineIndependentGP"])
def test_a_loaded_model_is_trained_on(name: str, tmp_path: Path) -> None:
    """Its variables are tracked, and a Checkpoint of the model fits it."""
    model = MODELS[name]()
    gd.save(model, tmp_path / "model.zip")
    loaded = gd.load(tmp_path / "model.zip")
    assert len(loaded.trainable_variables) == len(model.trainable_variables)
    state = tf.train.Checkpoint(model=model).write(str(tmp_path / "state"))
    tf.train.Checkpoint(model=loaded).read(state).assert_existing_objects_matched()
    data = () if hasattr(model, "data") else ((X, LABELS),)
    gd.fit(loaded, *data, steps=2, progress=False, compile=False)


@pytest.mark.exhaustive
def test_parts_that_are_shared_stay_shared(tmp_path: Path) -> None:
    """A kernel of two latents, and a likelihood with priors, functions and values at an edge."""
    shared = gpflow.kernels.Matern52()
    kernel = gpflow.kernels.SeparateIndependent([shared, shared])
    kernel.kernels[0].variance.unconstrained_variable.assign(-900.0)
    points = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(X[:4])
    )
    likelihood = gl.Gaussian(scale=gpflow.functions.Linear(np.zeros((2, 1)), np.ones(1)))
    basis = gd.bases.CoupledBasis(points, 2)
    model = gd.models.BasisGP(kernel, likelihood, basis, num_data=len(X))
    gd.save(model, tmp_path / "model.zip")
    loaded = gd.load(tmp_path / "model.zip")
    assert loaded.kernel.kernels[0] is loaded.kernel.kernels[1]
    for one, other in zip(model.trainable_variables, loaded.trainable_variables, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(
        model.elbo((X, np.hstack([Y, Y]))), loaded.elbo((X, np.hstack([Y, Y])))
    )


Change = Callable[[dict[str, Any]], object]


def _edited(path: Path, change: Change, name: str = "CVIGLM", **members: bytes) -> None:
    """A file of `save` with another description, and other members."""
    gd.save(MODELS[name](), path)
    with zipfile.ZipFile(path) as archive:
        known = {name: archive.read(name) for name in archive.namelist()}
    tree = json.loads(known.pop("model.json"))
    change(tree)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model.json", json.dumps(tree))
        for name, content in {**known, **members}.items():
            archive.writestr(name, content)


def _attributes(tree: dict[str, Any]) -> dict[str, Any]:
    return tree["model"]["attributes"]


def _called(name: str) -> Change:
    return lambda tree: _attributes(tree).update(extra={"is": "function", "name": name})


def _made(name: str, **attributes: Any) -> Change:
    node = {"is": "object", "id": 9999, "class": name, "attributes": attributes}
    return lambda tree: _attributes(tree).update(extra=node)


REFUSED: dict[str, tuple[Change, str]] = {
    "a function of Python": (_called("os:system"), r"needs os\.system.*do not trust the file"),
    "a function of this package": (_called("gpflow_decoupled:save"), "needs .*do not trust"),
    "what a module imports": (_made("gpflow.models.svgp:np"), "needs gpflow.models.svgp.np"),
    "a class of Python": (_made("subprocess:Popen"), "needs subprocess.Popen"),
    "a metaclass": (_made("gpflow.base:PriorOn"), "cannot be loaded|damaged"),
    "an attribute of the language": (
        _made("gpflow.kernels.stationaries:Matern52", __class__=1),
        "sets __class__ of a Matern52",
    ),
    "a bijector that no model has": (
        _made("tensorflow_probability.python.bijectors.glow:Glow", num_glow_blocks=10**9),
        r"needs .*Glow.*classes=\[Glow\]",
    ),
    "an array twice": (
        lambda tree: _attributes(tree).update(extra={"is": "array", "id": 9000, "array": 5}),
        "damaged",
    ),
    "an enumeration": (
        lambda tree: _attributes(tree).update(extra={"is": "enum", "class": "a:B", "name": "C"}),
        "enumeration 'a:B'",
    ),
    "no model": (lambda tree: tree.update(model=3), "has a int in it"),
    "no tree": (lambda tree: tree.update(model={"is": "nothing"}), "damaged"),
    "a later format": (lambda tree: tree.update(format=3), "has format 3"),
    "an object twice": (
        lambda tree: _attributes(tree).update(extra={"is": "list", "id": 0, "parts": []}),
        "describes two objects as one",
    ),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", REFUSED)
def test_a_file_names_parts_of_models_alone(name: str, tmp_path: Path) -> None:
    change, message = REFUSED[name]
    _edited(tmp_path / "model.zip", change)
    with pytest.raises(DataError, match=message):
        gd.load(tmp_path / "model.zip")


def _npy(array: np.ndarray, **options: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=(1, 0), **options)
    return file.getvalue()


@pytest.mark.exhaustive
def test_arrays_are_plain_and_of_the_length_they_say(tmp_path: Path) -> None:
    """Nothing is unpickled, and no memory is taken for what is not in the file."""
    file = tmp_path / "model.zip"
    huge = _npy(np.zeros(3)).replace(b"(3,)", b"(2000000000000,)", 1)[:-12]
    fields = np.zeros(2, dtype=[("a", "f8"), ("b", "i4")])
    for content, message in (
        (_npy(np.array([{}], dtype=object)), "files of models hold numbers"),
        (_npy(fields), "files of models hold numbers"),
        (huge, "length of an array"),
        (_npy(np.zeros(3)) + b"0" * 8, "length of an array"),
        (b"no array", "damaged"),
    ):
        _edited(file, lambda tree: None, **{"arrays/0.npy": content})
        with pytest.raises(DataError, match=message):
            gd.load(file)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.json", "[" * 10**6)
    with pytest.raises(DataError, match="members are compressed"):
        gd.load(file)


def test_short_files_take_little_memory(tmp_path: Path) -> None:
    """Columns that are stretched to each other would be a matrix."""
    file, tensor = tmp_path / "model.zip", {"is": "tensor", "id": 9000, "array": 7}
    of_tfp = {"is": "made", "id": 9002, "class": "tensorflow_probability.python."}
    normal = {**of_tfp, "attributes": {"loc": tensor, "scale": {**tensor, "id": 9001, "array": 8}}}
    normal["class"] += "distributions.normal:Normal"
    shift = {**of_tfp, "attributes": {"shift": tensor}}
    shift["class"] += "bijectors.shift:Shift"
    stretched = {
        "is": "parameter", "id": 9003, "array": 8, "transform": shift, "prior": None,
        "prior_on": "CONSTRAINED", "trainable": True,
    }  # fmt: skip
    members = {"arrays/7.npy": _npy(np.ones((900, 1))), "arrays/8.npy": _npy(np.ones((1, 900)))}
    for extra, message in ((normal, "of a Normal are stretched"), (stretched, "does not fit")):
        _edited(file, lambda tree: _attributes(tree).update(extra=extra), **members)  # noqa: B023
        with pytest.raises(DataError, match=message):
            gd.load(file)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("part", ["kernel", "lengthscales", "q_mu"])
def test_parts_of_other_shapes_are_refused(part: str, tmp_path: Path) -> None:
    """Their check sums are right, and the first prediction would fail in TensorFlow."""
    members: dict[str, bytes] = {}

    def change(tree: dict[str, Any]) -> None:
        own = _attributes(tree)
        matern = own["kernel"]["attributes"]["kernels"]["parts"][0]["attributes"]
        places = {"lengthscales": matern, "q_mu": own["basis"]["attributes"]}
        if part == "kernel":
            own["kernel"] = 3
        else:
            node = places[part][part]
            members[f"arrays/{node['array']}.npy"] = _npy(np.ones((4, 3)))

    _edited(tmp_path / "model.zip", change, "softmax")
    _edited(tmp_path / "model.zip", change, "softmax", **members)
    with pytest.raises(DataError, match="is damaged, or was not written"):
        gd.load(tmp_path / "model.zip")


def test_lack_of_memory_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: object) -> None:
        raise MemoryError

    gd.save(MODELS["CVIGLM"](), tmp_path / "model.zip")
    monkeypatch.setattr("gpflow_decoupled.saving.model_file.read_archive", full)
    with pytest.raises(CheckpointError, match="needs more memory than is free"):
        gd.load(tmp_path / "model.zip")


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """Each of many gives a `DataError`, or the model."""
    file, model = tmp_path / "model.zip", MODELS["CVIGLM"]()
    gd.save(model, file)
    whole, expected = file.read_bytes(), model.predict_f(NEW)
    places = np.random.default_rng(0).choice(8 * len(whole), 150, replace=False)
    for place in [*places, *range(8 * len(whole) - 400, 8 * len(whole), 16)]:
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        file.write_bytes(damaged)
        try:
            loaded = gd.load(file)
        except DataError:
            continue
        for one, other in zip(expected, loaded.predict_f(NEW)):
            np.testing.assert_array_equal(one, other)


def test_the_former_format_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        archive.writestr("versions.json", json.dumps({"format": 1}))
        archive.writestr("model.pickle", pickle.dumps(3))
    with pytest.raises(
        DataError, match="earlier version, in Python's pickle format.*save the model"
    ):
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


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    model = MODELS["ODVGP"]()
    model.basis.q_mu.unconstrained_variable.assign(np.full([5, 1], np.nan))
    with pytest.raises(DataError, match="q_mu has entries that are NaN"):
        gd.save(model, tmp_path / "model.zip")


@pytest.mark.parametrize("path", [None, 3.5, "", "a\0b"])
def test_what_is_no_path_is_refused(path: Any) -> None:
    for act in (lambda: gd.load(path), lambda: gd.save(MODELS["CVIGLM"](), path)):
        with pytest.raises(DataError, match="is no (path|name) of a file: pass"):
            act()


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


def test_other_versions(tmp_path: Path) -> None:
    file = tmp_path / "model.zip"
    _edited(file, lambda tree: tree["versions"].update(gpflow="1.0.0"))
    with pytest.warns(UserWarning, match="was written with gpflow 1.0.0; compare a prediction"):
        gd.load(file)


def _small() -> gd.models.BasisGP:
    return gd.models.BasisGP(
        gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(), gd.bases.CoupledBasis([[0.0]])
    )


def test_an_interrupt_leaves_no_half_of_a_file(tmp_path, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    model = _small()
    monkeypatch.setattr("gpflow_decoupled.saving.archive.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gd.save(model, tmp_path / "model.zip")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_in_its_place(tmp_path: Path) -> None:
    """Its permissions stay, a symbolic link stays one, and what a killed process left goes."""
    file, link, model = tmp_path / "model.zip", tmp_path / "link.zip", _small()
    gd.save(model, file)
    assert file.stat().st_mode & 0o777 == 0o666 & ~_umask()
    file.chmod(0o600)
    link.symlink_to(file)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host = socket.gethostname()
    (tmp_path / f".model.zip.{host}.{ended.pid}.0.partial").write_bytes(b"left")
    others = tmp_path / f".model.zip.{host}.{os.getpid()}.0.partial"
    others.write_bytes(b"being written")
    gd.save(model, link)
    assert link.is_symlink() and file.stat().st_mode & 0o777 == 0o600
    assert sorted(tmp_path.iterdir()) == sorted([file, link, others])


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.exhaustive
def test_threads_save_to_one_file(tmp_path: Path) -> None:
    """None fails, and whoever loads meanwhile finds a whole model."""
    file, model = tmp_path / "model.zip", _small()
    gd.save(model, file)

    def work(number: int) -> None:
        if number % 2:
            gd.save(model, file)
        else:
            gd.load(file)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(40)))
    assert os.listdir(tmp_path) == ["model.zip"]


@pytest.mark.exhaustive
def test_loading_takes_the_memory_of_the_arrays(tmp_path: Path) -> None:
    """Less than twice of it."""
    rows = 100_000
    X = np.arange(rows)[:, None] / 1e3
    model = gd.models.CVIGP((X, np.sin(X)), gpflow.kernels.Matern52(), gl.Gaussian())
    gd.save(model, tmp_path / "model.zip")
    size = (tmp_path / "model.zip").stat().st_size
    del model
    gc.collect()
    with (tmp_path / "model.zip").open("rb") as file:
        tracemalloc.start()
        read_archive(file)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert size > 8 * rows and peak < 2 * size


def test_classes_that_have_moved_are_found_by_their_name() -> None:
    """Files of earlier versions name other modules of the same package."""
    names = Names(())
    assert names.kind("gpflow_decoupled.models.conjugate:CVIGP") is gd.models.CVIGP
    assert names.kind("gpflow_decoupled.training.tables.column:Column").__name__ == "Column"
    for name in ("training.keras2:KerasAscent", "models.conjugate:NoModel", "models.gone:tf"):
        with pytest.raises(DataError, match="no usual part"):
            names.kind(f"gpflow_decoupled.{name}")
