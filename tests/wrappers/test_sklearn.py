"""The estimators pass scikit-learn's own checks, and say what the models inside them say, in the
units of the data.
"""

from __future__ import annotations

from functools import partial

import gpflow
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpflow_decoupled.bases import CoupledBasis, OrthogonalBasis
from gpflow_decoupled.errors import DataError, UnknownOptionError
from gpflow_decoupled.models import NNGP, BasisGP
from gpflow_decoupled.training import FitResult, Schedule
from gpflow_decoupled.wrappers.sklearn import (
    DecoupledGPClassifier,
    DecoupledGPRegressor,
    held_out_rows,
    how_to_go_on,
)

# eager steps of size 1 from the present values: nothing to trace, and a handful of them is enough
# for small data
EAGER = {
    "initialize": None,
    "compile": False,
    "natural_gradient": 1.0,
    "schedule": Schedule(ramp_steps=0, anneal=0.0),
    "learning_rate": 0.1,
}
FAST = {"num_inducing": 20, "num_mean_points": 0, "fit_options": EAGER}


def _not_repeated(_) -> dict[str, str]:
    return {
        "check_sample_weight_equivalence_on_dense_data": (
            "a weight is importance in any unit, as of surveys and classes, and not a number of"
            " copies: these would teach that there is no noise. test_weights_are_no_copies"
            " measures it, test_weights_are_relative_and_zero_removes has the half that holds"
        )
    }


# the checks' tables of a few rows say nothing of y, or all of it, and the models say so
_SAID = (
    "The bound (still rises|fell)|The (learned noise variance|noise variance is at its floor)|"
    "The mean squared standardised leave-one-out error"
)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings(f"ignore:({_SAID})")
@parametrize_with_checks(
    [DecoupledGPRegressor(steps=4, **FAST), DecoupledGPClassifier(steps=6, **FAST)],
    expected_failed_checks=_not_repeated,
)
def test_scikit_learn_accepts(estimator, check) -> None:
    check(estimator)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings(f"ignore:({_SAID})")
@parametrize_with_checks(
    [
        DecoupledGPRegressor(),
        DecoupledGPClassifier(),
        DecoupledGPRegressor(num_neighbours=10, steps=20),
        DecoupledGPClassifier(num_neighbours=10, steps=20),
    ],
    expected_failed_checks=_not_repeated,
)
def test_scikit_learn_accepts_defaults_and_neighbours(estimator, check) -> None:
    check(estimator)


@pytest.mark.parametrize("kind", [DecoupledGPRegressor, DecoupledGPClassifier])
def test_each_verb_asks_for_fit_first(kind) -> None:
    verbs = ("predict", "predict_proba", "predict_quantiles", "sample_y")
    for verb in filter(partial(hasattr, kind), verbs):
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            getattr(kind(), verb)(np.zeros((3, 2)))


@pytest.mark.exhaustive
def test_weights_are_no_copies() -> None:
    """Three copies of each row leave no noise to learn; weights of 3 change nothing."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 6.0, (40, 1))
    y = np.sin(X[:, 0]) + 0.3 * rng.standard_normal(40)
    one, weighted, copied = (
        DecoupledGPRegressor().fit(X.repeat(times, axis=0), y.repeat(times), weight)
        for times, weight in ((1, None), (1, np.full(40, 3.0)), (3, None))
    )
    errors = [float(np.std(model.predict(X) - np.sin(X[:, 0]))) for model in (one, copied)]
    np.testing.assert_allclose(weighted.predict(X), one.predict(X), atol=1e-3)
    assert errors[0] < 0.15 and errors[1] > 0.25


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [{}, {"num_neighbours": 8}, {"validation_fraction": 0.2}])
@pytest.mark.parametrize("kind", [DecoupledGPRegressor, DecoupledGPClassifier])
def test_weights_are_relative_and_zero_removes(kind, options) -> None:
    """The half of scikit-learn's check of weights that holds: 0 removes a row, to the last digit;
    and a factor of all changes nothing.
    """
    rng = np.random.default_rng(0)
    X, y, weight = rng.uniform(size=(30, 2)), rng.integers(0, 2, 30), rng.integers(0, 3, 30)
    X[weight == 0] *= 1e4
    y[weight == 0] = 9
    model = kind(steps=3, fit_options={"compile": False}, **options)
    found = [
        clone(model).fit(X[rows], y[rows], sample_weight=factor * weight[rows])
        for rows, factor in ((slice(None), 1.0), (weight > 0, 1.0), (slice(None), 4.0))
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].predict(X), other.predict(X))
    if kind is DecoupledGPClassifier:
        assert list(found[0].classes_) == [0, 1]


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(10.0, 30.0, (60, 2))
    return X, 500.0 + 100.0 * np.sin(X[:, 0] / 3.0) + rng.standard_normal(60)


@pytest.fixture(scope="module")
def regressor(data) -> DecoupledGPRegressor:
    return DecoupledGPRegressor(
        steps=12, num_inducing=20, num_mean_points=15, fit_options=EAGER
    ).fit(*data)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:The bound still rises")
@pytest.mark.filterwarnings("ignore:The mean squared standardised")  # the start is far off
def test_many_rows_with_gaussian_noise_have_neighbours() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(10.0, 30.0, (2001, 1))
    y = 500.0 + 100.0 * np.sin(X[:, 0] / 3.0) + rng.standard_normal(2001)
    # no time to learn: the kernel and the noise at the start will do for these data
    regressor = DecoupledGPRegressor(steps=None, seconds=1e-3).fit(X, y)
    assert isinstance(regressor.model_, NNGP)
    new = np.linspace(10.0, 30.0, 20)[:, None]
    mean, std = regressor.predict(new, return_std=True)
    np.testing.assert_allclose(mean, 500.0 + 100.0 * np.sin(new[:, 0] / 3.0), atol=3.0)
    np.testing.assert_allclose(regressor.predict(new, return_cov=True)[1].diagonal(), std**2)
    with pytest.raises(UnknownOptionError, match="natural_gradient"):
        DecoupledGPRegressor(fit_options={"natural_gradient": 0.5}).fit(X, y)
    points = DecoupledGPRegressor(num_inducing=5, steps=1, fit_options=EAGER).fit(X, y)
    assert isinstance(points.model_, BasisGP)


@pytest.mark.exhaustive
def test_predictions_are_those_of_the_model_in_the_units_of_y(data, regressor) -> None:
    X, y = data
    mean, std = regressor.predict(X, return_std=True)
    model_mean, model_variance = regressor.model_.predict_y((X - X.mean(axis=0)) / X.std(axis=0))
    np.testing.assert_allclose(mean, y.mean() + y.std() * model_mean.numpy()[:, 0], rtol=1e-10)
    np.testing.assert_allclose(std, y.std() * np.sqrt(model_variance.numpy()[:, 0]), rtol=1e-10)
    assert regressor.score(X, y) > 0.9
    assert isinstance(regressor.model_.basis, OrthogonalBasis)
    assert regressor.result_.steps == 12


@pytest.mark.exhaustive
def test_rows_are_predicted_in_blocks(data, regressor, monkeypatch) -> None:
    whole = regressor.predict(data[0], return_std=True)
    monkeypatch.setattr("gpflow_decoupled.wrappers.sklearn._BLOCK", 7)
    np.testing.assert_allclose(regressor.predict(data[0], return_std=True), whole, rtol=1e-10)


@pytest.mark.exhaustive
def test_samples_have_the_moments_of_f(data, regressor) -> None:
    X, y = data[0][:3], data[1]
    samples = regressor.sample_y(X, 4000, random_state=1)
    assert samples.shape == (3, 4000)
    mean, cov = regressor.model_.predict_f(regressor.X_scaler_.transform(X), full_cov=True)
    deviation = y.std() * np.sqrt(np.diag(cov.numpy()[0]))
    expected = y.mean() + y.std() * mean.numpy()[:, 0]
    assert np.all(np.abs(samples.mean(axis=1) - expected) < 5.0 * deviation / np.sqrt(4000))
    np.testing.assert_allclose(
        np.cov(samples), y.std() ** 2 * cov.numpy()[0], rtol=0.2, atol=0.05 * deviation.max() ** 2
    )


@pytest.mark.exhaustive
def test_it_starts_from_the_data_where_no_kernel_is_given(data) -> None:
    X, y = data
    fast = {
        **FAST,
        "steps": 1,
        "fit_options": {key: EAGER[key] for key in EAGER if key != "initialize"},
    }
    start = DecoupledGPRegressor(**fast).fit(X, y).result_.start
    assert start.rows == len(X) and start.after > start.before
    own = DecoupledGPRegressor(gpflow.kernels.Matern52(), **fast).fit(X, y)
    noise = DecoupledGPRegressor(likelihood=gpflow.likelihoods.Gaussian(0.1), **fast).fit(X, y)
    counts = DecoupledGPRegressor(likelihood="poisson", **fast).fit(X, np.round(y / 100.0))
    labels = DecoupledGPClassifier(**fast).fit(X, y > 500.0)
    assert all(one.result_.start is None for one in (own, noise, counts, labels))
    two = DecoupledGPRegressor(**fast).fit(X, np.stack([y, -y], axis=1)).result_.start
    assert two.after == pytest.approx(2.0 * start.after, rel=1e-3)  # one kernel for both


@pytest.mark.exhaustive
def test_several_targets(data) -> None:
    X, y = data
    Y = np.stack([y, -2.0 * y], axis=1)
    model = DecoupledGPRegressor(steps=4, **FAST).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (60, 2)
    np.testing.assert_allclose(std[:, 1], 2.0 * std[:, 0])
    assert model.sample_y(X[:3], 2).shape == (3, 2, 2)


@pytest.mark.exhaustive
def test_counts_are_not_standardised(data) -> None:
    counts = np.random.default_rng(0).poisson(5.0, 60)
    model = DecoupledGPRegressor(likelihood=gpflow.likelihoods.Poisson(), steps=2, **FAST).fit(
        data[0], counts
    )
    assert model.y_scaler_ is None
    np.testing.assert_allclose(model.predict(data[0]).mean(), counts.mean(), rtol=0.5)
    assert model.sample_y(data[0][:3], 2).shape == (3, 2)


@pytest.mark.exhaustive
def test_grades_have_probabilities() -> None:
    X, stars = np.arange(6.0)[:, None], np.array([1, 1, 2, 2, 5, 5])
    options = {"likelihood": "ordinal", "steps": 2, **FAST}
    model = DecoupledGPClassifier(**options).fit(X, stars, np.ones(6))
    shares = model.predict_proba(X)
    assert shares.shape == (6, 3) and np.all(np.abs(shares.sum(1) - 1.0) < 1e-12)
    assert np.mean(model.predict(X) == stars) > 0.6
    with pytest.raises(DataError, match="words, such as 'good', in no order"):
        DecoupledGPClassifier(**options).fit(X, np.array(["good", "ill"])[(stars > 1).astype(int)])


@pytest.mark.exhaustive
def test_few_rows_need_no_more_points_than_rows(data) -> None:
    X, y = data
    model = DecoupledGPRegressor(steps=1, num_inducing=300, fit_options=EAGER).fit(
        np.repeat(X[:5], 2, axis=0), y[:10]
    )
    assert isinstance(model.model_.basis, CoupledBasis)
    assert model.model_.basis.beta.Z.shape == (5, 2)


@pytest.mark.exhaustive
def test_data_frames_pipelines_and_grid_search(data) -> None:
    X = pd.DataFrame(data[0], columns=["length", "width"])
    labels = np.where(data[1] > 500.0, "high", "low")
    classifier = DecoupledGPClassifier(steps=4, **FAST)
    pipeline = make_pipeline(FunctionTransformer(), classifier)
    grid = {"decoupledgpclassifier__num_inducing": [5, 15]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, labels)
    assert list(search.best_estimator_[-1].feature_names_in_) == ["length", "width"]
    assert search.score(X, labels) > 0.8
    with pytest.raises(ValueError, match="feature names"):
        search.predict(X.rename(columns={"length": "height"}))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [DecoupledGPRegressor, DecoupledGPClassifier])
def test_a_pipeline_with_set_output_passes_names_on(data, kind) -> None:
    """The estimators transform nothing, so that it is the transformers before them that set it."""
    X = pd.DataFrame(data[0], columns=["length", "width"])
    y = data[1] if kind is DecoupledGPRegressor else np.where(data[1] > 500.0, "high", "low")
    pipeline = make_pipeline(StandardScaler(), kind(steps=1, **FAST))
    model = pipeline.set_output(transform="pandas").fit(X, y)[-1]
    assert list(model.feature_names_in_) == ["length", "width"]
    assert list(model.standardized_.table.names) == ["length", "width"]
    plain = kind(steps=1, **FAST).fit(pipeline[0].transform(X), y)
    assert np.all(pipeline.predict(X) == plain.predict(pipeline[0].transform(X)))
    assert not hasattr(model, "set_output")


def test_probabilities_are_those_of_the_model(data) -> None:
    X, labels = data[0], np.where(data[1] > 500.0, "high", "low")
    classifier = DecoupledGPClassifier(steps=4, **FAST).fit(X, labels)
    probability = classifier.predict_proba(X)
    assert list(classifier.classes_) == ["high", "low"]
    low, _ = classifier.model_.predict_y(classifier.X_scaler_.transform(X))
    np.testing.assert_allclose(probability[:, 1], low.numpy()[:, 0])
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    assert np.mean(classifier.predict(X) == labels) > 0.8


@pytest.mark.exhaustive
def test_labels_by_neighbours(data) -> None:
    X, y = data
    classifier = DecoupledGPClassifier(
        num_neighbours=8, steps=1, fit_options={"compile": False}
    ).fit(X, np.where(y > 500.0, "high", "low"))
    assert isinstance(classifier.model_, NNGP) and classifier.model_.num_neighbours == 8
    chances = classifier.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert classifier.score(X, np.where(y > 500.0, "high", "low")) > 0.8


def test_a_kernel_is_an_argument_or_made_for_the_inputs_and_never_changed(data) -> None:
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 2.0])
    given = clone(DecoupledGPRegressor(kernel, steps=2, **FAST)).fit(*data)
    assert not np.allclose(given.model_.kernel.lengthscales, [1.0, 2.0])
    np.testing.assert_array_equal(given.kernel.lengthscales, [1.0, 2.0])
    made = DecoupledGPRegressor(
        lambda D: gpflow.kernels.Matern32(lengthscales=[3.0] * D), steps=2, **FAST
    ).fit(*data)
    assert isinstance(made.model_.kernel, gpflow.kernels.Matern32)
    assert made.model_.kernel.lengthscales.shape == (2,)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_inducing": 0}, "num_inducing=0 must be a whole number of at least 1"),
        ({"num_mean_points": -1}, "num_mean_points=-1"),
        ({"steps": 0}, "steps=0"),
    ],
)
def test_bad_options_are_refused_in_fit(data, options, message) -> None:
    with pytest.raises(DataError, match=message):
        DecoupledGPRegressor(**(FAST | options)).fit(*data)


def test_one_class_is_refused(data) -> None:
    with pytest.raises(DataError, match="y has one class"):
        DecoupledGPClassifier(steps=1, **FAST).fit(data[0], np.zeros(60))


def test_one_observation_is_refused(data) -> None:
    with pytest.raises(DataError, match="n_samples = 1"):
        DecoupledGPRegressor(steps=1, **FAST).fit(data[0][:1], data[1][:1])


@pytest.mark.exhaustive
def test_training_stops_when_held_out_rows_no_longer_improve(monkeypatch) -> None:
    """The targets are noise, of which there is nothing to learn for long; the reason is in the
    result.
    """
    monkeypatch.setattr("gpflow_decoupled.wrappers.sklearn._EVERY", 1)
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((50, 2)), rng.standard_normal(50)
    options = FAST | {"num_inducing": 4, "steps": 60}
    stopped = DecoupledGPRegressor(validation_fraction=0.2, n_iter_no_change=2, **options).fit(X, y)
    assert stopped.result_.reason == "no improvement in 2 evaluations"
    assert stopped.result_.steps < 60 and stopped.standardized_.shape[0] == 40
    again = clone(stopped).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), stopped.predict(X))


@pytest.mark.exhaustive
def test_a_run_that_still_improved_says_how_to_go_on(monkeypatch) -> None:
    """The limit that was reached is named, with its numbers; `standardized_.fit` goes on from
    there.
    """
    monkeypatch.setattr("gpflow_decoupled.wrappers.sklearn._EVERY", 5)
    X = np.random.default_rng(1).uniform(0.0, 6.0, (80, 1))
    y = np.sin(X[:, 0])
    short = DecoupledGPRegressor(validation_fraction=0.2, **FAST | {"steps": 30})
    with pytest.warns(
        ConvergenceWarning, match=r"\(steps done\).*last quarter of 30 steps.*pass steps=60;"
    ) as caught:
        short.fit(X, y)
    # beside it `fit` says that the bound still rises
    (said,) = [one for one in caught if one.category is ConvergenceWarning]
    assert "standardized_.fit(steps=30)" in str(said.message) and said.filename == __file__
    more = short.standardized_.fit(steps=10, progress=False, **EAGER)
    assert more.elbo > short.result_.elbo


@pytest.mark.parametrize(
    "reason, density, expected",
    [
        ("steps done", [0.0, 0.1, 0.2, 0.3], "steps=80"),
        ("time is up", [0.0, 0.1, 0.2, 0.3], "seconds=24"),
        ("time is up", [0.0, 0.1, 0.3, 0.3], ""),
        ("time is up", [0.0, 0.4, 0.2, 0.3], ""),
        ("interrupted", [0.0, 0.1, 0.2, 0.3], ""),
        ("no improvement in 2 evaluations", [0.0, 0.1, 0.2, 0.3], ""),
    ],
)
def test_only_a_run_that_still_improved_is_to_go_on(reason, density, expected) -> None:
    history = {
        "evaluation_step": np.array([10.0, 20.0, 30.0, 40.0]),
        "log_density": np.array(density),
    }
    result = FitResult(
        elbo=0.0,
        steps=40,
        seconds=12.0,
        history=history,
        converged=False,
        reason=reason,
        compile_seconds=0.0,
    )
    advice = how_to_go_on(result)
    assert (f"pass {expected};" in advice) if expected else advice == ""


@pytest.mark.exhaustive
def test_the_same_share_of_each_class_is_held_out() -> None:
    """Rounded down, so that a class of one row is trained on."""
    labels = np.array(["a", "b", "c"])[np.r_[np.zeros(40, int), np.ones(24, int), 2]]
    out = held_out_rows(labels, 0.2, np.random.RandomState(0))
    assert [int(out[labels == name].sum()) for name in "abc"] == [8, 4, 0]
    X = np.random.default_rng(1).standard_normal((65, 2))
    options = FAST | {"num_inducing": 4, "steps": 1}
    classifier = DecoupledGPClassifier(validation_fraction=0.2, **options).fit(X, labels)
    assert classifier.standardized_.shape[0] == 65 - 12 and classifier.predict_proba(X).shape == (
        65,
        3,
    )
    assert DecoupledGPClassifier(**options).fit(X, labels).standardized_.shape[0] == 65


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"validation_fraction": 0.0},
            "validation_fraction=0.0: pass a share of the rows above 0 and below 1, or None",
        ),
        ({"validation_fraction": 1.0}, "validation_fraction=1.0: pass a share"),
        ({"validation_fraction": "0.1"}, "validation_fraction='0.1': pass a share"),
        ({"validation_fraction": 0.01}, "validation_fraction=0.01 of 60 rows holds out none"),
        ({"validation_fraction": 0.1, "n_iter_no_change": 0}, "n_iter_no_change"),
        (
            {"validation_fraction": 0.1, "fit_options": {"evaluation": ([[0.0]], [[0.0]])}},
            "both hold out rows",
        ),
    ],
)
def test_bad_shares_of_held_out_rows_are_refused(data, options, message) -> None:
    with pytest.raises(DataError, match=message):
        DecoupledGPRegressor(steps=1, **options).fit(*data)
