"""The plots show what they say: the right numbers, on the axes given, and clear refusals."""

from __future__ import annotations

import sys

import gpflow
import matplotlib
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import binom, norm

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import BernoulliLogit, CategoricalLogit
from gpflow_decoupled.models import DVGP, ODVGP
from gpflow_decoupled.training import FitResult
from gpflow_decoupled.wrappers import plot_calibration, plot_history, plot_posterior_1d


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


@pytest.fixture
def data(rng):
    X = np.sort(rng.uniform(-1, 1, (30, 1)), axis=0)
    return X, np.sin(5 * X) + 0.1 * rng.standard_normal((30, 1))


def _record(history: dict, steps: int) -> FitResult:
    return FitResult(
        elbo=float("nan"),
        steps=steps,
        seconds=0.5 * steps,
        history=history,
        converged=False,
        reason="steps done",
        compile_seconds=0.0,
    )


def _result(steps: int, **history) -> FitResult:
    clock = np.arange(1, steps + 1) * 0.5
    arrays = {"step": np.arange(1, steps + 1), "seconds": clock, "elbo": -100.0 / clock, **history}
    return _record(arrays, steps)


def _lines(ax) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {
        line.get_label(): (np.asarray(line.get_xdata()), np.asarray(line.get_ydata()))
        for line in ax.get_lines()
    }


def test_history_shows_running_means_against_seconds(ax) -> None:
    result = _result(40)
    assert plot_history(result, ax, window=4) is ax
    x, y = _lines(ax)["ELBO (nats)"]
    assert len(x) == 37
    np.testing.assert_allclose(
        [x[0], y[0]], [result.history[k][:4].mean() for k in ("seconds", "elbo")]
    )
    np.testing.assert_allclose(y[-1], result.history["elbo"][-4:].mean())
    assert ax.get_ylim()[0] > y[0], "the first steps would squeeze the rest"
    assert len(ax.figure.axes) == 1, "nothing was scored"


def test_history_shows_what_was_scored(ax) -> None:
    scores = {"evaluation_step": [20, 40], "evaluation_seconds": [10.0, 20.0], "rmse": [0.5, 0.4]}
    plot_history(_result(40, **{name: np.array(values) for name, values in scores.items()}), ax)
    (right,) = [other for other in ax.figure.axes if other is not ax]
    lines = _lines(right)
    assert list(lines) == ["held-out RMSE"]
    np.testing.assert_allclose(lines["held-out RMSE"], [[10.0, 20.0], [0.5, 0.4]])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "ELBO (nats)",
        "held-out RMSE",
    ]


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize(
    "rmse, density", [([0.4], [-0.3]), ([0.5, 0.4], [-0.3, -0.5]), ([0.5, 0.5], [-0.3, np.nan])]
)
def test_no_metric_hides_the_other(ax, rmse: list[float], density: list[float]) -> None:
    number = np.arange(len(rmse))
    scores = {
        "evaluation_step": number,
        "evaluation_seconds": 10.0 + number,
        "rmse": rmse,
        "log_density": density,
    }
    plot_history(_result(40, **{name: np.array(values) for name, values in scores.items()}), ax)
    ax.figure.canvas.draw()
    heights = [
        other.transAxes.inverted().transform(
            other.transData.transform(other.get_lines()[0].get_xydata())
        )[:, 1]
        for other in ax.figure.axes
        if other is not ax
    ]
    seen = np.isfinite(heights[1])
    assert len(heights) == 2 and np.all(heights[0][seen] - heights[1][seen] > 0.15)
    assert all(0.05 < height < 0.95 for part in heights for height in part[np.isfinite(part)])


def test_history_of_one_step(ax) -> None:
    plot_history(_result(1), ax)
    assert len(_lines(ax)["ELBO (nats)"][0]) == 1


def test_history_without_steps_is_refused(ax) -> None:
    with pytest.raises(DataError, match="no steps"):
        plot_history(_record({}, 0), ax)


def test_posterior_shows_moments_data_and_points(ax, data) -> None:
    beta, gamma = np.linspace(-1, 1, 5)[:, None], np.linspace(-0.9, 0.9, 7)[:, None]
    model = ODVGP(gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian(0.3), gamma, beta)
    model.basis.q_mu.assign(np.arange(5.0)[:, None])
    assert plot_posterior_1d(model, data, ax) is ax
    lines = _lines(ax)
    x, y = lines["mean"]
    mean, variance = model.predict_f(x[:, None])
    np.testing.assert_allclose(y, mean[:, 0])
    assert x.min() < data[0].min() and x.max() > data[0].max()
    band = ax.collections[0].get_paths()[0].vertices
    np.testing.assert_allclose(band[:, 1].max(), np.max(mean + 2 * np.sqrt(variance)))
    np.testing.assert_allclose(
        ax.get_lines()[3].get_ydata(), (mean + 2 * np.sqrt(variance + 0.3))[:, 0]
    )
    np.testing.assert_allclose(lines["inducing points beta"][0], beta[:, 0])
    np.testing.assert_allclose(lines["mean points gamma"][0], gamma[:, 0])
    np.testing.assert_allclose(ax.get_lines()[0].get_xydata(), np.hstack(data))


def test_posterior_of_other_models(ax, data) -> None:
    Z = np.linspace(-1, 1, 5)[:, None]
    plot_posterior_1d(
        DVGP(gpflow.kernels.Matern32(), gpflow.likelihoods.StudentT(), Z + 0.1, Z), data, ax
    )
    assert "mean points alpha" in _lines(ax)
    assert not any(line.get_linestyle() == ":" for line in ax.get_lines()), (
        "only Gaussian noise has such a band"
    )
    ax.clear()
    svgp = gpflow.models.SVGP(
        gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian(), Z, num_latent_gps=2
    )
    plot_posterior_1d(svgp, (data[0], np.hstack([data[1], -data[1]])), ax)
    assert {"mean 0", "mean 1", "inducing points"} <= set(_lines(ax))


@pytest.mark.parametrize(
    "X, fix", [(np.zeros(3), r"use X\[:, None\]"), (np.zeros((3, 2)), "one input column")]
)
def test_inputs_of_another_shape_are_refused(X, fix: str) -> None:
    with pytest.raises(DataError, match=fix):
        plot_posterior_1d(None, (X, np.zeros((3, 1))))


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        plot_history(_result(3))


def test_new_axes_are_made_when_none_are_given() -> None:
    ax = plot_history(_result(3))
    assert ax.get_xlabel() == "seconds of training"
    plt.close(ax.figure)


def test_parts_of_the_mean_add_up(ax, data) -> None:
    beta, gamma = np.linspace(-1, 1, 5)[:, None], np.linspace(-0.9, 0.9, 7)[:, None]
    model = ODVGP(gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian(0.3), gamma, beta)
    model.basis.q_mu.assign(np.arange(5.0)[:, None])
    plain = model.predict_f(np.zeros((1, 1)))[0].numpy()
    model.basis.a_gamma.assign(np.ones((7, 1)))
    plot_posterior_1d(model, data, ax, num_points=11, parts=True)
    lines = _lines(ax)
    np.testing.assert_allclose(
        lines["from beta"][1] + lines["from mean points"][1], lines["mean"][1]
    )
    grid = lines["mean"][0]
    model.basis.a_gamma.assign(np.zeros((7, 1)))
    np.testing.assert_allclose(
        lines["from beta"][1], model.predict_f(grid[:, None])[0].numpy()[:, 0]
    )
    np.testing.assert_allclose(model.predict_f(np.zeros((1, 1)))[0], plain)


def test_parts_need_mean_points(ax, data) -> None:
    model = gpflow.models.SVGP(
        gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian(), data[0][:5]
    )
    with pytest.raises(DataError, match="no points of its own"):
        plot_posterior_1d(model, data, ax, parts=True)


class _Predicts:
    """Predicts the same for every input."""

    def __init__(self, likelihood, mean: np.ndarray, variance: np.ndarray) -> None:
        self.likelihood, self.moments = likelihood, (tf.constant(mean), tf.constant(variance))

    def predict_y(self, X: np.ndarray):
        return self.moments


def test_calibration_of_a_regression_is_the_share_below_each_quantile(ax) -> None:
    Y = np.array([[-1.0], [0.0], [3.0], [1.0]])
    model = _Predicts(gpflow.likelihoods.Gaussian(), np.ones((4, 1)), np.full((4, 1), 4.0))
    assert plot_calibration(model, (np.zeros((4, 1)), Y), ax) is ax
    x, y = ax.get_lines()[-1].get_data()
    np.testing.assert_allclose(x, norm.cdf([-1.0, -0.5, 0.0, 1.0]))
    np.testing.assert_allclose(y, [0.25, 0.5, 0.75, 1.0])
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["calibrated", "0.95 by chance", "observations"]


def test_calibration_of_labels_is_the_share_of_ones(ax) -> None:
    probability = np.array([0.1, 0.2, 0.7, 0.9])[:, None]
    Y = np.array([0.0, 1.0, 1.0, 1.0])[:, None]
    plot_calibration(
        _Predicts(BernoulliLogit(), probability, probability), (np.zeros((4, 1)), Y), ax, num_bins=2
    )
    np.testing.assert_allclose(ax.get_lines()[-1].get_data(), [[0.15, 0.8], [0.5, 1.0]])
    ranges = ax.collections[0].get_segments()
    expected = np.array(binom.interval(0.95, 2, [0.15, 0.8])).T / 2.0
    np.testing.assert_allclose([segment[:, 1] for segment in ranges], expected)


def test_calibration_of_rare_labels_shows_their_corner(ax) -> None:
    probability = np.linspace(0.001, 0.05, 400)[:, None]
    Y = (np.arange(400) % 40 == 0).astype(float)[:, None]
    model = _Predicts(BernoulliLogit(), probability, probability)
    plot_calibration(model, (np.zeros((400, 1)), Y), ax)
    assert 0.05 < ax.get_xlim()[1] < 0.3 and ax.get_xlim() == ax.get_ylim()
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["calibrated", "labels", "0.95 by chance"]


def test_bands_and_dotted_lines_are_named(ax, data) -> None:
    model = gpflow.models.SVGP(
        gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian(), data[0][:5]
    )
    plot_posterior_1d(model, data, ax, num_points=5)
    names = {text.get_text() for text in ax.get_legend().get_texts()}
    band, dotted = "2 standard deviations of f", "2 of observations"
    assert names == {"mean", band, dotted, "inducing points"}


def test_calibration_of_outputs_leaves_gaps_out(ax) -> None:
    Y = np.array([[-1.0, 0.0], [np.nan, 1.0], [1.0, 2.0]])
    model = _Predicts(gpflow.likelihoods.Gaussian(), np.zeros((3, 2)), np.ones((3, 2)))
    plot_calibration(model, (np.zeros((3, 1)), Y), ax)
    first, second = (line.get_data() for line in ax.get_lines()[-2:])
    np.testing.assert_allclose(first, [norm.cdf([-1.0, 1.0]), [0.5, 1.0]])
    np.testing.assert_allclose(second[0], norm.cdf([0.0, 1.0, 2.0]))
    with pytest.raises(DataError, match="predicts 2 columns"):
        plot_calibration(model, (np.zeros((3, 1)), Y[:, 1:]), ax)


def test_calibration_of_classes_has_a_line_for_each(ax) -> None:
    """Normal quantiles of class numbers would mean nothing."""
    p = np.array([[0.8, 0.1, 0.1], [0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.2, 0.3, 0.5]])
    model = _Predicts(CategoricalLogit(3), p, p * (1.0 - p))
    Y = np.array([[0.0], [1.0], [1.0], [2.0]])
    plot_calibration(model, (np.zeros((4, 1)), Y), ax, num_bins=1)
    found = [line.get_data() for line in ax.get_lines()[-3:]]
    np.testing.assert_allclose(found, [[[0.45], [0.25]], [[0.35], [0.5]], [[0.2], [0.25]]])
