"""Data frames: each kind of column by its rule, everything by name, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import gpflow
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.training.tables import Table
from gpflow_decoupled.wrappers.sklearn import DecoupledGPClassifier, DecoupledGPRegressor

EAGER = {"compile": False, "progress": False, "steps": 3}
ROWS = 40


def _frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    cities = rng.choice(["Bath", "York", "Bristol"], ROWS)
    frame = pd.DataFrame(
        {
            "area": rng.uniform(30.0, 200.0, ROWS),
            "city": cities,
            "garden": rng.uniform(size=ROWS) < 0.5,
            "sold": pd.Timestamp("2019-03-01") + pd.to_timedelta(rng.integers(1, 900, ROWS), "D"),
            "rooms": pd.array(rng.integers(1, 6, ROWS), dtype="Int64"),
        }
    )
    noise = rng.standard_normal(ROWS)
    frame["price"] = 1000.0 * frame.area + 5e4 * (cities == "Bath") + 1e3 * noise
    frame.loc[0, "sold"] = pd.Timestamp("2019-03-01")
    frame.loc[3, "area"], frame.loc[7, "city"], frame.loc[9, "rooms"] = np.nan, None, pd.NA
    frame.loc[[4, 5], "price"] = np.nan
    return frame


FRAME = _frame()
KNOWN = FRAME[FRAME.price.notna()]


@pytest.fixture(scope="module")
def model() -> gd.Standardized:
    made = gd.build(FRAME, "price", verbose=False)
    gd.fit(made, FRAME, **EAGER)
    return made


def test_each_kind_has_its_columns() -> None:
    """Beside scikit-learn's transformer of the same frame, fitted to the data themselves."""
    table, X, Y = Table.learn(*Table.split(FRAME, "price"))
    assert table.names == [
        "area", "area missing", "city=(missing)", "city=Bath", "city=Bristol", "city=York",
        "garden", "sold", "rooms", "rooms missing",
    ]  # fmt: skip
    plain = KNOWN.assign(
        city=KNOWN.city.astype(object).fillna("(missing)"),
        garden=KNOWN.garden.astype(float),
        sold=(KNOWN.sold - pd.Timestamp("2019-03-01")).dt.days.astype(float),
        rooms=KNOWN.rooms.astype(float),
    )
    gaps = SimpleImputer(strategy="median", add_indicator=True)
    peer = ColumnTransformer(
        [
            ("a", gaps, ["area"]),
            ("c", OneHotEncoder(sparse_output=False), ["city"]),
            ("n", "passthrough", ["garden", "sold"]),
            ("r", gaps, ["rooms"]),
        ]
    )
    np.testing.assert_array_equal(X, peer.fit_transform(plain))
    np.testing.assert_array_equal(Y[:, 0], KNOWN.price)
    assert table.left_out == 2 and table.targets == ("price",)


@pytest.mark.exhaustive
def test_the_rules_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    gd.build(FRAME, "price")
    said = capsys.readouterr().out
    for line in (
        "of 38 rows and 10 columns",
        "area: number; 1 missing: ",
        "city: 4 categories, a column of 0 and 1 for each ((missing), Bath, Bristol, York)",
        "garden: true or false, as 1 or 0",
        "sold: date, in days since 2019-03-01",
        "2 rows without a target left out",
        "fit(model, frame)",
    ):
        assert line in said


@pytest.mark.exhaustive
def test_columns_are_read_by_name(model) -> None:
    mean = model.predict_y(FRAME)[0].numpy()
    other = FRAME[FRAME.columns[::-1]].assign(more="words")
    np.testing.assert_array_equal(model.predict_y(other)[0], mean)
    np.testing.assert_allclose(model.predict_y(FRAME[:3])[0], mean[:3], rtol=1e-12)
    assert model.predict_y(FRAME[:0])[0].shape == (0, 1)  # as for arrays
    density = model.predict_log_density(FRAME).numpy()
    assert len(density) == ROWS - 2
    pair = KNOWN.drop(columns="price"), KNOWN.price
    np.testing.assert_array_equal(model.predict_log_density(pair), density)
    scores = gd.training.held_out_metrics(model, pair)
    assert scores["log_density"] == pytest.approx(density.mean())


@pytest.mark.exhaustive
def test_numbers_are_scaled_and_columns_of_0_and_1_are_not(model) -> None:
    scaled = np.isin(model.table.names, ["area", "sold", "rooms"])
    np.testing.assert_array_equal(model.inputs.scale.numpy() != 1.0, scaled)
    distances = gd.build(FRAME, "price", verbose=False).model.kernel.lengthscales
    np.testing.assert_allclose(distances, np.sqrt(5.0))  # five columns of the frame


def test_an_unknown_category_is_as_far_as_all_others() -> None:
    """Beside the exact posterior of a fourth level, in NumPy; levels are 2^(1/2) apart."""
    words = pd.DataFrame({"word": np.repeat(["a", "b", "c"], 4)})
    y = np.repeat([0.0, 5.0, -5.0], 4)

    def build(X: np.ndarray, Y: np.ndarray) -> gpflow.models.GPR:
        return gpflow.models.GPR((X, Y), gpflow.kernels.Matern32(20.0, 0.8), noise_variance=0.5)

    model = gd.Standardized(build, (words, y), scale_outputs=False)
    new = pd.DataFrame({"word": ["new", "b"]})
    with pytest.warns(UserWarning, match=r"column 'word' has words .* in 1 rows: 'new' \(1 row\)"):
        mean, variance = (part.numpy()[:, 0] for part in model.predict_f(new))
    distance = np.sqrt(3.0 * 2.0) / 0.8
    levels = np.where(np.eye(4), 20.0, 20.0 * (1.0 + distance) * np.exp(-distance))
    code, asked = np.repeat([0, 1, 2], 4), [3, 1]
    cross = levels[np.ix_(asked, code)] @ np.linalg.inv(
        levels[np.ix_(code, code)] + 0.5 * np.eye(12)
    )
    np.testing.assert_allclose(mean, cross @ y, rtol=1e-5, atol=1e-8)
    left = 20.0 - np.sum(cross * levels[np.ix_(asked, code)], axis=1)
    np.testing.assert_allclose(variance, left, rtol=1e-5)


def test_what_training_did_not_have_is_counted() -> None:
    frame = pd.DataFrame({"city": ["Bath", "York", "205", "York"], "area": np.arange(4.0)})
    table, _, _ = Table.learn(frame, np.arange(4.0))
    cities = ["BATH", "York ", "205.0", "York "]
    said = "'York ' .2 rows; training has 'York'., 'BATH' .1 row; training has 'Bath'., '205.0' .1"
    with pytest.warns(UserWarning, match=f"in 4 rows: {said} row; training has '205'."):
        table.inputs(frame.assign(city=cities))
    with pytest.warns(UserWarning, match="column 'city' .* in 1 rows: '.missing.' .1 row.. "):
        table.inputs(frame.assign(city=["Bath", None, "York", "Bath"]))
    with pytest.warns(UserWarning, match="column 'area' is missing in 2 rows, .* median, 1.5"):
        X = table.inputs(frame.assign(area=[np.nan, 1.0, np.nan, 3.0]))
    np.testing.assert_array_equal(X[:, 3], [1.5, 1.0, 1.5, 3.0])


class _Column:
    """A column as polars has it: `to_list` has its zones, and its pandas frame needs pyarrow."""

    def __init__(self, name: str, entries: list, categories: pd.Index | None = None) -> None:
        self.name, self.entries = name, entries
        self.dtype = SimpleNamespace(categories=categories)

    def to_list(self) -> list:
        return self.entries

    def to_frame(self) -> object:
        return SimpleNamespace(columns=[self.name], schema={}, get_columns=lambda: [self])


def test_frames_of_other_libraries_are_read_by_columns() -> None:
    """As polars has them, without pyarrow."""
    grades = pd.Index(["low", "high", "never"])
    frame = FRAME.assign(grade=pd.Categorical(["low", "high"] * (ROWS // 2), grades))
    columns = [
        _Column(
            name,
            [None if missing else entry for entry, missing in zip(frame[name], frame[name].isna())],
            grades if name == "grade" else None,
        )
        for name in frame
    ]
    other = SimpleNamespace(columns=[*frame], schema={}, get_columns=lambda: columns)
    table, X, Y = Table.learn(*Table.split(frame, "price"))
    theirs = Table.learn(*Table.split(other, "price"))
    assert theirs[0] == table
    np.testing.assert_array_equal(theirs[1], X)
    np.testing.assert_array_equal(theirs[2], Y)
    assert Table.learn(X[:, :1], columns[-1], labels=0)[0].classes == ("low", "high")
    with pytest.raises(DataError, match=r"a SimpleNamespace has no rows yet: pass frame.collect"):
        Table.split(SimpleNamespace(columns=[], collect_schema=None), "price")


@pytest.mark.parametrize("names", [[0, 1, 2], [("a", "x"), ("a", "y"), ("b", "z")]])
def test_names_may_be_numbers_and_tuples(names: list) -> None:
    frame = pd.DataFrame(np.arange(12.0).reshape(4, 3))
    frame.columns = pd.MultiIndex.from_tuples(names) if names[0] else names
    for target in (names[2], names[2:]):
        table, X, Y = Table.learn(*Table.split(frame, target))
        np.testing.assert_array_equal(X, frame.to_numpy()[:, :2])
        np.testing.assert_array_equal(Y, frame.to_numpy()[:, 2:])
        assert table.arrays(frame)[1].shape == (4, 1)
    observed = [0, 1, 0, 1]
    assert Table.split(frame, observed)[1] is observed
    with pytest.raises(DataError, match="has no column 'b'; its columns are"):
        Table.split(frame, "b")


@pytest.mark.exhaustive
def test_it_is_saved_and_copied(model, tmp_path) -> None:
    gd.save(model, tmp_path / "model.zip")
    expected = model.predict_y(FRAME)[0]
    for twin in (gd.load(tmp_path / "model.zip"), gpflow.utilities.deepcopy(model)):
        np.testing.assert_array_equal(twin.predict_y(FRAME[FRAME.columns[::-1]])[0], expected)


def test_other_kinds_of_columns() -> None:
    frame = pd.DataFrame(
        {
            "grade": pd.Categorical(["low", "high", "mid"], ["low", "mid", "high", "never"]),
            "took": pd.to_timedelta([12.0, 24.0, 36.0], "h"),
            "month": pd.period_range("2020-01", periods=3, freq="M"),
            "sure": pd.array([True, None, False], dtype="boolean"),
        }
    )
    table, X, Y = Table.learn(frame, [1.0, 2.0, 4.0])
    assert table.names[:3] == ["grade=low", "grade=mid", "grade=high"]
    np.testing.assert_array_equal(X[:, 3], [0.5, 1.0, 1.5])
    np.testing.assert_array_equal(X[:, 4], [0.0, 31.0, 60.0])
    np.testing.assert_array_equal(X[:, 5:], [[1.0, 0.0], [0.5, 1.0], [0.0, 0.0]])
    np.testing.assert_array_equal(Y, [[1.0], [2.0], [4.0]])


def test_durations_are_no_numbers() -> None:
    """Which pandas would take for nanoseconds."""
    frame = pd.DataFrame({"took": pd.to_timedelta([12.0, 24.0, 36.0], "h")})
    table, _, _ = Table.learn(frame, [1.0, 2.0, 4.0])
    for other in ([1.0, 2.0, 3.0], ["1", "2", "3"], [True, False, True]):
        with pytest.raises(DataError, match="column 'took' holds duration values in training"):
            table.inputs(pd.DataFrame({"took": other}))
    for missing in ([np.nan] * 3, [None] * 3, [pd.NaT] * 3):
        with pytest.warns(UserWarning, match="column 'took' is missing in 3 rows"):
            np.testing.assert_array_equal(table.inputs(pd.DataFrame({"took": missing})), 1.0)


def test_a_whole_number_is_one_category_in_any_type() -> None:
    numbers = np.array([1, 3, 3, 2])
    for kind in (int, float):
        frame = pd.DataFrame({"grade": pd.Categorical(numbers.astype(kind))})
        table, X, _ = Table.learn(frame, np.arange(4.0))
        assert table.names == ["grade=1", "grade=2", "grade=3"]
        for other in (numbers, numbers.astype(float), numbers.astype(str)):
            np.testing.assert_array_equal(table.inputs(pd.DataFrame({"grade": other})), X)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
@pytest.mark.parametrize("kind", [list, lambda Y: np.array(Y, dtype=object)])
def test_a_missing_label_is_no_class(missing: object, kind) -> None:
    with pytest.raises(DataError, match=r"Y\[2\] is no label but missing, like 1 in all"):
        Table.learn(np.eye(4), kind(["a", "b", missing, "a"]), labels=0)


def test_targets_are_read_by_name() -> None:
    table, _, Y = Table.learn(FRAME[["area"]], FRAME[["price", "rooms"]].dropna(), gaps=True)
    both = FRAME[["rooms", "price"]].dropna()
    np.testing.assert_array_equal(table.outputs(both), Y)
    with pytest.raises(DataError, match="the data frame lacks 'rooms', of the columns"):
        table.outputs(both.rename(columns={"rooms": "baths"}))


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("kind", ["series", "words", "frame"])
def test_classes_have_names(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    X = np.arange(6.0)[:, None]
    words = np.array(["no", "yes", "no", "maybe", "yes", "no"])
    Y = {"series": pd.Series(words), "words": words, "frame": "said"}[kind]
    frame = pd.DataFrame({"x": X[:, 0], "said": words})
    model = gd.build(frame if kind == "frame" else X, Y, "multiclass")
    assert "classes 0, 1, ...: maybe, no, yes" in capsys.readouterr().out
    data = frame if kind == "frame" else (X, Y)
    gd.fit(model, data, **EAGER)
    assert model.table.classes == ("maybe", "no", "yes")
    assert model.predict_log_density(data).shape == 6
    numbers = model.table.outputs(words)
    np.testing.assert_array_equal(numbers[:, 0], [1, 2, 1, 0, 2, 1])
    with pytest.raises(DataError, match="Y has the class 'never', and training had maybe, no, yes"):
        model.predict_log_density((X, np.full(6, "never")))


def test_grades_need_an_order() -> None:
    """Words in alphabetical order would be silent nonsense."""
    words = ["low", "high", "mid", "low", "high", "mid"]
    order = pd.Categorical(words, categories=["low", "mid", "high", "best"], ordered=True)
    frame = pd.DataFrame({"x": np.arange(6.0), "grade": order})
    model = gd.build(frame, "grade", "ordinal", verbose=False)
    assert model.table.classes == ("low", "mid", "high")
    np.testing.assert_array_equal(model.model.data[1][:3, 0], [0.0, 2.0, 1.0])
    stars = frame.assign(grade=pd.Categorical([9, 1, 2, 9, 1, 2], categories=[9, 2, 1]))
    assert gd.build(stars, "grade", "ordinal", verbose=False).table.classes == (1, 2, 9)
    moments = model.predict_f(frame[["x"]])
    shares = model.likelihood.probabilities(*moments).numpy()
    expected = [
        model.predict_log_density((frame[["x"]], [word] * 6)) for word in order.categories[:3]
    ]
    np.testing.assert_allclose(shares, np.exp(expected).T, rtol=1e-9)
    for Y in (frame.grade.astype(str), np.array(words), pd.Series(order.as_unordered())):
        with pytest.raises(DataError, match="has words, such as 'low', in no order.*ordered=True"):
            gd.build(frame[["x"]], Y, "ordinal", verbose=False)


@pytest.mark.exhaustive
def test_a_vector_is_one_output_and_single_precision_is_taken() -> None:
    """`fit` takes what `build` took (labels in float32, too)."""
    X, y = np.arange(12.0)[:, None], np.sin(np.arange(12.0))
    for likelihood, observed in (("gaussian", y), ("poisson", np.round(y + 2.0))):
        for kind in (np.float64, np.float32):
            data = X.astype(kind), observed.astype(kind)
            model = gd.build(*data, likelihood, verbose=False)
            gd.fit(model, data, **EAGER)
            assert model.predict_log_density(data).dtype == np.float64


@pytest.mark.parametrize(
    "change, message",
    [
        ({"city": None}, "lacks 'city', of the columns that the model was made of"),
        ({"area": "x"}, "column 'area' holds number values in training and others here"),
        ({"area": np.inf}, "column 'area' is inf in row 0"),
        ({"sold": "yesterday, perhaps"}, "column 'sold' holds date values in training"),
        ({"area": FRAME.sold}, "column 'area' holds number values .*datetime64 values"),
        ({"area": FRAME.sold - FRAME.sold.min()}, "column 'area' .*timedelta64 values"),
    ],
)
def test_what_does_not_fit_at_prediction_is_named(model, change: dict, message: str) -> None:
    dropped = [name for name, value in change.items() if value is None]
    frame = FRAME.drop(columns=dropped) if dropped else FRAME.assign(**change)
    with pytest.raises(DataError, match=message):
        model.predict_y(frame)


@pytest.mark.parametrize(
    "X, Y, message",
    [
        (FRAME, "cost", "the data frame has no column 'cost'; its columns are 'area', 'city'"),
        (np.eye(3), "price", "Y='price' names columns, and X is a ndarray"),
        (FRAME, "city", "the target 'city' holds category values; .*likelihood=\"multiclass\""),
        (FRAME.assign(id=[f"id {row}" for row in range(ROWS)]), "price",
         r"column 'id' has 38 different words in 38 rows.*drop\(columns=\['id'\]\)"),
        (FRAME.assign(empty=np.nan), "price", "column 'empty' has no entries: leave it out"),
        (FRAME.assign(mix=[1, "a"] * (ROWS // 2)), "price", "column 'mix' holds mixed-integer"),
        (FRAME.assign(wave=1j), "price", "column 'wave' holds complex values"),
        (pd.concat([FRAME, FRAME[["area"]]], axis=1), "price", "two columns 'area'; rename one"),
        (FRAME.iloc[:0], "price", "none of the 0 rows has a target 'price'"),
        (FRAME.assign(price=np.nan), "price", r"none of the \d+ rows has a target 'price'"),
        (FRAME[["area"]][:5], FRAME.price[:4], "X has 5 rows and Y has 4"),
    ],
)  # fmt: skip
def test_bad_frames_are_refused(X: object, Y: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        gd.build(X, Y, verbose=False)


def test_rows_and_frames_of_arrays_are_refused(model) -> None:
    with pytest.raises(DataError, match=r"a single row or column; pass a frame"):
        model.predict_y(FRAME.iloc[0])
    arrays = gd.build(np.arange(5.0)[:, None], np.arange(5.0), verbose=False)
    with pytest.raises(DataError, match=r"the model was made of arrays; pass \(X, Y\)"):
        gd.fit(arrays, FRAME, **EAGER)


@pytest.mark.exhaustive
def test_messages_name_the_columns_of_the_frame() -> None:
    frame = _frame().dropna().assign(floor=1.0)
    with pytest.warns(UserWarning, match=r"X\[:, \d+\] \(column 'floor'\) is constant"):
        model = gd.build(frame, "price", verbose=False)
    place = list(model.table.names).index("area")
    lengths = model.model.kernel.lengthscales.numpy()
    lengths[place] = 1e4
    model.model.kernel.lengthscales.assign(lengths)
    with pytest.warns(UserWarning, match=r"X\[:, \d+\] \(column 'area'\) has a range of"):
        gd.fit(model, frame, **EAGER)
    arrays = model.table.arrays(frame)
    with pytest.warns(UserWarning, match=r"X\[:, \d+\] is constant"):
        gd.build(*arrays, verbose=False)


@pytest.mark.exhaustive
def test_estimators_take_frames() -> None:
    """Of an index of floats pandas 2 read blocks of rows by label: 27 of 60 predictions."""
    labelled = KNOWN.set_axis(np.repeat(np.linspace(50.0, 0.5, len(KNOWN) // 2), 2))
    X, y = labelled.drop(columns="price"), labelled.price
    options = {"steps": 3, "num_inducing": 10, "num_mean_points": 0}
    options["fit_options"] = {"compile": False, "initialize": None}
    regressor = DecoupledGPRegressor(validation_fraction=0.2, **options).fit(X, y)
    assert list(regressor.feature_names_in_) == list(X.columns) and regressor.n_features_in_ == 5
    mean, std = regressor.predict(X, return_std=True)
    np.testing.assert_array_equal(regressor.predict(X.reset_index(drop=True)), mean)
    again, cov = regressor.predict(X, return_cov=True)
    np.testing.assert_allclose(again, mean)
    np.testing.assert_allclose(np.diag(cov), std**2)
    f_cov = regressor.standardized_.predict_f(X, full_cov=True)[1].numpy()[0]
    np.testing.assert_allclose(cov - np.diag(np.diag(cov)), f_cov - np.diag(np.diag(f_cov)))
    low, middle, high = regressor.predict_quantiles(X).T
    np.testing.assert_allclose(middle, mean)
    np.testing.assert_allclose(high - low, 2.0 * 1.6448536 * std)
    with pytest.raises(DataError, match=r"quantiles=\(0.0, 0.5\): pass numbers above 0"):
        regressor.predict_quantiles(X, (0.0, 0.5))
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        regressor.predict(X[X.columns[::-1]])
    classifier = DecoupledGPClassifier(**options).fit(X, np.where(y > y.median(), "dear", "cheap"))
    assert set(classifier.predict(X)) <= {"dear", "cheap"}


@pytest.mark.parametrize("name", ["area", None])
def test_one_column_is_a_series(name: str | None) -> None:
    """X may be a column, which is remembered by name; rows without a target are left out."""
    area = FRAME.area.rename(name)
    price = FRAME.price.where(FRAME.index != 3)
    model, twin = (gd.build(x, price, verbose=False) for x in (area, FRAME[["area"]].to_numpy()))
    assert list(model.table.names) == [name or "0"]
    assert model.shape == twin.shape
    known = area[FRAME.index != 3]
    expected = twin.predict_y(known.to_numpy()[:, None])[0]
    np.testing.assert_allclose(model.predict_y(known)[0], expected)
    np.testing.assert_allclose(model.predict_y(known.to_frame())[0], expected)
    assert gd.fit(model, (area, price), **EAGER).steps >= 1
    with pytest.raises(DataError, match=f"pass a frame, .* with {name or 0!r}"):
        model.predict_y(area.rename("floor"))


@pytest.mark.exhaustive
def test_one_column_of_words_or_dates_is_a_series() -> None:
    words = gd.build(FRAME.city, FRAME.price, verbose=False)
    assert words.table.columns[0].kind == "category"
    dates = gd.build(FRAME.sold, FRAME.price, season="year", verbose=False)
    assert np.all(np.isfinite(dates.predict_y(FRAME.sold)[0]))


_SHUFFLED = KNOWN.sample(frac=1.0, random_state=0)


@pytest.mark.parametrize("name", ["Y", "sample_weight", "noise_variance", "exposure"])
def test_rows_in_another_order_are_refused(name: str) -> None:
    """Read by position a Series of the same labels had an RMSE of 0.68 for 0.05."""
    X, column = KNOWN[["area"]], _SHUFFLED.price
    wanted = rf"same row labels in another order: .*{name}\.loc\[X.index\]; .*{name}\.to_numpy"
    given = {"Y": KNOWN.price, name: column}
    with pytest.raises(DataError, match=wanted):
        gd.build(X, **given, verbose=False)
    estimator = DecoupledGPRegressor(steps=1)
    with pytest.raises(DataError, match=wanted.replace("Y", "y")):
        estimator.fit(X, given.pop("Y"), **given)
    gd.build(X, KNOWN.price.set_axis(range(len(KNOWN))), verbose=False)  # other labels


def test_later_rows_in_another_order_are_refused() -> None:
    X, y = KNOWN[["area"]], KNOWN.price
    model = gd.build(X, y, verbose=False)
    for ask in (
        lambda: gd.fit(model, (X, _SHUFFLED.price), **EAGER),
        lambda: model.predict_log_density((X, _SHUFFLED.price)),
        lambda: model.predict_y(X, noise_variance=_SHUFFLED.price),
    ):
        with pytest.raises(DataError, match="same row labels in another order"):
            ask()


@pytest.mark.filterwarnings("ignore:Y.* is constant")
@pytest.mark.parametrize(
    "likelihood, labels, numbers, classes",
    [
        ("bernoulli", [1] * 4, [1] * 4, (0, 1)),
        ("probit", [True] * 4, [1] * 4, (False, True)),
        ("bernoulli", [0.0] * 4, [0] * 4, (0.0, 1.0)),
        ("bernoulli", [-1, 1, 1, -1], [0, 1, 1, 0], (-1, 1)),
        (gd.likelihoods.CategoricalLogit(3), [2, 0, 2, 2], [2, 0, 2, 2], (0, 1, 2)),
        ("bernoulli", pd.Categorical(["y"] * 4, ["n", "y"]), [1] * 4, ("n", "y")),
    ],
)
def test_labels_that_are_numbers_keep_them(likelihood, labels, numbers, classes) -> None:
    """Ones alone were class 0: a frame in which all had y = 1 predicted 0.0007."""
    frame = pd.DataFrame({"x": np.arange(4.0), "y": labels})
    model = gd.build(frame, "y", likelihood, verbose=False)
    assert model._Y[:, 0].tolist() == numbers and model.table.classes == classes


@pytest.mark.parametrize("labels", [["yes"] * 4, [7] * 4])
def test_one_class_of_other_labels_is_refused(labels: list) -> None:
    frame = pd.DataFrame({"x": np.arange(4.0), "y": labels})
    with pytest.raises(DataError, match=r"Y has one class, ('yes'|7), .* or labels 0 and 1"):
        gd.build(frame, "y", "bernoulli", verbose=False)


def test_counts_of_trials_are_no_labels() -> None:
    """They were numbered in order, like classes: 3, 7 and 12 of 20 became 0, 1 and 2."""
    frame = pd.DataFrame({"x": np.arange(4.0), "y": [3, 7, 12, 7], "n": 20})
    model = gd.build(frame, "y", "bernoulli", trials="n", verbose=False)
    assert model._Y[:, 0].tolist() == [3, 7, 12, 7] and model.table.classes == ()
