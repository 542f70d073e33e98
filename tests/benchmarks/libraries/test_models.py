"""Names of models, and what is built from them."""

from __future__ import annotations

import pytest

from benchmarks.harness.data import load
from benchmarks.libraries.models import Settings, Spec, build, parse

TIGHT = ("coupled-3-tight", "orthogonal-3+4-adam-tight", "data-3-tight")


def test_names_of_models() -> None:
    assert parse("orthogonal-300+1000") == Spec("orthogonal", 300, 1000)
    assert parse("hybrid-300+1000-adam") == Spec("hybrid", 300, 1000, natural=False)
    peers = ("gpflow-5-adam", "gpytorch-3", "gpytorch-3+4", "gpjax-3", "gpjax-3-adam")
    neighbours = ("neighbours-30", "neighbours-30-auto", "vecchia-20", "vecchia-20+500", "vnngp-9")
    smooth = ("vecchia-20-matern12", "vecchia-20+500-matern32")
    for name in (
        "coupled-300",
        "coupled-3-adam",
        *peers,
        *neighbours,
        "lightgbm-9",
        "solve-3+4-adam",
        *smooth,
        *TIGHT,
    ):
        assert parse(name).name == name
    for name in (
        "coupled-300+10",
        "orthogonal-300",
        "nobody-3",
        "coupled",
        "gpytorch-3-adam",
        "gpjax-3+4",
        "coupled-3-auto",
        "neighbours-3-adam",
        "neighbours-3-start",
        "neighbours-3+4",
        "vecchia-3-adam",
        "vecchia-3-matern52",
        "vnngp-3+4",
        "vnngp-3-matern12",
        "lightgbm-3-adam",
        "solve-3+4-tight",
    ):
        with pytest.raises(ValueError, match=f"Model '{name.replace('+', '[+]')}'"):
            parse(name)


@pytest.mark.parametrize("name", ["coupled-5-tight", "orthogonal-5+20-tight", "hybrid-5+20"])
def test_the_bound_is_the_declared_one(name: str) -> None:
    expected = "tight" if name.endswith("tight") else "classical"
    assert build(parse(name), load("synthetic"), Settings()).bound == expected


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name, rows", [("decoupled-5+200", None), ("hybrid-5+200", None), ("orthogonal-5+1000", 128)]
)
def test_the_norm_of_a_mean_on_few_points_is_no_estimate(name: str, rows: int | None) -> None:
    assert build(parse(name), load("synthetic"), Settings()).basis.kernel_mean.subsample == rows
