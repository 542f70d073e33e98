"""Bad input: the table in `inputs` is run here. A wrong argument is refused with a message that
names it and the fix, before anything has changed.

Below it are the cases that need more than one wrong argument, and what must be taken.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, ModelError
from gpflow_decoupled.models import (
    CVIGP,
    DTC,
    HDVGP,
    LCLGP,
    ODVGP,
    SOLVEGP,
    AffineIndependentGP,
    BasisGP,
    SparseCVIGP,
)
from gpflow_decoupled.optimizers import NaturalGradient
from gpflow_decoupled.pathwise import pathwise_samples
from tests.campaign.trial import complaint_about
from tests.inputs.entries import ENTRIES
from tests.inputs.wrong_values import WRONG_VALUES
from tests.training.problems import BETA, GAMMA, MODELS, orthogonal, parts, sine, unchanged, values

X, Y = sine()
NEW = X[:7]
LABELS = (Y > 0).astype(float)
dataset = tf.data.Dataset.from_tensor_slices((X, Y))


def _fit(model: Any, data: Any, **options: Any) -> gd.training.FitResult:
    return gd.fit(model, data, **{"steps": 1, "progress": False, "compile": False, **options})


def _classifier() -> ODVGP:
    likelihood = gpflow.likelihoods.Bernoulli()
    return ODVGP(gpflow.kernels.SquaredExponential(), likelihood, GAMMA, BETA, num_data=60)


WRONG = [
    (name, argument, words)
    for name, entry in ENTRIES.items()
    for argument, kind in entry.kinds.items()
    for words in WRONG_VALUES[kind]
    if words not in entry.accepted.get(argument, ())
]


@pytest.mark.costly(keep=20)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name, argument, words", WRONG)
def test_a_wrong_argument_is_refused(name: str, argument: str, words: str) -> None:
    """By an error of the package that says what to change, and no Parameter is changed."""
    entry = ENTRIES[name]
    right = {key: value() if callable(value) else value for key, value in entry.right.items()}
    change, says = WRONG_VALUES[entry.kinds[argument]][words]
    model = right.get("model")
    before = values(model) if hasattr(model, "parameters") else {}
    with pytest.raises(Exception) as caught:
        entry.call(**{**right, argument: change(right.get(argument))})
    assert complaint_about(caught.value) == "" and re.search(says, str(caught.value))
    assert not before or unchanged(before, model)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "data, message",
    [
        ((X, Y[:, 0]), r"Y has shape \(60,\); use Y\[:, None\]"),
        ((X, np.tile(Y, 2)), "Y has 2 columns and the model expects 1 .*pass num_latent_gps=2"),
        ((X.astype(np.float32), Y), r"X is float32 and the model float64; use X.astype"),
    ],
    ids=["Y rank 1", "Y with two columns", "float32 X"],
)
def test_every_model_refuses(name: str, data: Any, message: str) -> None:
    model = MODELS[name]()
    before = values(model)
    with pytest.raises(DataError, match=message):
        _fit(model, data)
    assert unchanged(before, model) and model.num_data is None


@pytest.mark.exhaustive
def test_messages_count_and_place_what_is_wrong() -> None:
    two_nans, late = Y.copy(), LABELS.copy()
    two_nans[7:9], late[5] = np.nan, -2.0
    for model, data, message in (
        (orthogonal(), (X, two_nans), r"Y\[7, 0\] is nan; remove or impute the 2 rows"),
        (
            ODVGP(parts()[0], gpflow.likelihoods.Poisson(), GAMMA, BETA),
            (X, late),
            r"Y\[5, 0\] = -2 is outside the support of Poisson.*\(1 entries are outside\)",
        ),
        (
            orthogonal(num_latent_gps=2),
            (X, Y),
            "Y has 1 columns and the model expects 2 .*num_latent_gps=1",
        ),
        (
            orthogonal(),
            (np.tile(X, 2) * [1.0, 2.0], Y),
            "X has 2 columns and the inducing points have 1; they must be the same inputs",
        ),
    ):
        with pytest.raises(DataError, match=message):
            _fit(model, data)


def test_models_of_gpflow_that_fit_does_not_take() -> None:
    with pytest.raises(ModelError, match="fit takes models of the classes .*SVGP.*, and got GPR"):
        _fit(gpflow.models.GPR((X, Y), parts()[0]), (X, Y))
    with pytest.raises(TypeError, match="q_diag=True has no full covariance.*q_diag=False"):
        _fit(gpflow.models.SVGP(*parts(), BETA, q_diag=True), (X, Y))


def test_batch_size_of_a_dataset_is_its_own() -> None:
    message = r"batch_size=9 is for arrays; a dataset brings its own: use dataset.batch\(9\)"
    with pytest.raises(DataError, match=message):
        _fit(orthogonal(num_data=60), dataset.batch(20), batch_size=9)


def test_missing_num_data_is_refused_or_warned_of() -> None:
    message = "A dataset does not tell its size in rows: pass num_data=N to the model"
    with pytest.raises(DataError, match=message):
        _fit(orthogonal(), dataset.batch(9))
    message = "Minibatches need the size of the whole data set: pass num_data=N to the model"
    with pytest.raises(DataError, match=message):
        orthogonal().training_loss_closure(iter(dataset.batch(9)))
    closure = orthogonal(num_data=60).training_loss_closure(iter(dataset.batch(9)), compile=False)
    assert np.isfinite(closure())
    message = "num_data is not set: the data passed are taken as the whole data set"
    with pytest.warns(UserWarning, match=message):
        alone = orthogonal().elbo((X, Y))
    assert float(alone) == pytest.approx(float(orthogonal(num_data=60).elbo((X, Y))), rel=1e-12)


@pytest.mark.exhaustive
def test_num_data() -> None:
    message = "num_data=61 and the data have 60 rows; if these are all .* model.num_data = 60"
    with pytest.raises(DataError, match=message):
        _fit(orthogonal(num_data=61), (X, Y))
    expected = orthogonal(num_data=60).elbo((X, Y))
    for num_data in (np.int64(60), 60.0, tf.constant(60), tf.Variable(60.0)):
        assert float(orthogonal(num_data=num_data).elbo((X, Y))) == float(expected)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("gamma", [0, 2, float("nan")])
def test_step_sizes_that_are_known_at_the_step(gamma: float) -> None:
    model = orthogonal(num_data=60)
    before = values(model)
    for given in (tf.Variable(gamma, dtype=tf.float64), lambda: gamma):
        with pytest.raises(DataError, match=r"gamma=.* must be a number above 0 and at most 1\."):
            NaturalGradient(given).minimize(model, (X, Y))
    assert unchanged(before, model)
    with pytest.raises(DataError, match=r"gamma=None must be a number above 0"):
        NaturalGradient(None)


@pytest.mark.exhaustive
@pytest.mark.parametrize("make", [ODVGP, HDVGP, SOLVEGP])
def test_points_are_checked_against_each_other(make: Callable) -> None:
    with pytest.raises(DataError, match="All 5 rows of gamma are also rows of beta.*choose gamma"):
        make(*parts(), BETA, BETA)
    message = "1 of the 9 rows of gamma are also rows of beta and add nothing"
    with pytest.warns(UserWarning, match=message):
        make(*parts(), np.concatenate([GAMMA, BETA[:1]]), BETA)
    message = (
        r"gamma has shape \[8, 2\] and beta \[5, 1\]: both need rank 2 and as many columns as X"
    )
    with pytest.raises(DataError, match=message):
        make(*parts(), np.tile(GAMMA, 2), BETA)
    with pytest.raises(DataError, match=r"beta has shape \[5\], but must be \[M, D\]; use beta\["):
        make(*parts(), GAMMA, BETA[:, 0])


def test_inducing_variables_of_gpflow_are_checked() -> None:
    Z = gpflow.inducing_variables.InducingPoints(np.tile(BETA, 2))
    for model in (gpflow.models.SVGP(*parts(), Z), BasisGP(*parts(), gd.bases.CoupledBasis(Z))):
        with pytest.raises(DataError, match="X has 1 columns and the inducing points have 2"):
            _fit(model, (X, Y))
    with pytest.raises(DataError, match="duplicate rows"):
        _fit(gpflow.models.SVGP(*parts(), np.concatenate([BETA, BETA])), (X, Y))


def test_numbers_of_latent_functions_that_disagree_are_refused() -> None:
    likelihood = gpflow.likelihoods.MultiClass(3)
    with pytest.raises(DataError, match="num_latent_gps says 1, the likelihood MultiClass says 3"):
        ODVGP(gpflow.kernels.Matern32(), likelihood, GAMMA, BETA, num_latent_gps=1)


MAKES: dict[str, Callable[[Any, Any], object]] = {
    "ODVGP": lambda k, p: ODVGP(k, p, np.tile(GAMMA, 2), np.tile(BETA, 2)),
    "SparseCVIGP": lambda k, p: SparseCVIGP(k, p, np.tile(BETA, 2)),
    "BasisGP": lambda k, p: BasisGP(k, p, gd.bases.CoupledBasis(np.tile(BETA, 2))),
    "CVIGP": lambda k, p: CVIGP((np.tile(X, 2), Y), k, p),
    "LCLGP": lambda k, p: LCLGP((np.tile(X, 2), Y), k, p),
    "AffineIndependentGP": lambda k, p: AffineIndependentGP((np.tile(X, 2), Y), k, p),
}


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize("name", MAKES)
def test_kernel_and_likelihood(name: str) -> None:
    kernel, likelihood = parts()
    message = "kernel is the likelihood Gaussian and likelihood the kernel .*; swap them"
    with pytest.raises(DataError, match=message):
        MAKES[name](likelihood, kernel)
    kernels = gpflow.kernels
    ard = kernels.Matern52(lengthscales=[1.0, 2.0]) * kernels.Matern32(active_dims=[1])
    MAKES[name](ard + kernels.Periodic(kernels.RBF()), likelihood)


HANDLED = {
    "more points than rows": (
        (X[:4], Y[:4]),
        "beta has 5 points and the data 4 rows: the posterior needs no more points than rows",
    ),
    "one row": (
        (X[:1], Y[:1]),
        r"There is one observation \(N = 1\): the hyperparameters cannot be learned from it",
    ),
    "constant Y": (
        (X, 0 * Y + 3.0),
        r"Y\[:, 0\] is constant: noise and kernel variances will shrink towards zero",
    ),
}


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:beta has 5 points and the data 1 rows")
@pytest.mark.parametrize("data, message", HANDLED.values(), ids=HANDLED)
def test_odd_data_are_handled_with_a_warning(data: tuple, message: str) -> None:
    with pytest.warns(UserWarning, match=message):
        result = _fit(orthogonal(), data, steps=3)
    assert np.all(np.isfinite(result.history["elbo"])) and result.steps == 3


@pytest.mark.exhaustive
def test_constant_column_of_X_is_named() -> None:
    wide = np.concatenate([X, 0 * X + 2.0], axis=1)
    model = ODVGP(*parts(), wide[:8], wide[10:15])
    message = r"X\[:, 1\] is constant: it tells a stationary kernel nothing; leave it out"
    with pytest.warns(UserWarning, match=message):
        result = _fit(model, (wide, Y))
    assert np.isfinite(result.history["elbo"][0])


@pytest.mark.exhaustive
def test_column_that_picks_a_likelihood_may_be_constant() -> None:
    noises = [gpflow.likelihoods.Gaussian(), gpflow.likelihoods.Gaussian()]
    likelihood = gpflow.likelihoods.SwitchedLikelihood(noises)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        _fit(ODVGP(parts()[0], likelihood, GAMMA, BETA), (X, np.concatenate([Y, 0 * Y], axis=1)))


@pytest.mark.exhaustive
def test_values_are_checked_outside_of_graphs_alone() -> None:
    model = _classifier()
    for verb in ("elbo", "training_loss", "maximum_log_likelihood_objective"):
        with pytest.raises(DataError, match="outside the support of Bernoulli, which takes 0 or 1"):
            getattr(model, verb)((X, 2 * LABELS - 1))
    compiled = tf.function(lambda y: model.elbo((X, y)), autograph=False)
    assert np.isfinite(compiled(tf.constant(LABELS)))


@pytest.fixture(scope="module")
def predictors() -> dict[str, Any]:
    """A model of each family."""
    kernel, likelihood = parts()
    return {
        "inducing": orthogonal(num_data=60),
        "full": CVIGP((X, Y), kernel, likelihood),
        "affine": AffineIndependentGP((X[:12], Y[:12]), kernel, likelihood),
        "projected": DTC((X, Y), kernel, BETA),
    }


FAMILIES = ["inducing", "full", "affine", "projected"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FAMILIES)
def test_columns_are_checked_inside_of_graphs(name: str, predictors: dict) -> None:
    compiled = tf.function(lambda x: predictors[name].predict_y(x)[0], autograph=False)
    message = "Xnew has 2 columns and the model was made for 1; pass the columns"
    with pytest.raises(DataError, match=message):
        compiled(tf.constant(np.tile(NEW, 2)))
    assert compiled(tf.constant(NEW)).shape == (7, 1)


class Frame:
    """A shape and a conversion to an array, but no dtype, as data frames have it."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape = array, array.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.array if dtype is None else self.array.astype(dtype)


class Foreign(Frame):
    """An array of a library whose types are not NumPy's, as torch has."""

    dtype = "float64"

    def __getitem__(self, rows: Any) -> Foreign:
        return Foreign(self.array[rows])

    def __len__(self) -> int:
        return len(self.array)


TAKEN: dict[str, Callable[[np.ndarray], Any]] = {
    "lists": np.ndarray.tolist,
    "tensors": tf.constant,
    "variables": tf.Variable,
    "frames": Frame,
    "other libraries": Foreign,
    "no masked entry": lambda array: np.ma.masked_array(array, mask=False),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("kind", TAKEN)
def test_data_of_other_types_are_taken(kind: str) -> None:
    data = TAKEN[kind](X), TAKEN[kind](Y)
    result, expected = (_fit(orthogonal(), one, evaluation=one) for one in (data, (X, Y)))
    assert result.history["elbo"][0] == expected.history["elbo"][0]
    assert result.history["rmse"][-1] == expected.history["rmse"][-1]
    model = orthogonal(num_data=60)
    assert float(model.elbo(data)) == float(model.elbo((X, Y)))
    closure = model.training_loss_closure(list(data), compile=False)
    assert float(closure()) == pytest.approx(-result.history["elbo"][0])


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["int64", "int32", "bool", "uint8"])
def test_integer_labels_are_taken(kind: str) -> None:
    traces = [
        _fit(_classifier(), (X, labels), evaluation=(X, labels)).history
        for labels in (LABELS, LABELS.astype(kind))
    ]
    assert traces[0]["elbo"][0] == traces[1]["elbo"][0]
    assert traces[0]["log_density"][-1] == traces[1]["log_density"][-1]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FAMILIES)
def test_predictions_take_other_types(name: str, predictors: dict) -> None:
    model = predictors[name]
    for verb in ("predict_f", "predict_y"):
        expected = getattr(model, verb)(NEW)
        for convert in TAKEN.values():
            for found, wanted in zip(getattr(model, verb)(convert(NEW)), expected):
                np.testing.assert_array_equal(found, wanted)
    expected = model.predict_log_density((NEW, Y[:7]))
    np.testing.assert_array_equal(model.predict_log_density((Frame(NEW), Y[:7].tolist())), expected)


def test_draws_take_lists(predictors: dict) -> None:
    draws = (pathwise_samples(predictors["full"], 2)(x) for x in (NEW, NEW.tolist()))
    np.testing.assert_array_equal(*draws)


def test_types_are_those_of_the_model() -> None:
    model = orthogonal(num_data=60)
    expected = float(model.elbo((X, Y)))
    gpflow.config.set_default_float(np.float32)
    try:
        assert float(model.elbo((X, Y))) == expected
        with pytest.raises(DataError, match="X is float32 and the model float64"):
            model.elbo((X.astype(np.float32), Y))
    finally:
        gpflow.config.set_default_float(np.float64)


def _full_classifier() -> CVIGP:
    model = CVIGP((X, LABELS), gpflow.kernels.Matern52(), gd.likelihoods.BernoulliLogit())
    gpflow.set_trainable(model.kernel, False)
    return model


def _drawn(model: Any, data: Any) -> np.ndarray:
    pytest.importorskip("matplotlib").use("Agg")
    from gpflow_decoupled.wrappers.calibration import plot_calibration

    return plot_calibration(model, data).lines[-1].get_xydata()


SCORES: dict[str, Callable[[Any, Any], Any]] = {
    "certificate": lambda model, data: gd.certificates.pac_bayes_certificate(model, data),
    "classifiers": lambda model, data: gd.certificates.classifier_errors(model, data),
    "split": lambda model, data: gd.certificates.split_for_certificate(data),
    "selection": lambda model, data: str(
        gd.certificates.select_by_certificate(lambda _: model, [1], data)
    ),
    "calibration": _drawn,
    "held-out scores": lambda model, data: gd.training.held_out_metrics(model, data),
}
"""Functions that score a model on data, or prepare the data for that."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("score", SCORES)
def test_scores_of_lists_and_tensors_are_those_of_arrays(score: str) -> None:
    model = _full_classifier()
    found = SCORES[score](model, (X.tolist(), tf.constant(LABELS)))
    np.testing.assert_equal(found, SCORES[score](model, (X, LABELS)))


def test_rows_that_the_prior_was_learned_on_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="also in learned_on"):
        gd.certificates.pac_bayes_certificate(
            _full_classifier(), (X, LABELS), learned_on=(X.tolist(), tf.constant(LABELS))
        )


def test_points_of_a_picture_have_the_columns_of_the_model(predictors: dict) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    with pytest.raises(DataError, match=r"X has shape \(60, 1\) and Y \(60,\)"):
        gd.wrappers.plots.plot_posterior_1d(predictors["inducing"], (X, Y[:, 0]))
