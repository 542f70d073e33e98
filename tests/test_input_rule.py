"""One rule for input everywhere: what is no dense array of the model's numbers is refused by every
entry in the same words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy import sparse

import gpflow_decoupled as gd
import gpflow_decoupled.certificates
import gpflow_decoupled.wrappers.calibration
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.models import (
    CVIGLM,
    CVIGP,
    DTC,
    LCLGLM,
    LCLGP,
    ODVGP,
    AffineIndependentGP,
    BasisGP,
    SparseCVIGP,
)
from gpflow_decoupled.optimizers import NaturalGradient, collapsed_elbo, sweep
from gpflow_decoupled.pathwise import pathwise_samples
from tests.training.problems import BETA, GAMMA, orthogonal, parts, sine

X, Y = sine()
NEW = X[:7]


class Frame:
    """What a DataFrame has: a shape and a conversion to an array, but no dtype."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape = array, array.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.array


def _ragged(array: np.ndarray) -> list:
    return [[0.0, 1.0], *array[1:].tolist()]


BAD: dict[str, tuple[Callable[[np.ndarray], Any], str]] = {
    "masked": (
        lambda a: np.ma.masked_array(a, mask=np.arange(len(a))[:, None] == 2),
        "has 1 masked entries; remove or impute their rows",
    ),
    "SciPy sparse": (sparse.csr_matrix, r"is a csr_matrix and must be dense; use \w+.toarray\(\)"),
    "sparse tensor": (
        lambda a: tf.sparse.from_dense(a),
        r"is a SparseTensor and must be dense; use tf.sparse.to_dense",
    ),
    "ragged tensor": (
        lambda a: tf.ragged.constant(_ragged(a)),
        "is a RaggedTensor and must be dense",
    ),
    "ragged list": (_ragged, "is ragged: give all rows the same length"),
    "object": (
        lambda a: a.astype(object),
        r"is object and the model float64; use \w+.astype\(np.float64\)",
    ),
    "complex": (
        lambda a: a + 1j,
        "holds complex128 values; encode them as numbers, for example real and imaginary",
    ),
    "dates": (
        lambda a: a.astype("datetime64[s]"),
        r"holds datetime64\[s\] values; .* days since the first",
    ),
    "text": (
        lambda a: a.astype(str),
        "holds string values; encode them as numbers, for example classes",
    ),
    "nothing": (lambda a: None, "is a NoneType and not an array of numbers"),
    "rank 1": (lambda a: a[:, 0], r"has shape \(\d+,\); use \w+\[:, None\]"),
}
OTHER_TYPES: dict[str, tuple[Callable[[np.ndarray], Any], str]] = {
    "float32": (
        lambda a: a.astype(np.float32),
        r"is float32 and the model float64; use \w+.astype\(np.float64\)",
    ),
    "float32 tensor": (
        lambda a: tf.cast(a, tf.float32),
        r"is float32 and the model float64; use tf.cast\(\w+, tf.float64\)",
    ),
    "longdouble": (
        lambda a: a.astype(np.longdouble),
        r"is \w+ and the model float64; use \w+.astype\(np.float64\)",
    ),
}
if np.dtype(np.longdouble).itemsize == 8:
    del OTHER_TYPES["longdouble"]  # on such a platform it is float64
NOT_FINITE = {
    "NaN": (
        lambda a: np.where(np.arange(len(a))[:, None] == 4, np.nan, a),
        r"\[4, 0\] is nan; remove or impute",
    )
}
INTEGERS = {
    "integers": (
        lambda a: np.arange(len(a))[:, None],
        r"is int64 and the model float64; use X\w*.astype",
    )
}


def _cases(table: dict) -> dict:
    return {"argvalues": list(table.values()), "ids": list(table)}


def _models() -> dict[str, Any]:
    kernel, likelihood = parts()
    return {
        "inducing": orthogonal(num_data=60),
        "full": CVIGP((X, Y), kernel, likelihood),
        "affine": AffineIndependentGP((X[:12], Y[:12]), kernel, likelihood),
        "projected": DTC((X, Y), kernel, BETA),
    }


MODELS = _models()
VERBS = {
    "predict_f": lambda model, x: model.predict_f(x),
    "predict_y": lambda model, x: model.predict_y(x),
    "predict_f_samples": lambda model, x: model.predict_f_samples(x, 2),
    "posterior": lambda model, x: model.posterior().predict_f(x),
}


@pytest.mark.costly(keep=8)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "convert, message", **_cases({**BAD, **OTHER_TYPES, **INTEGERS, **NOT_FINITE})
)
def test_predictions_refuse(name: str, convert: Callable, message: str) -> None:
    verbs = ["predict_f", "predict_y", "predict_f_samples"] if name == "projected" else list(VERBS)
    for verb in verbs:
        with pytest.raises(DataError, match=f"^Xnew ?{message}"):
            VERBS[verb](MODELS[name], convert(NEW))


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("name", MODELS)
def test_columns_of_predictions(name: str) -> None:
    for verb in ["predict_f", "predict_y"]:
        with pytest.raises(
            DataError, match="Xnew has 2 columns and the model was made for 1; pass the columns"
        ):
            VERBS[verb](MODELS[name], np.tile(NEW, 2))
    compiled = tf.function(lambda x: MODELS[name].predict_y(x)[0], autograph=False)
    with pytest.raises(DataError, match="Xnew has 2 columns"):
        compiled(tf.constant(np.tile(NEW, 2)))
    assert compiled(tf.constant(NEW)).shape == (7, 1)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", MODELS)
def test_predictions_take_lists_frames_and_tensors(name: str) -> None:
    model = MODELS[name]
    for verb in ["predict_f", "predict_y"]:
        expected = VERBS[verb](model, NEW)
        for convert in (
            np.ndarray.tolist,
            Frame,
            tf.constant,
            tf.Variable,
            lambda a: np.ma.masked_array(a, mask=False),
        ):
            for found, wanted in zip(VERBS[verb](model, convert(NEW)), expected):
                np.testing.assert_array_equal(found, wanted)
    expected = model.predict_log_density((NEW, Y[:7]))
    np.testing.assert_array_equal(model.predict_log_density((Frame(NEW), Y[:7].tolist())), expected)


ENTRIES: dict[str, Callable[[Any, Any], object]] = {
    "elbo": lambda x, y: MODELS["inducing"].elbo((x, y)),
    "closure": lambda x, y: MODELS["inducing"].training_loss_closure((x, y)),
    "log density": lambda x, y: MODELS["inducing"].predict_log_density((x, y)),
    "natural gradient": lambda x, y: NaturalGradient().minimize(MODELS["inducing"], (x, y)),
    "sweep": lambda x, y: sweep(orthogonal(), (x, y)),
    "collapsed": lambda x, y: collapsed_elbo(MODELS["inducing"], (x, y)),
    "fit": lambda x, y: gd.fit(orthogonal(), (x, y), steps=1, progress=False),
    "CVIGP": lambda x, y: CVIGP((x, y), *parts()),
    "update": lambda x, y: MODELS["full"].update((x, y)),
    "stream": lambda x, y: MODELS["inducing"].update((x, y)),
    "held out": lambda x, y: MODELS["full"].predict_log_density((x, y)),
    "LCLGP": lambda x, y: LCLGP((x, y), *parts()),
    "AffineIndependentGP": lambda x, y: AffineIndependentGP((x, y), *parts()),
    "DTC": lambda x, y: DTC((x, y), parts()[0], BETA),
    "CVIGLM": lambda x, y: CVIGLM((x, y), parts()[1]),
    "LCLGLM": lambda x, y: LCLGLM((x, y), parts()[1]),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_refuses(entry: str) -> None:
    for convert, message in {**BAD, **OTHER_TYPES, **NOT_FINITE}.values():
        with pytest.raises(DataError, match=f"^X ?{message}"):
            ENTRIES[entry](convert(X), Y)
        with pytest.raises(DataError, match=f"^Y ?{message}"):
            ENTRIES[entry](X, convert(Y))
    if entry not in ("fit", "sweep"):
        with pytest.raises(DataError, match=r"data is a tuple; pass \(X, Y\)"):
            MODELS["inducing"].elbo((X,))


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize(
    "convert, message", **_cases({k: v for k, v in BAD.items() if k != "rank 1"})
)
def test_inducing_points_and_functions_refuse(convert: Callable, message: str) -> None:
    with pytest.raises(DataError, match=f"^beta {message}"):
        ODVGP(*parts(), GAMMA, convert(BETA))
    with pytest.raises(DataError, match=f"^X {message}"):
        gd.inducing.select(convert(X), 3, parts()[0])
    with pytest.raises(DataError, match=f"^X {message}"):
        pathwise_samples(MODELS["inducing"], 2)(convert(NEW))


def test_columns_of_functions_drawn() -> None:
    with pytest.raises(DataError, match="X has 2 columns and the model was made for 1"):
        pathwise_samples(MODELS["inducing"], 2)(np.tile(NEW, 2))
    np.testing.assert_array_equal(
        *(pathwise_samples(MODELS["full"], 2)(x) for x in (NEW, NEW.tolist()))
    )


def test_types_are_those_of_the_model() -> None:
    model = orthogonal(num_data=60)
    expected = float(model.elbo((X, Y)))
    gpflow.config.set_default_float(np.float32)
    try:
        assert float(model.elbo((X, Y))) == expected
        with pytest.raises(
            DataError, match=r"X is float32 and the model float64; use X.astype\(np.float64\)"
        ):
            model.elbo((X.astype(np.float32), Y))
        dataset = tf.data.Dataset.from_tensor_slices((X.astype(np.float32), Y)).batch(9)
        message = r"X is float32 and the model float64; use tf.cast\(X, tf.float64\) in dataset.map"
        with pytest.raises(DataError, match=message):
            gd.fit(model, dataset, steps=1, progress=False)
    finally:
        gpflow.config.set_default_float(np.float64)


MAKES: dict[str, Callable[[Any, Any], object]] = {
    "ODVGP": lambda k, p: ODVGP(k, p, np.tile(GAMMA, 2), np.tile(BETA, 2)),
    "SparseCVIGP": lambda k, p: SparseCVIGP(k, p, np.tile(BETA, 2)),
    "BasisGP": lambda k, p: BasisGP(k, p, gd.bases.CoupledBasis(np.tile(BETA, 2))),
    "CVIGP": lambda k, p: CVIGP((np.tile(X, 2), Y), k, p),
    "LCLGP": lambda k, p: LCLGP((np.tile(X, 2), Y), k, p),
    "AffineIndependentGP": lambda k, p: AffineIndependentGP((np.tile(X, 2), Y), k, p),
}
KERNELS = gpflow.kernels
BAD_KERNELS: dict[str, tuple[Callable[[], Any], str]] = {
    "none": (lambda: None, "kernel is a NoneType; pass an instance of gpflow.kernels, for example"),
    "a class": (
        lambda: KERNELS.Matern52,
        r"kernel is the class Matern52 itself; pass an instance, Matern52\(\)",
    ),
    "dims": (
        lambda: KERNELS.Matern52(active_dims=[0, 3]),
        "Matern52 has active_dims up to 3 and the inputs have 2 columns",
    ),
    "a slice": (
        lambda: KERNELS.RBF(active_dims=slice(0, 4)),
        "active_dims up to 3 and the inputs have 2 columns",
    ),
    "ARD": (
        lambda: KERNELS.Linear() + KERNELS.Matern52(lengthscales=[1.0, 2.0, 3.0]),
        (
            "Matern52 has 3 lengthscales and reads 2 columns of the inputs; pass one number for"
            " each column"
        ),
    ),
    "ARD of one column": (
        lambda: KERNELS.Linear(variance=[1.0, 2.0], active_dims=slice(1, 2)),
        "Linear has 2 variance and reads 1 columns",
    ),
}


@pytest.mark.parametrize("name", MAKES)
@pytest.mark.parametrize("make, message", **_cases(BAD_KERNELS))
def test_kernels_that_do_not_fit(name: str, make: Callable, message: str) -> None:
    with pytest.raises(DataError, match=message):
        MAKES[name](make(), gpflow.likelihoods.Gaussian())


@pytest.mark.parametrize("name", MAKES)
def test_kernel_and_likelihood(name: str) -> None:
    kernel, likelihood = parts()
    with pytest.raises(
        DataError, match="kernel is the likelihood Gaussian and likelihood the kernel .*; swap them"
    ):
        MAKES[name](likelihood, kernel)
    with pytest.raises(
        DataError, match="likelihood is a NoneType; pass an instance of gpflow.likelihoods"
    ):
        MAKES[name](kernel, None)
    good = KERNELS.Matern52(lengthscales=[1.0, 2.0]) * KERNELS.Matern32(
        active_dims=[1]
    ) + KERNELS.Periodic(KERNELS.RBF())
    MAKES[name](good, likelihood)


def test_plots_refuse() -> None:
    pytest.importorskip("matplotlib")
    for convert, message in BAD.values():
        with pytest.raises(DataError, match=f"^X ?{message}"):
            gd.wrappers.plots.plot_posterior_1d(MODELS["inducing"], (convert(X), Y))
    with pytest.raises(DataError, match="num_points=0 must be a whole number"):
        gd.wrappers.plots.plot_posterior_1d(MODELS["inducing"], (X, Y), num_points=0)
    with pytest.raises(DataError, match=r"X has shape \(60, 1\) and Y \(60,\)"):
        gd.wrappers.plots.plot_posterior_1d(MODELS["inducing"], (X, Y[:, 0]))


def _labels() -> np.ndarray:
    return (Y > 0.0).astype(float)


def _classifier() -> CVIGP:
    model = CVIGP((X, _labels()), gpflow.kernels.Matern52(), gd.likelihoods.BernoulliLogit())
    gpflow.set_trainable(model.kernel, False)
    return model


SCORES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "certificate": lambda model, x, y: gd.certificates.pac_bayes_certificate(model, (x, y)),
    "learned_on": lambda model, x, y: gd.certificates.pac_bayes_certificate(
        model, (X, _labels()), learned_on=(x, y)
    ),
    "classifiers": lambda model, x, y: gd.certificates.classifier_errors(model, (x, y)),
    "split": lambda model, x, y: gd.certificates.split_for_certificate((x, y)),
    "selection": lambda model, x, y: gd.certificates.select_by_certificate(
        lambda _: model, [1], (x, y)
    ),
    "calibration": lambda model, x, y: gd.wrappers.calibration.plot_calibration(model, (x, y)),
    "held-out scores": lambda model, x, y: gd.training.evaluation.held_out_metrics(model, (x, y)),
}
"""What scores a model on data, or prepares that."""


@pytest.mark.parametrize("score", SCORES)
def test_scores_refuse_what_is_no_dense_array_of_numbers(score: str) -> None:
    model, labels = _classifier(), _labels()
    for kind in ("masked", "SciPy sparse", "ragged tensor", "complex", "text"):
        make, message = BAD[kind]
        for x, y, name in ((make(X), labels, "X"), (X, make(labels), "Y")):
            with pytest.raises(DataError, match=f"{name}.* {message}"):
                SCORES[score](model, x, y)


@pytest.mark.parametrize("score", SCORES)
def test_scores_of_lists_and_tensors_are_those_of_arrays(score: str) -> None:
    model, labels = _classifier(), _labels()
    pytest.importorskip("matplotlib").use("Agg")
    if score == "learned_on":
        with pytest.warns(UserWarning, match="also in learned_on"):
            SCORES[score](model, X.tolist(), tf.constant(labels))
        return
    found, expected = (
        SCORES[score](model, X.tolist(), tf.constant(labels)),
        SCORES[score](model, X, labels),
    )
    if score == "calibration":
        found, expected = (axes.lines[-1].get_xydata() for axes in (found, expected))
    if score == "selection":
        found, expected = str(found), str(expected)
    np.testing.assert_equal(found, expected)


def test_predicted_classes_refuse_masks_and_wrong_columns() -> None:
    for wrong, message in (
        (BAD["masked"][0](X), "Xnew has 1 masked"),
        (np.hstack([X, X]), "Xnew has 2 columns"),
    ):
        with pytest.raises(DataError, match=message):
            gd.certificates.predict_labels(_classifier(), wrong)


def test_calibration_refuses_entries_that_are_not_finite() -> None:
    with pytest.raises(DataError, match=r"X\[4, 0\] is nan"):
        gd.wrappers.calibration.plot_calibration(
            _classifier(), (NOT_FINITE["NaN"][0](X), _labels())
        )


class _Foreign:
    """An array of a library whose types are not NumPy's, as torch has."""

    dtype = "float64"

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape = values, values.shape

    def __getitem__(self, rows: Any) -> _Foreign:
        return _Foreign(self.values[rows])

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.values, dtype)


def test_arrays_of_other_libraries_are_trained_on() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(20, 1))
    model = gd.models.BasisGP(
        gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(), gd.bases.CoupledBasis(inputs[:5])
    )
    data = _Foreign(inputs), _Foreign(np.sin(inputs))
    assert gd.fit(model, data, steps=2, progress=False, compile=False).steps == 2
