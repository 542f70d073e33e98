"""The demo on a crop of the photograph: what it prints and writes is complete and finite, and
nothing leaks.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")
plt = pytest.importorskip("matplotlib.pyplot")

from demo import outcomes, photograph  # noqa: E402
from demo.pixels import load_pixels  # noqa: E402

NAMES = ["coupled", "decoupled", "hybrid", "orthogonal", "orthogonal, many"]


@pytest.fixture
def pixels():
    return load_pixels((64, 96), seed=0)


def test_pixels_are_a_standardised_regression(pixels) -> None:
    (X, Y), (X_test, Y_test) = pixels.training, pixels.test
    assert X.shape == (5530, 2) and Y.shape == (5530, 1) and len(X_test) == len(Y_test) == 614
    np.testing.assert_allclose([Y.mean(), Y.std()], [0, 1], atol=1e-12)
    assert abs(Y_test.mean()) > 1e-6, "the held-out pixels took part in the standardisation"
    np.testing.assert_allclose(pixels.X[:, 0].std(), 1)
    steps = pixels.X[1] - pixels.X[0], pixels.X[96] - pixels.X[0]
    np.testing.assert_allclose(steps[0][0], steps[1][1], err_msg="a pixel is as wide as it is high")
    np.testing.assert_allclose((pixels.mean + pixels.std * pixels.Y).reshape(64, 96), pixels.grey)


def test_contrast_sees_edges_and_no_held_out_pixel(pixels) -> None:
    flat = np.zeros((16, 16))
    flat[8:, 8:] = np.indices((8, 8)).sum(axis=0) % 2  # a chequered corner
    held_out = np.zeros(256, bool)
    held_out[0] = True
    flat[0, 0] = 100.0
    contrast = type(pixels)(flat, held_out).training_contrast()
    assert contrast.shape == (255,)
    np.testing.assert_allclose(sorted(set(contrast.round(12))), [0.0, 0.5])


@pytest.mark.exhaustive
def test_demo_runs(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    outcomes = photograph.run("small", seconds=1.0, output=tmp_path)
    printed = capfd.readouterr().out
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [row["model"] for row in results["rows"]] == NAMES == list(results["traces"])
    for row in results["rows"]:
        assert np.all(
            np.isfinite([row[name] for name in ("rmse", "log_density", "elbo", "ms_a_step")])
        )
        assert row["steps"] >= 1
        assert f"{row['rmse']:.4f}" in printed and f"{row['elbo']:,.0f}" in printed
    spread = outcomes[0].mean.std()
    for outcome in outcomes:
        assert outcome.mean.shape == outcome.std.shape == (64, 96)
        assert np.all(np.isfinite(outcome.mean)) and np.all(outcome.std > 0)
        assert 0.0 < outcome.row.rmse < 0.3 and 0.1 * spread < outcome.mean.std(), outcome.row
    for name in ("photograph.png", "training.png"):
        assert plt.imread(tmp_path / name).shape[1] > 600


def test_table_is_aligned() -> None:
    rows = [
        outcomes.Row(name, 10, 0.05, 1.2, elbo, 7, 3.0)
        for name, elbo in (("a", 1.0), ("a longer name", 1e6))
    ]
    lines = outcomes.format_table(rows, 5).splitlines()
    assert len({len(line) for line in lines}) == 1 and len(lines) == 4
    assert lines[3].startswith("a longer name") and "1,000,000" in lines[3] and "10 / 5" in lines[3]
