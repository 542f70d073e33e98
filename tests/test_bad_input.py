"""Bad input: refused before the first step, with a message that names the array and the fix, and
nothing changed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, ModelError
from gpflow_decoupled.models import HDVGP, ODVGP, SOLVEGP
from tests.training.problems import BETA, GAMMA, MODELS, orthogonal, parts, sine, unchanged, values

X, Y = sine()
LABELS = (Y > 0).astype(float)


def _with(array: np.ndarray, place: Any, value: float) -> np.ndarray:
    array = array.copy()
    array[place] = value
    return array


def _fit(model: Any, data: Any, **options: Any) -> gd.training.FitResult:
    return gd.fit(model, data, **{"steps": 1, "progress": False, "compile": False, **options})


def _classifier(likelihood: gpflow.likelihoods.Likelihood) -> Callable[[], ODVGP]:
    return lambda: ODVGP(gpflow.kernels.SquaredExponential(), likelihood, GAMMA, BETA)


two_outputs = lambda: orthogonal(num_latent_gps=2)  # noqa: E731
dataset = tf.data.Dataset.from_tensor_slices((X, Y))

BAD_SHAPES = {
    "Y rank 1": (orthogonal, (X, Y[:, 0]), r"Y has shape \(60,\); use Y\[:, None\]"),
    "Y rank 3": (orthogonal, (X, Y[..., None]), r"Y has shape \(60, 1, 1\); Y must be a matrix"),
    "X rank 1": (orthogonal, (X[:, 0], Y), r"X has shape \(60,\); use X\[:, None\]"),
    "Y with two columns": (
        orthogonal,
        (X, np.tile(Y, 2)),
        (
            r"Y has 2 columns and the model expects 1 \(Gaussian on 1 outputs\); pass"
            r" num_latent_gps=2 to the model, or"
        ),
    ),
    "Y with one column of two": (
        two_outputs,
        (X, Y),
        "Y has 1 columns and the model expects 2 .*num_latent_gps=1",
    ),
    "two columns of labels": (
        _classifier(gpflow.likelihoods.MultiClass(3)),
        (X, np.tile(LABELS, 2)),
        r"Y has 2 columns and the model expects 1 \(MultiClass on 3 outputs\)",
    ),
    "different lengths": (
        orthogonal,
        (X, Y[:-1]),
        "X has 60 rows and Y has 59; they must be the same observations",
    ),
    "X of the wrong dimension": (
        orthogonal,
        (np.tile(X, 2) * [1.0, 2.0], Y),
        "X has 2 columns and the inducing points have 1; they must be the same inputs",
    ),
    "float32 X": (
        orthogonal,
        (X.astype(np.float32), Y),
        r"X is float32 and the model float64; use X.astype\(np.float64\)",
    ),
    "float32 Y": (
        orthogonal,
        (X, Y.astype(np.float32)),
        r"Y is float32 and the model float64; use Y.astype\(np.float64\)",
    ),
    "integer X": (
        orthogonal,
        (np.arange(60)[:, None], Y),
        r"X is int64 and the model float64; use X.astype\(np.float64\)",
    ),
    "text in Y": (
        orthogonal,
        (X, np.full((60, 1), "cat")),
        "Y holds string values; encode them as numbers",
    ),
    "objects in X": (
        orthogonal,
        (X.astype(object), Y),
        r"X is \w+ and the model float64; use X.astype\(np.float64\)",
    ),
    "X without columns": (
        orthogonal,
        (X[:, :0], Y),
        "X has no columns; pass a matrix with at least one",
    ),
    "Y without columns": (
        orthogonal,
        (X, Y[:, :0]),
        "Y has no columns; pass a matrix with at least one",
    ),
    "complex Y": (orthogonal, (X, Y + 1j), "Y holds complex128 values; encode them as numbers"),
}

BAD_VALUES = {
    "NaN in X": (
        orthogonal,
        (_with(X, (4, 0), np.nan), Y),
        r"X\[4, 0\] is nan; remove or impute the 1 rows",
    ),
    "NaN in Y": (
        orthogonal,
        (X, _with(Y, slice(7, 9), np.nan)),
        r"Y\[7, 0\] is nan; remove or impute the 2 rows",
    ),
    "infinite Y": (orthogonal, (X, _with(Y, 3, -np.inf)), r"Y\[3, 0\] is -inf; remove or impute"),
    "no rows": (orthogonal, (X[:0], Y[:0]), "X and Y have no rows; there is nothing to learn from"),
    "labels -1 and 1": (
        _classifier(gpflow.likelihoods.Bernoulli()),
        (X, 2 * LABELS - 1),
        (
            r"Y\[\d+, 0\] = -1 is outside the support of Bernoulli, which takes 0 or 1; recode Y"
            r" \(\d+ entries"
        ),
    ),
    "class 3 of 3": (
        _classifier(gpflow.likelihoods.MultiClass(3)),
        (X, 3 * LABELS),
        r"Y\[\d+, 0\] = 3 is outside the support of MultiClass, which takes whole numbers 0 to 2",
    ),
    "negative count": (
        _classifier(gpflow.likelihoods.Poisson()),
        (X, _with(LABELS, 5, -2)),
        (
            r"Y\[5, 0\] = -2 is outside the support of Poisson, which takes counts 0, 1, 2, .*\(1"
            r" entries are outside\)"
        ),
    ),
}


def _cases(table: dict) -> dict:
    return {"argvalues": list(table.values()), "ids": list(table)}


@pytest.mark.costly(keep=12)
@pytest.mark.parametrize("make, data, message", **_cases({**BAD_SHAPES, **BAD_VALUES}))
def test_fit_refuses_bad_data(make: Callable, data: Any, message: str) -> None:
    model = make()
    before = values(model)
    with pytest.raises(DataError, match=message):
        _fit(model, data)
    assert unchanged(before, model) and model.num_data is None


@pytest.mark.costly(keep=6)
@pytest.mark.parametrize("make, data, message", **_cases({**BAD_SHAPES, **BAD_VALUES}))
def test_training_loss_closure_refuses_bad_data(make: Callable, data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make().training_loss_closure(data)


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize("make, data, message", **_cases(BAD_SHAPES))
@pytest.mark.parametrize("verb", ["elbo", "training_loss", "maximum_log_likelihood_objective"])
def test_bound_refuses_bad_shapes(make: Callable, data: Any, message: str, verb: str) -> None:
    model = make()
    model.num_data = 60
    with pytest.raises(DataError, match=message):
        getattr(model, verb)(data)


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("bad", ["Y rank 1", "Y with two columns", "float32 X"])
def test_every_model_refuses(name: str, bad: str) -> None:
    _, data, message = BAD_SHAPES[bad]
    model = MODELS[name]()
    before = values(model)
    with pytest.raises(DataError, match=message):
        _fit(model, data)
    assert unchanged(before, model)


@pytest.mark.parametrize(
    "data",
    [None, X, (X,), (X, Y, Y), {"X": X, "Y": Y}, iter([(X, Y)])],
    ids=lambda d: type(d).__name__,
)
def test_data_that_is_no_pair_is_refused(data: Any) -> None:
    with pytest.raises(
        DataError, match=r"data is a \w+; pass \(X, Y\), or a tf.data.Dataset of such pairs"
    ):
        _fit(orthogonal(), data)


def test_model_without_a_basis_is_refused() -> None:
    with pytest.raises(
        ModelError,
        match=(
            "fit takes models of the classes .*SVGP.*, and got GPR. GPR is not a model of this"
            " package"
        ),
    ):
        _fit(gpflow.models.GPR((X, Y), parts()[0]), (X, Y))
    with pytest.raises(TypeError, match="q_diag=True has no full covariance.*q_diag=False"):
        _fit(gpflow.models.SVGP(*parts(), BETA, q_diag=True), (X, Y))


BAD_DATASETS = {
    "not batched": (dataset, "single observations, not batches: use dataset.batch"),
    "empty": (dataset.take(0).batch(9), "The dataset has no batches; check what it is made from"),
    "a batch without rows": (
        dataset.batch(9).map(lambda x, y: (x[:0], y[:0])),
        "Batch 1 of the dataset has no rows",
    ),
    "no pair": (
        dataset.batch(9).map(lambda x, y: x),
        r"elements are .*they must be pairs \(X \[B, D\], Y \[B, P\]\)",
    ),
    "a dictionary": (dataset.batch(9).map(lambda x, y: {"x": x}), "they must be pairs"),
    "float32": (
        dataset.batch(9).map(lambda x, y: (tf.cast(x, tf.float32), y)),
        "X is float32 and the model float64",
    ),
    "two columns": (
        dataset.batch(9).map(lambda x, y: (x, tf.tile(y, [1, 2]))),
        "Y has 2 columns and the model expects 1",
    ),
    "NaN at once": (
        dataset.batch(9).map(lambda x, y: (x, y * np.nan)),
        r"Y\[0, 0\] is nan; remove or impute",
    ),
}


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize("data, message", **_cases(BAD_DATASETS))
def test_bad_datasets_are_refused(data: tf.data.Dataset, message: str) -> None:
    model = orthogonal(num_data=60)
    before = values(model)
    with pytest.raises(DataError, match=message):
        _fit(model, data)
    assert unchanged(before, model)


def test_batch_size_of_a_dataset_is_its_own() -> None:
    with pytest.raises(
        DataError,
        match=r"batch_size=9 is for arrays; a dataset brings its own: use dataset.batch\(9\)",
    ):
        _fit(orthogonal(num_data=60), dataset.batch(20), batch_size=9)


def test_missing_num_data_is_refused_or_warned_of() -> None:
    with pytest.raises(
        DataError, match="A dataset does not tell its size in rows: pass num_data=N to the model"
    ):
        _fit(orthogonal(), dataset.batch(9))
    with pytest.raises(
        DataError,
        match="Minibatches need the size of the whole data set: pass num_data=N to the model",
    ):
        orthogonal().training_loss_closure(iter(dataset.batch(9)))
    assert np.isfinite(
        orthogonal(num_data=60).training_loss_closure(iter(dataset.batch(9)), compile=False)()
    )
    with pytest.warns(
        UserWarning, match="num_data is not set: the data passed are taken as the whole data set"
    ):
        alone = orthogonal().elbo((X, Y))
    assert float(alone) == pytest.approx(float(orthogonal(num_data=60).elbo((X, Y))), rel=1e-12)


def test_num_data_that_disagrees_is_refused() -> None:
    with pytest.raises(
        DataError,
        match="num_data=61 and the data have 60 rows; if these are all .* model.num_data = 60",
    ):
        _fit(orthogonal(num_data=61), (X, Y))


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("make", [ODVGP, HDVGP, SOLVEGP])
def test_inducing_points_are_checked(make: Callable) -> None:
    with pytest.raises(
        DataError, match="beta has 1 duplicate rows: row 5 equals row 0.*must be distinct"
    ):
        make(*parts(), GAMMA, np.concatenate([BETA, BETA[:1]]))
    with pytest.raises(DataError, match="gamma has 1 duplicate rows"):
        make(*parts(), np.concatenate([GAMMA, GAMMA[:1]]), BETA)
    with pytest.raises(
        DataError,
        match=(
            "All 5 rows of gamma are also rows of beta, so that gamma adds nothing: choose gamma by"
        ),
    ):
        make(*parts(), BETA, BETA)
    with pytest.warns(
        UserWarning, match="1 of the 9 rows of gamma are also rows of beta and add nothing"
    ):
        make(*parts(), np.concatenate([GAMMA, BETA[:1]]), BETA)
    with pytest.raises(
        DataError,
        match=(
            r"gamma has shape \[8, 2\] and beta \[5, 1\]: both need .* the same number of columns"
        ),
    ):
        make(*parts(), np.tile(GAMMA, 2), BETA)
    with pytest.raises(
        DataError, match=r"beta has shape \[5\], but must be \[M, D\]; use beta\[:, None\]"
    ):
        make(*parts(), GAMMA, BETA[:, 0])


def test_inducing_variable_of_the_wrong_dimension_is_refused() -> None:
    Z = gpflow.inducing_variables.InducingPoints(np.tile(BETA, 2))
    for model in (
        gpflow.models.SVGP(*parts(), Z),
        gd.models.BasisGP(*parts(), gd.bases.CoupledBasis(Z)),
    ):
        with pytest.raises(DataError, match="X has 1 columns and the inducing points have 2"):
            _fit(model, (X, Y))
    with pytest.raises(DataError, match="duplicate rows"):
        _fit(gpflow.models.SVGP(*parts(), np.concatenate([BETA, BETA])), (X, Y))


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


@pytest.mark.costly(keep=1)
@pytest.mark.filterwarnings("ignore:beta has 5 points and the data 1 rows")
@pytest.mark.parametrize("data, message", **_cases(HANDLED))
def test_odd_data_are_handled_with_a_warning(data: tuple, message: str) -> None:
    with pytest.warns(UserWarning, match=message):
        result = _fit(orthogonal(), data, steps=3)
    assert np.all(np.isfinite(result.history["elbo"])) and result.steps == 3


def test_constant_column_of_X_is_named() -> None:
    wide = np.concatenate([X, 0 * X + 2.0], axis=1)
    model = ODVGP(*parts(), wide[:8], wide[10:15])
    with pytest.warns(
        UserWarning,
        match=r"X\[:, 1\] is constant: it tells a stationary kernel nothing; leave it out",
    ):
        result = _fit(model, (wide, Y))
    assert np.isfinite(result.history["elbo"][0])


def test_column_that_picks_a_likelihood_may_be_constant() -> None:
    likelihood = gpflow.likelihoods.SwitchedLikelihood(
        [gpflow.likelihoods.Gaussian(), gpflow.likelihoods.Gaussian()]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        _fit(ODVGP(parts()[0], likelihood, GAMMA, BETA), (X, np.concatenate([Y, 0 * Y], axis=1)))


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("kind", ["int64", "int32", "bool", "uint8"])
def test_integer_labels_are_accepted(kind: str) -> None:
    traces = [
        _fit(
            _classifier(gpflow.likelihoods.Bernoulli())(), (X, labels), evaluation=(X, labels)
        ).history
        for labels in (LABELS, LABELS.astype(kind))
    ]
    assert traces[0]["elbo"][0] == traces[1]["elbo"][0]
    assert traces[0]["log_density"][-1] == traces[1]["log_density"][-1]


class _Frame:
    """What a DataFrame has: a shape and a conversion to an array, but no dtype."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape = array, array.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.array if dtype is None else self.array.astype(dtype)


KINDS = {
    "lists": np.ndarray.tolist,
    "tensors": tf.constant,
    "variables": tf.Variable,
    "frames": _Frame,
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("kind", KINDS)
def test_lists_tensors_and_frames_are_accepted(kind: str) -> None:
    convert = KINDS[kind]
    data = convert(X), convert(Y)
    result = _fit(orthogonal(), data, evaluation=data)
    expected = _fit(orthogonal(), (X, Y), evaluation=(X, Y))
    assert result.history["elbo"][0] == expected.history["elbo"][0]
    assert result.history["rmse"][-1] == expected.history["rmse"][-1]
    assert float(orthogonal(num_data=60).elbo(data)) == float(orthogonal(num_data=60).elbo((X, Y)))
    assert float(
        orthogonal(num_data=60).training_loss_closure(list(data), compile=False)()
    ) == pytest.approx(-result.history["elbo"][0])


def test_frame_of_rank_1_is_refused() -> None:
    with pytest.raises(DataError, match=r"Y has shape \(60,\); use Y\[:, None\]"):
        _fit(orthogonal(), (_Frame(X), _Frame(Y[:, 0])))


def test_numbers_of_latent_functions_that_disagree_are_refused() -> None:
    with pytest.raises(
        DataError,
        match="num_latent_gps says 1, the likelihood MultiClass says 3; change one of them",
    ):
        ODVGP(
            gpflow.kernels.Matern32(),
            gpflow.likelihoods.MultiClass(3),
            GAMMA,
            BETA,
            num_latent_gps=1,
        )


def test_linear_models_need_columns() -> None:
    for make in (gd.models.CVIGLM, gd.models.LCLGLM, gd.models.AffineIndependentGLM):
        with pytest.raises(DataError, match="X has no columns"):
            make((X[:, :0], LABELS), gd.likelihoods.BernoulliLogit())
