"""Columns of words with many levels: one column of codes and one lengthscale, through everything
that a built model does.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

import gpflow_decoupled as gd
from gpflow_decoupled.building.choice import CODED_ABOVE
from gpflow_decoupled.covariances.mixed import Mixed, MixedMatern12, MixedMatern52
from gpflow_decoupled.training.tables import Table
from gpflow_decoupled.wrappers.effects import importance, partial_dependence, sobol_shares
from gpflow_decoupled.wrappers.sklearn import DecoupledGPRegressor
from tests.reference.mixed import RADIAL, distances, one_hot

SHOPS, ROWS = 2 * CODED_ABOVE, 150
RNG = np.random.default_rng(3)
SHOP = RNG.integers(SHOPS, size=ROWS)
EFFECTS = 3.0 * RNG.normal(size=SHOPS)
FRAME = pd.DataFrame(
    {
        "x": RNG.uniform(0.0, 6.0, ROWS),
        "shop": [f"s{code:03d}" for code in SHOP],
        "kind": np.where(RNG.random(ROWS) < 0.5, "old", "young"),
    }
)
FRAME["y"] = EFFECTS[SHOP] + np.sin(FRAME.x) + 0.2 * RNG.normal(size=ROWS)
NEW = (
    FRAME.head(6).drop(columns="y").assign(shop=["s001", "s002", "s003", "other", "other", "more"])
)
_OF_NAMES = "ignore:column 'shop' has words"


def _built(**options: object) -> gd.Standardized:
    model = gd.build(FRAME, "y", verbose=False, **options)
    inside = model.model.kernel
    inside.lengthscales.assign([0.8, 1.1, 2.0, 3.0])
    model.model.likelihood.variance.assign(0.05)
    if not options:  # an exact GP gets its posterior by training
        gpflow.set_trainable(model.model.kernel, False)
        gpflow.set_trainable(model.model.likelihood, False)
        model.fit(progress=False)
    return model


def _reference(model: gd.Standardized, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Covariances [N + B, N + B] of training and new rows at one-hot columns, and y [N]."""
    shops = {word: code for code, word in enumerate([*model.table.columns[1].categories, *words])}
    rows = pd.concat([FRAME.drop(columns="y"), NEW])
    x = (rows.x - FRAME.x.mean()) / FRAME.x.std(ddof=0)
    kinds = np.column_stack([rows.kind == "old", rows.kind == "young"])
    X = np.column_stack([x, rows.shop.map(shops), kinds]).astype(float)
    lengths = np.array([0.8, 1.1, 2.0, 3.0])
    name = model.model.kernel.radial.__name__
    K = model.model.kernel.variance.numpy() * RADIAL[name](distances(one_hot(X, lengths, [1])))
    return K, ((FRAME.y - FRAME.y.mean()) / FRAME.y.std(ddof=0)).to_numpy()


@pytest.mark.exhaustive
@pytest.mark.filterwarnings(_OF_NAMES)
@pytest.mark.parametrize("options", [{}, {"num_neighbours": ROWS - 1}], ids=["exact", "neighbours"])
def test_predictions_are_those_of_columns_of_0_and_1(options: dict) -> None:
    model, scale = _built(**options), FRAME.y.std(ddof=0)
    assert model.shape == (ROWS, 4) and isinstance(model.model.kernel, Mixed)
    K, y = _reference(model, ["other", "more"])
    noise = 0.05 * np.eye(ROWS)
    if options:
        noise += 1e-6 * model.model.kernel.variance.numpy() * np.eye(ROWS)
    seen, cross = K[:ROWS, :ROWS] + noise, K[ROWS:, :ROWS]
    weights = cross @ np.linalg.inv(seen)
    model.model.spread_neighbours = None
    if options:
        model.model.prediction_neighbours = ROWS
    mean, variance = (part.numpy()[:, 0] for part in model.predict_f(NEW))
    assert_allclose(mean, weights @ y * scale + FRAME.y.mean(), rtol=1e-5)
    left = np.diag(K)[ROWS:] - np.sum(weights * cross, axis=1)
    assert_allclose(variance, left * scale**2, rtol=1e-4)
    _, cov = model.predict_f(NEW, full_cov=True)  # rows of one new word are near each other
    joint = K[ROWS:, ROWS:] - weights @ cross.T
    assert_allclose(cov[0], joint * scale**2, rtol=1e-4, atol=1e-4)
    sign, size = np.linalg.slogdet(2.0 * np.pi * seen)
    density = -0.5 * (size + y @ np.linalg.solve(seen, y)) - ROWS * np.log(scale)
    evidence = model.evidence()
    assert_allclose([evidence.lower, evidence.upper], density, rtol=1e-3, atol=0.1)
    if options:
        inverse = np.linalg.inv(seen)
        found = model.leave_one_out()
        alone = y - inverse @ y / np.diag(inverse)
        assert_allclose(found.mean[:, 0], alone * scale + FRAME.y.mean(), rtol=1e-4, atol=1e-4)


def test_an_unknown_word_has_the_spread_of_the_levels() -> None:
    model = gd.build(FRAME, "y", verbose=False)
    model.fit(progress=False)
    with pytest.warns(
        UserWarning, match=r"'shop' .* in 3 rows: 'other' \(2 rows\), 'more' \(1 row"
    ):
        _, variance = model.predict_f(NEW)
    known, unknown = np.split(np.asarray(variance)[:, 0], 2)
    assert np.all(unknown > 20.0 * known) and np.all(unknown < 5.0 * np.var(EFFECTS))
    assert np.all(unknown > 0.3 * np.var(EFFECTS))
    assert np.mean(np.abs(model.predict_y(FRAME)[0].numpy()[:, 0] - FRAME.y)) < 0.2


def test_the_start_reads_codes_as_levels() -> None:
    """Neither their size nor their order changes anything."""
    names = {word: f"t{np.sin(place):.6f}" for place, word in enumerate(sorted(set(FRAME.shop)))}
    models = [gd.build(frame, "y", verbose=False) for frame in (FRAME, FRAME.replace(names))]
    first, second = (model.model.kernel.lengthscales.numpy() for model in models)
    assert_allclose(first, second)
    assert first[1] <= 2.0


@pytest.mark.exhaustive
@pytest.mark.filterwarnings(_OF_NAMES, "ignore:The noise variance is at its floor")
@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"num_neighbours": 10}, marks=pytest.mark.exhaustive),
        pytest.param({"num_inducing": 20, "num_mean_points": 30}, marks=pytest.mark.exhaustive),
        pytest.param({"num_inducing": 20, "num_mean_points": "data"}, marks=pytest.mark.exhaustive),
        pytest.param({"likelihood": "poisson", "num_neighbours": 10}, marks=pytest.mark.exhaustive),
        pytest.param({"likelihood": "student_t"}, marks=pytest.mark.exhaustive),
        pytest.param({"likelihood": "heteroskedastic"}, marks=pytest.mark.exhaustive),
        pytest.param({"kernel": "auto", "num_neighbours": 10}, marks=pytest.mark.exhaustive),
    ],
    ids=str,
)
def test_every_model_trains_predicts_and_is_kept(options: dict, tmp_path: Path) -> None:
    frame = FRAME.assign(y=np.round(np.exp(FRAME.y / 4.0))) if "poisson" in str(options) else FRAME
    model = gd.build(frame, "y", verbose=False, **options)
    before = np.asarray(model.predict_f(NEW)[0])
    model.fit(progress=False, steps=2, **({} if "num_inducing" in options else {}))
    expected = np.stack(model.predict_f(NEW))
    assert np.all(np.isfinite(expected)) and not np.allclose(expected[0], before)
    if "num_inducing" in options:
        points = model.model.inducing_variable
        Z = np.asarray(
            getattr(points, "Z", getattr(points, "beta", None) or model.model.basis.beta.Z)
        )
        assert set(Z[:, 1]) <= set(range(SHOPS))
    gd.save(model, tmp_path / "model")
    again = gd.load(tmp_path / "model")
    assert_array_equal(np.stack(again.predict_f(NEW)), expected)
    # a row depends on no other row of its call
    alone = np.hstack([np.stack(model.predict_f(NEW.iloc[[row]])) for row in range(len(NEW))])
    assert_allclose(alone, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_a_posterior_is_exported(tmp_path: Path) -> None:
    inside = _built(num_neighbours=10).model
    inputs = np.array([[0.3, 2.0, 1.0, 0.0], [0.1, 2.0**23 + 5, 0.0, 1.0]])
    server = tf.Module()
    server.posterior = inside.posterior("variable")
    server.predict = tf.function(
        lambda X: server.posterior.predict_f(X),
        input_signature=[tf.TensorSpec([None, 4], tf.float64)],
        autograph=False,
    )
    tf.saved_model.save(server, str(tmp_path))
    served = tf.saved_model.load(str(tmp_path))
    assert_allclose(np.stack(served.predict(inputs)), np.stack(inside.predict_f(inputs)), rtol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [{}, {"num_neighbours": 10}], ids=["exact", "neighbours"])
def test_update_takes_new_levels_in(options: dict) -> None:
    model, more = _built(**options), FRAME.head(20).assign(shop="opened", y=50.0)
    with pytest.warns(UserWarning, match="'opened'"):
        variance = model.predict_f(more.head(1).drop(columns="y"))[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.update(more)
        mean, after = model.predict_f(more.head(1).drop(columns="y"))
    assert mean > 40.0 and (after < 0.1 * variance or "num_neighbours" in options)
    assert model.table.columns[1].categories[-1] == "opened"
    X, _ = model.training_data
    assert_array_equal(X[-20:, 1], len(model.table.columns[1].categories) - 1)


def test_an_update_that_fails_learns_no_word() -> None:
    model = _built(num_neighbours=10)
    with pytest.raises(gd.errors.DataError):
        model.update(FRAME.head(2).assign(shop="opened", y=np.inf))
    assert "opened" not in model.table.columns[1].categories


@pytest.mark.exhaustive
def test_effects_name_the_column() -> None:
    model = _built()
    found = importance(model, FRAME, repeats=2)
    assert found.loc["shop", "permutation"] > found.loc["kind", "permutation"]
    assert found.loc["shop", "lengthscale"] == pytest.approx(1.1)
    parts = partial_dependence(model, FRAME.head(30).drop(columns="y"), "shop")
    seen = sorted(set(FRAME.shop.head(30)))
    assert list(parts.index) == seen
    codes = [int(word[1:]) for word in seen]
    assert np.corrcoef(parts["mean"], EFFECTS[codes])[0, 1] > 0.9
    parts = [gpflow.kernels.Matern52(active_dims=[0]), gpflow.kernels.Matern12(active_dims=[1])]
    added = gd.build(FRAME, "y", kernel=sum(parts[1:], parts[0]), verbose=False)
    assert type(added.model.kernel.kernels[1]) is MixedMatern12
    gd.fit(added, progress=False)
    shares = sobol_shares(added, FRAME.drop(columns="y"))
    assert shares.index[0] == "shop" and shares["share"].iloc[0] > 0.6


@pytest.mark.exhaustive
def test_kernels_in_units_and_of_the_caller() -> None:
    made = _built()
    assert type(made.kernel).__mro__[1] is type(made.model.kernel)
    assert float(made.kernel.lengthscales.numpy()[1]) == pytest.approx(1.1)
    own = gd.build(FRAME, "y", kernel=gpflow.kernels.Matern52(2.0, 0.7), verbose=False)
    assert type(own.model.kernel) is MixedMatern52 and own.shape[1] == 4
    assert float(own.model.kernel.lengthscales.numpy()) == pytest.approx(0.7)
    other = gd.build(FRAME, "y", kernel=gpflow.kernels.Linear(), verbose=False)
    assert other.shape[1] == 1 + SHOPS + 2  # a linear kernel has a weight for each level


def test_few_levels_keep_their_columns() -> None:
    table, X, _ = Table.learn(FRAME[["shop", "kind"]], FRAME.y, coded_above=CODED_ABOVE)
    assert X.shape[1] == 3 and table.coded == [0] and not np.any(table.measured)
    assert str(table.columns[0]).startswith(f"shop: {SHOPS} categories, one lengthscale for all")


def test_seasons_stand_beside_categories() -> None:
    dates = pd.date_range("2021-01-01", periods=ROWS, freq="5D")
    frame = FRAME.drop(columns="x").assign(when=dates)
    model = gd.build(frame, "y", season="year", verbose=False)
    assert isinstance(model.model.kernel.kernels[0], Mixed)
    assert np.all(np.isfinite(model.predict_f(frame.drop(columns="y"))[0]))


@pytest.mark.exhaustive
def test_the_estimator_takes_a_frame() -> None:
    X = FRAME.drop(columns="y")
    fitted = DecoupledGPRegressor(steps=3).fit(X, FRAME.y)
    assert np.corrcoef(fitted.predict(X), FRAME.y)[0, 1] > 0.9
