"""The demo on a crop of the photograph: what it prints and writes is complete and finite, and
nothing leaks.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("sklearn")
plt = pytest.importorskip("matplotlib.pyplot")

from demo import outcomes, photograph  # noqa: E402
from demo.judging import score  # noqa: E402
from demo.neighbours import nearest_pixels  # noqa: E402
from demo.pixels import load_pixels  # noqa: E402

NAMES = ["coupled", "orthogonal", "neighbours", "mean of the nearest"]


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
    with warnings.catch_warnings():  # a second is too short to end well, and models say so
        warnings.simplefilter("ignore", UserWarning)
        outcomes = photograph.run("small", seconds=1.0, output=tmp_path)
    printed = capfd.readouterr().out
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [row["model"] for row in results["rows"]] == NAMES == list(results["traces"])
    for row in results["rows"]:
        got = row["score"]
        assert np.all(np.isfinite([got["rmse"], got["log_density"], row["seconds"]]))
        assert 0.5 < got["coverage"] <= 1.0
        assert f"{got['rmse']:.4f}" in printed and f"{100 * got['coverage']:.1f} %" in printed
        bound = row["elbo"]
        assert (bound is None) == (row["model"] in NAMES[2:])
        assert bound is None or f"{bound:,.0f}" in printed
    spread = outcomes[0].mean.std()
    for outcome in outcomes:
        assert outcome.mean.shape == (64, 96) and np.all(np.isfinite(outcome.mean))
        assert outcome.std is None or (outcome.std.shape == (64, 96) and np.all(outcome.std > 0))
        assert 0.0 < outcome.row.score.rmse < 0.3 and 0.1 * spread < outcome.mean.std(), outcome.row
    for name in ("photograph.png", "training.png"):
        assert plt.imread(tmp_path / name).shape[1] > 600


def test_score_of_known_errors(pixels) -> None:
    error = np.where(np.arange(len(pixels.Y)) % 4 == 0, 3.0, 1.0)[:, None]
    got = score(pixels, pixels.Y + error, np.full(error.shape, 0.6), 0.4)
    held_out = error[pixels.held_out, 0]
    np.testing.assert_allclose(got.coverage, np.mean(held_out == 1.0))
    np.testing.assert_allclose(got.rmse, pixels.std * np.sqrt(np.mean(held_out**2)))
    density = stats.norm(0.0, pixels.std).logpdf(pixels.std * held_out)
    np.testing.assert_allclose(got.log_density, np.mean(density))


def test_nearest_pixels_see_no_held_out_pixel(pixels) -> None:
    spoiled = replace(pixels, grey=np.where(pixels.held_out.reshape(64, 96), 9.0, pixels.grey))
    np.testing.assert_array_equal(nearest_pixels(pixels).mean, nearest_pixels(spoiled).mean)


def test_table_is_aligned() -> None:
    got = outcomes.Score(0.05, 1.2, 0.95)
    rows = [
        outcomes.Row("a", "10 / 5 points", got, 3.0),
        outcomes.Row("a longer name", "4 nearest pixels", got, 3.0, elbo=1e6, steps=7),
    ]
    lines = outcomes.format_table(rows).splitlines()
    assert len({len(line) for line in lines}) == 1 and len(lines) == 4
    assert lines[3].startswith("a longer name") and "1,000,000" in lines[3] and "95.0 %" in lines[2]
