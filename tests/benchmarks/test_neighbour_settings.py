"""The table of settings by which an `NNGP` is trained."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from benchmarks import neighbour_settings
from benchmarks.neighbour_settings import SETTINGS, Setting


def test_each_setting_differs_from_those_in_use_in_one_field() -> None:
    for name, setting in SETTINGS.items():
        changed = [new != old for new, old in zip(setting, Setting())]
        assert sum(changed) == (name != "in use"), name


@pytest.mark.parametrize("order", ["coordinate", "middle"])
def test_orders_are_along_the_first_principal_coordinate(order: str) -> None:
    along = np.linspace(-3.0, 3.0, 31)
    X = np.random.default_rng(0).permutation(along)[:, None] * [2.0, 1.0]
    found = X[neighbour_settings._ordered(X, order), 0]
    if order == "middle":
        found = np.abs(found)
    elif found[0] > 0.0:
        found = found[::-1]
    assert np.all(np.diff(found) >= -1e-9)


@pytest.mark.exhaustive
def test_a_row_of_the_table_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = Setting(rows=100, neighbours=5, order="middle", rounds=1)
    monkeypatch.setitem(SETTINGS, "in use", few)
    monkeypatch.setattr(sys, "argv", ["settings", "--tasks", "synthetic", "--settings", "in use"])
    neighbour_settings.main()
    task, name, rmse, *_ = capsys.readouterr().out.strip("| \n").split(" | ")
    assert (task, name) == ("synthetic", "in use")
    assert float(rmse) < 0.9, "no better than the mean"
