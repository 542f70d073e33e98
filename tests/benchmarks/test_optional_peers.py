"""Peers that are not always installed learn what ours learn, and are left out where they are missing."""

from __future__ import annotations

import importlib.util
import math

import pytest

from benchmarks.data import load
from benchmarks.models import Settings, parse
from benchmarks.regression_runs import _TRAINERS, installed


@pytest.mark.parametrize("name", ["gpytorch-20", "gpytorch-20+10", "gpjax-20"])
def test_a_peer_learns(name: str) -> None:
    spec = parse(name)
    pytest.importorskip(spec.library)
    settings = Settings(batch_size=128, learning_rate=0.03, budgets=(3.0,))
    record = _TRAINERS[spec.library](spec, load("diabetes"), [1e-6, 3.0], settings)
    first, last = (snapshot.metrics for snapshot in record.snapshots)
    assert record.library == spec.library and record.snapshots[-1].step > 10
    assert last["rmse"] < first["rmse"] - 0.1 and last["log_density"] > first["log_density"]
    assert all(math.isfinite(value) for value in last.values())


def test_missing_peers_are_left_out() -> None:
    names = ["coupled-3", "gpflow-3", "gpytorch-3", "gpjax-3"]
    missing = {library for library in ("gpytorch", "gpjax") if importlib.util.find_spec(library) is None}
    assert installed(names) == [name for name in names if parse(name).library not in missing]
