"""Mistakes that users make, and the sentence that each gets; what it advises works when pasted."""

from __future__ import annotations

import sys
from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled import models, wrappers
from gpflow_decoupled.errors import DataError, NumericalError, UnknownOptionError
from gpflow_decoupled.optimizers import ConjugateComputation
from gpflow_decoupled.training import Standardization, fit
from gpflow_decoupled.training.batches import DatasetBatches

X = np.linspace(-1.0, 1.0, 40)[:, None]
Y = np.sin(3.0 * X)
LABELS = (np.arange(40) % 3)[:, None]
GAUSSIAN = gpflow.likelihoods.Gaussian


def sparse(num_data: int | None = None) -> models.SparseCVIGP:
    return models.SparseCVIGP(gpflow.kernels.Matern52(), GAUSSIAN(0.1), X[::8], num_data=num_data)


class Wrong(gpflow.likelihoods.ScalarLikelihood):
    """Gaussian noise with the wrong sign."""

    def _scalar_log_prob(self, X, F, Y):
        return 0.5 * tf.square(Y - F)

    def _conditional_mean(self, X, F):
        return F

    def _conditional_variance(self, X, F):
        return tf.ones_like(F)


class WrongExpectation(GAUSSIAN):
    """The variance raises what it should lower."""

    def _variational_expectations(self, X, Fmu, Fvar, Y):
        return super()._variational_expectations(X, Fmu, -Fvar, Y)


class WrongClasses(gpflow.likelihoods.Bernoulli):
    def _variational_expectations(self, X, Fmu, Fvar, Y):
        return -super()._variational_expectations(X, Fmu, Fvar, Y)


class WrongCounts(gpflow.likelihoods.Poisson):
    """Right expectations, infinite densities."""

    def _scalar_log_prob(self, X, F, Y):
        return -super()._scalar_log_prob(X, F, Y)


class Right(Wrong):
    def _scalar_log_prob(self, X, F, Y):
        return -0.5 * tf.square(Y - F)


class Indefinite(gpflow.kernels.Kernel):
    """With an eigenvalue far below zero."""

    def K(self, X, X2=None):
        return gpflow.kernels.Matern52()(X, X2) - 11.0

    def K_diag(self, X):
        return tf.ones(tf.shape(X)[:-1], X.dtype)


def one_hot() -> tuple[np.ndarray, np.ndarray]:
    return X, np.eye(3)[LABELS[:, 0]]


def classes(data: tuple[np.ndarray, np.ndarray], kind: Callable = models.CVIGP) -> object:
    return kind(data, gpflow.kernels.Matern52(), gd.likelihoods.CategoricalLogit(3))


def with_nan() -> models.CVIGP:
    model = models.CVIGP((X, Y), gpflow.kernels.Matern52(), GAUSSIAN(0.1))
    model.basis.nu.unconstrained_variable.assign(np.full((40, 1), np.nan))
    return model


def in_float32() -> object:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        data = X.astype(np.float32), Y.astype(np.float32)
        return models.CVIGP(data, gpflow.kernels.ArcCosine(), GAUSSIAN(0.1))


def bernoulli(labels: np.ndarray) -> models.CVIGP:
    return models.CVIGP((X, labels), gpflow.kernels.Matern52(), gpflow.likelihoods.Bernoulli())


def with_likelihood(likelihood: gpflow.likelihoods.Likelihood) -> models.CVIGP:
    return models.CVIGP((X, Y), gpflow.kernels.Matern52(), likelihood)


MISTAKES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "one-hot": (lambda: classes(one_hot()), DataError, r"np.argmax\(Y, axis=1\)\[:, None\]"),
    "affine": (
        lambda: classes((X, LABELS.astype(float)), models.AffineIndependentGP),
        DataError,
        "use CVIGP.$",
    ),
    "sign": (lambda: with_likelihood(Wrong()), DataError, "Turn the sign of what its _"),
    "kernel": (
        lambda: ConjugateComputation().run(
            models.CVIGP((X, Y), Indefinite(), GAUSSIAN(0.1)), steps=7
        ),
        NumericalError,
        "not positive semi-definite",
    ),
    "signs": (lambda: bernoulli(np.sign(Y + 0.01)), DataError, r"\(Y > 0\).astype\(float\)"),
    "text": (
        lambda: bernoulli(np.array([[0.5, "a"]] * 40, dtype=object)),
        DataError,
        "Y holds 'a' of type str: .* gpflow_decoupled.build, which encodes text",
    ),
    "copies": (
        lambda: models.SparseCVIGP(gpflow.kernels.Matern52(), GAUSSIAN(), X[[0, 1, 0]]),
        DataError,
        "A copy adds nothing to q, and makes",
    ),
    "Ordinal": (
        lambda: with_likelihood(gpflow.likelihoods.Ordinal(np.array([0.5, 1.5]))),
        DataError,
        r"gpflow_decoupled.likelihoods.Ordinal\(bin_edges\)",
    ),
    "ArcCosine": (in_float32, DataError, "ArcCosine is NaN on the diagonal in float32"),
    "NaN in q": (
        lambda: with_nan().predict_y(X),
        NumericalError,
        "model.basis.nu has entries that are NaN",
    ),
    "large Y": (
        lambda: Standardization(1e300 * Y, "Y"),
        DataError,
        r"whose square no float64 holds.*divide Y by 1e\+300",
    ),
    "history": (lambda: wrappers.plot_history(None), DataError, "pass the one that fit returns"),
    "posterior": (lambda: wrappers.plot_posterior("x", (X, Y)), DataError, "model is a str"),
    "weights": (lambda: wrappers.plot_weights("x"), DataError, r"models.weights_posterior\(model"),
    "calibration": (lambda: wrappers.plot_calibration(1, (X, Y)), DataError, "model is a int"),
    "no folder": (
        lambda: fit(sparse(), (X, Y), checkpoint=""),
        DataError,
        'checkpoint=.* is no folder.*"run"',
    ),
    "no name": (lambda: fit(sparse(), (X, Y), checkpoint="a\0b"), DataError, "is no folder"),
    "lr": (lambda: fit(sparse(), (X, Y), lr=0.1), UnknownOptionError, "lr: .* learning_rate here"),
    "epochs": (lambda: fit(sparse(), (X, Y), epochs=3), UnknownOptionError, "epochs: .* steps"),
    "verbose": (lambda: fit(sparse(), (X, Y), verbose=0), UnknownOptionError, "called progress"),
    "a slip": (lambda: fit(sparse(), (X, Y), batchsize=3), UnknownOptionError, "batch_size here"),
    "no such": (lambda: fit(sparse(), (X, Y), zzz=3), UnknownOptionError, "use one of model, data"),
}


DENSITY, EXPECTATION = "Turn the sign of what its", "signs in its _variational_expectations"


@pytest.mark.costly(keep=5)
@pytest.mark.parametrize("kind", ["CVIGP", "LCLGP", "NNGP", "SparseCVIGP", "ODVGP"])
@pytest.mark.parametrize(
    "likelihood, message",
    [(Wrong, DENSITY), (WrongCounts, DENSITY), (WrongExpectation, EXPECTATION),
     (WrongClasses, EXPECTATION)],
)  # fmt: skip
def test_a_wrong_sign_is_found_before_the_first_step(kind, likelihood, message) -> None:
    """At most 1e17 nats were reached, or a smaller step was advised."""
    noise, data = likelihood(), (X, (Y > 0).astype(float))
    with pytest.raises(DataError, match=f"{likelihood.__name__} .*{message}"):
        if kind == "NNGP":
            models.NNGP(data, gpflow.kernels.Matern52(), noise, num_neighbours=5)
        elif kind in ("SparseCVIGP", "ODVGP"):
            points = (X[::8],) if kind == "SparseCVIGP" else (X[::8], X[1::8])
            fit(getattr(models, kind)(gpflow.kernels.Matern52(), noise, *points), data, steps=1)
        else:
            getattr(models, kind)(data, gpflow.kernels.Matern52(), noise)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_a_sentence(name: str) -> None:
    call, kind, message = MISTAKES[name]
    with pytest.raises(kind, match=message):
        call()


def test_advice_works() -> None:
    series = pytest.importorskip("pandas").Series(Y[:, 0])
    with pytest.raises(DataError, match=r"or Y.to_numpy\(\)\[:, None\] of a pandas Series"):
        models.CVIGP((X, series), gpflow.kernels.Matern52(), GAUSSIAN(0.1))
    models.CVIGP((X, series.to_numpy()[:, None]), gpflow.kernels.Matern52(), GAUSSIAN(0.1))
    data, labels = one_hot()
    classes((data, np.argmax(labels, axis=1)[:, None]))
    bernoulli((Y > 0).astype(float))
    with_likelihood(Right())
    with_likelihood(gpflow.likelihoods.StudentT(1e-3))


@pytest.mark.parametrize("module", ["trieste"])
def test_a_library_that_is_not_installed_is_named(module, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "trieste", None)
    monkeypatch.delitem(sys.modules, "gpflow_decoupled.wrappers.trieste", raising=False)
    with pytest.raises(ImportError, match="needs trieste, .*pip install"):
        import gpflow_decoupled.wrappers.trieste  # noqa: F401


@pytest.mark.filterwarnings("ignore:X.*differs in its last digits only")
def test_numbers_below_the_smallest_normal_one_are_constant() -> None:
    assert np.all(np.isfinite(Standardization(1e-310 * X, "X").transform(1e-310 * X)))


def batches(rows: int = 40) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X[:rows], Y[:rows]))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "dataset",
    [
        lambda: batches().batch(10),
        lambda: batches().batch(7, drop_remainder=True),
        lambda: batches().repeat(3).batch(10),
        lambda: batches().batch(10).repeat(3),
        lambda: batches().shuffle(40).batch(64),
        lambda: batches(1).batch(1).concatenate(batches().skip(1).batch(13)),
        lambda: batches().filter(lambda x, y: x[0] > 0.0).batch(10),
    ],
    ids=["whole", "no rest", "passes", "passes of batches", "one batch", "ragged", "filtered"],
)
def test_a_dataset_of_whole_passes_is_taken(dataset) -> None:
    assert fit(sparse(40), dataset(), steps=1, progress=False, compile=False).steps == 1


@pytest.mark.parametrize(
    "num_data, dataset",
    [(4000, lambda: batches().batch(10)), (100, lambda: batches().batch(10).repeat(4)),
     (80, lambda: batches(1).batch(1).concatenate(batches().skip(1).batch(13)))],
    ids=["too few", "no whole passes", "ragged"],
)  # fmt: skip
def test_a_dataset_of_other_rows_is_refused_before_the_first_step(num_data, dataset) -> None:
    model = sparse(num_data)
    before = model.kernel.variance.numpy()
    with pytest.raises(DataError, match=f"The dataset has .* rows and num_data={num_data}"):
        fit(model, dataset(), steps=2, progress=False, compile=False)
    assert model.kernel.variance.numpy() == before


def test_rows_of_all_workers_are_counted() -> None:
    rows = batches().shard(3, 0)  # 14 of 40 rows, whose first batch tells too little
    shard = rows.take(1).batch(1).concatenate(rows.skip(1).batch(2))
    DatasetBatches(shard, 40, gpflow.likelihoods.Gaussian(), shards=3)(0)
    with pytest.raises(DataError, match="has 14 rows and num_data=40"):
        DatasetBatches(shard, 40, gpflow.likelihoods.Gaussian())(0)
