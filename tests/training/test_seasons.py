"""Seasons of dates: their columns, and forecasts beside the seasonal naive one."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.training.tables import Table
from gpflow_decoupled.wrappers.effects import columns_of_inputs

QUIET = {"progress": False}


def _sales(months: int = 108) -> pd.DataFrame:
    """Logarithms that grow and have a season, which widens."""
    rng = np.random.default_rng(0)
    year = np.arange(months) / 12.0
    wave = np.sin(2.0 * np.pi * year) + 0.5 * np.cos(4.0 * np.pi * year)
    sales = 5.0 + 0.12 * year + 0.1 * (1.0 + 0.05 * year) * wave
    month = pd.date_range("2010-01-01", periods=months, freq="MS")
    return pd.DataFrame({"month": month, "sales": sales + 0.02 * rng.standard_normal(months)})


@pytest.fixture(scope="module")
def sales() -> pd.DataFrame:
    return _sales()


@pytest.fixture(scope="module")
def model(sales: pd.DataFrame) -> gd.Standardized:
    made = gd.build(sales[:84], "sales", season="year", verbose=False)
    gd.fit(made, **QUIET)
    return made


def test_a_date_gets_a_cosine_and_a_sine() -> None:
    frame = pd.DataFrame(
        {"day": pd.to_datetime(["2020-01-01", None, "2020-01-04"]), "y": [1.0, 2.0, 3.0]}
    )
    table, X, _ = Table.learn(frame[["day"]], frame["y"], seasons=(7.0, 365.2425))
    assert table.names[:4] == ["day", "day missing", "day cosine of 7 days", "day sine of 7 days"]
    assert table.measured is not None and not table.measured[2:].any()
    days = np.array([0.0, 1.5, 3.0])  # the gap has the median
    for column, period in ((2, 7.0), (4, 365.2425)):
        angle = 2.0 * np.pi * days / period
        np.testing.assert_allclose(X[:, column : column + 2], np.c_[np.cos(angle), np.sin(angle)])
    later = pd.DataFrame({"day": [pd.Timestamp("2020-01-08")]})
    np.testing.assert_allclose(table.inputs(later)[:, 2:4], [[1.0, 0.0]], atol=1e-12)


@pytest.mark.exhaustive
def test_a_forecast_beats_the_seasonal_naive(sales: pd.DataFrame, model: gd.Standardized) -> None:
    truth = sales.sales[84:].to_numpy()
    mean, variance = (np.asarray(part)[:, 0] for part in model.predict_y(sales[["month"]][84:]))
    naive = np.tile(sales.sales[72:84], 2)
    error, of_naive = (np.sqrt(np.mean((truth - by) ** 2)) for by in (mean, naive))
    assert error < 0.5 * of_naive
    assert np.mean(np.abs(truth - mean) < 1.96 * np.sqrt(variance)) > 0.8
    plain = gd.build(sales[:84], "sales", verbose=False)
    gd.fit(plain, **QUIET)
    without = np.asarray(plain.predict_y(sales[["month"]][84:])[0])[:, 0]
    assert error < 0.5 * np.sqrt(np.mean((truth - without) ** 2))


@pytest.mark.exhaustive
def test_it_is_said_saved_and_one_input(
    sales: pd.DataFrame, model: gd.Standardized, tmp_path: Path
) -> None:
    assert "month: its season of 365.243 days, as a cosine and a sine" in str(model.table)
    assert columns_of_inputs(model, 3) == {"month": [0, 1, 2]}
    gd.save(model, tmp_path / "model.zip")
    twin = gd.load(tmp_path / "model.zip")
    new = sales[["month"]][84:90]
    np.testing.assert_array_equal(twin.predict_y(new)[0], model.predict_y(new)[0])


@pytest.mark.parametrize(
    ("season", "columns", "message"),
    [
        ("month", ["month"], "'day', 'week', 'year'"),
        (0.0, ["month"], "above 0"),
        ("year", ["number"], "needs a column of dates"),
    ],
)
def test_other_seasons_are_refused(season: object, columns: list[str], message: str) -> None:
    frame = _sales(12).assign(number=np.arange(12.0))[[*columns, "sales"]]
    with pytest.raises(DataError, match=message):
        gd.build(frame, "sales", season=season, verbose=False)


@pytest.mark.parametrize("kind", [lambda dates: dates, lambda dates: dates.astype(object)])
def test_a_day_follows_the_clock(kind) -> None:
    """Across the change of clocks on 2024-03-31, whatever the zone of new dates."""
    dates = pd.Series(pd.date_range("2024-03-30", periods=72, freq="h", tz="Europe/Berlin"))
    frame = pd.DataFrame({"time": kind(dates)})
    table, X, _ = Table.learn(frame, np.arange(72.0), seasons=(1.0,))
    angle = 2.0 * np.pi * dates.dt.hour / 24.0
    np.testing.assert_allclose(X[:, 1:], np.c_[np.cos(angle), np.sin(angle)], atol=1e-9)
    np.testing.assert_allclose(np.diff(X[:, 0]), 1.0 / 24.0)
    utc = pd.DataFrame({"time": dates.dt.tz_convert("UTC")})
    np.testing.assert_allclose(table.inputs(utc), X, atol=1e-9)
    assert "its season of 1 days by the clock of Europe/Berlin" in str(table)


def test_dates_with_and_without_a_zone_are_not_mixed() -> None:
    aware = pd.Series(pd.date_range("2024-03-30", periods=6, freq="D", tz="Europe/Berlin"))
    plain, y = aware.dt.tz_localize(None), np.arange(6.0)
    both = aware.astype(object).where(np.arange(6) != 3, plain.astype(object))
    tables = {}
    for name, dates in (("aware", aware), ("plain", plain)):
        tables[name] = Table.learn(dates.to_frame("time"), y)[0]
    with pytest.raises(DataError, match="'time' has the time zone Europe/Berlin in .* none here"):
        tables["aware"].inputs(plain.to_frame("time"))
    fixed = pd.to_datetime(plain).dt.tz_localize("Europe/Berlin")  # as the message says
    assert len(tables["aware"].inputs(fixed.to_frame("time"))) == 6
    with pytest.raises(DataError, match="no time zone in training, and Europe/Berlin here"):
        tables["plain"].inputs(aware.to_frame("time"))
    for learn in (lambda frame: Table.learn(frame, y), tables["aware"].inputs):
        with pytest.raises(DataError, match="'time' mixes dates with and without a time zone"):
            learn(both.to_frame("time"))
    offsets = pd.Series([date.tz_convert(f"UTC+0{i}:00") for i, date in enumerate(aware, 1)])
    with pytest.raises(DataError, match="'time' has offsets of no common one: pandas"):
        Table.learn(offsets.astype(object).to_frame("time"), y, seasons=(1.0,))


@pytest.mark.exhaustive
def test_carbon_dioxide_beats_the_seasonal_naive() -> None:
    """Mauna Loa's series, which statsmodels ships: 24 months after 41 years."""
    found = find_spec("statsmodels")
    if found is None or found.origin is None:
        pytest.skip("statsmodels is not installed")
    path = Path(found.origin).parent / "datasets" / "co2" / "co2.csv"
    weeks = pd.read_csv(path)
    weeks["month"] = pd.to_datetime(weeks["date"].astype(str)).dt.to_period("M").dt.to_timestamp()
    frame = weeks.groupby("month", as_index=False)["co2"].mean().dropna()
    past, later = frame[frame.month < "2000"], frame[frame.month >= "2000"]
    model = gd.build(past, "co2", season="year", verbose=False)
    gd.fit(model, **QUIET)
    mean, variance = (np.asarray(part)[:, 0] for part in model.predict_y(later[["month"]]))
    truth, naive = later.co2.to_numpy(), np.resize(past.co2[-12:], len(later))
    error, of_naive = (np.sqrt(np.mean((truth - by) ** 2)) for by in (mean, naive))
    inside = np.mean(np.abs(truth - mean) < 1.96 * np.sqrt(variance))
    print(error, of_naive, inside)
    assert error < 0.5 * of_naive and inside > 0.8
