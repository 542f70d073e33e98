"""Pictures of posteriors, densities and weights show the numbers of the model, for any model and
number of columns.
"""

from __future__ import annotations

import gpflow
import matplotlib
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.collections import PolyCollection  # noqa: E402

import gpflow_decoupled as gd  # noqa: E402
from gpflow_decoupled.errors import DataError  # noqa: E402
from gpflow_decoupled.models import AffineIndependentGP, WeightsPosterior  # noqa: E402
from gpflow_decoupled.wrappers import plot_densities, plot_posterior, plot_weights  # noqa: E402

X = np.random.default_rng(0).uniform(-1.0, 1.0, (12, 3))
Y = np.sin(4.0 * X[:, :1])
KERNEL = gpflow.kernels.Matern32


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def _lines(ax) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {
        str(line.get_label()): (np.asarray(line.get_xdata()), np.asarray(line.get_ydata()))
        for line in ax.get_lines()
    }


def _band(ax) -> np.ndarray:
    return (
        next(part for part in ax.collections if isinstance(part, PolyCollection))
        .get_paths()[0]
        .vertices
    )


def _legend(figure) -> set[str]:
    return {text.get_text() for legend in figure.legends for text in legend.get_texts()}


def test_one_column_is_a_curve_with_a_band_and_the_data() -> None:
    model = gpflow.models.GPR((X[:, :1], Y), KERNEL(), noise_variance=0.1)
    figure = plot_posterior(model, num_points=20)
    (ax,) = figure.axes
    x, y = _lines(ax)["mean"]
    mean, variance = model.predict_f(x[:, None])
    np.testing.assert_allclose(y, mean[:, 0])
    band = _band(ax)
    np.testing.assert_allclose(band[:, 1].max(), np.max(mean + 2.0 * np.sqrt(variance)))
    dots = next(part for part in ax.collections if len(part.get_offsets()) == 12).get_offsets()
    np.testing.assert_allclose(dots, np.hstack([X[:, :1], Y]))
    assert _legend(figure) == {"mean", "0.95 band of f", "0.95 of observations"}
    assert ax.get_legend() is None


@pytest.mark.parametrize("kind", [gpflow.models.GPMC, gpflow.models.SGPMC])
def test_models_that_are_sampled_show_their_present_values(kind: type) -> None:
    """GPflow's models for Markov chains, also before the first sample."""
    points = {"inducing_variable": X[:5, :1]} if kind is gpflow.models.SGPMC else {}
    model = kind((X[:, :1], Y), KERNEL(), gpflow.likelihoods.StudentT(), **points)
    model.V.assign(np.linspace(-1.0, 1.0, model.V.shape[0])[:, None])
    (ax,) = plot_posterior(model, num_points=10).axes
    x, y = _lines(ax)["mean"]
    np.testing.assert_allclose(y, model.predict_f(x[:, None])[0][:, 0])
    assert ("inducing points" in _lines(ax)) == (kind is gpflow.models.SGPMC)


def test_labels_have_a_probability() -> None:
    model = gpflow.models.VGP(
        (X[:, :1], (Y > 0.0).astype(float)), KERNEL(), gpflow.likelihoods.Bernoulli()
    )
    figure = plot_posterior(model, num_points=10)
    x, y = _lines(figure.axes[0])["probability of 1"]
    np.testing.assert_allclose(y, model.predict_y(x[:, None])[0][:, 0])
    band = _band(figure.axes[0])
    assert band[:, 1].min() > 0.0 and band[:, 1].max() < 1.0


def test_classes_have_a_line_each() -> None:
    likelihood = gpflow.likelihoods.MultiClass(3)
    model = gpflow.models.SVGP(KERNEL(), likelihood, X[:4, :1], num_latent_gps=3)
    figure = plot_posterior(model, (X[:, :1], np.digitize(Y, [-0.5, 0.5])), num_points=5)
    assert {
        "probability of 0",
        "probability of 1",
        "probability of 2",
        "inducing points",
    } == _legend(figure)
    assert len(figure.axes[0].collections) == 0, "class numbers are no values, and there is no band"


def test_two_columns_are_contours_with_both_sets_of_points() -> None:
    model = gd.models.ODVGP(KERNEL(), gpflow.likelihoods.Gaussian(), X[:4, :2], X[4:7, :2])
    figure = plot_posterior(model, (X[:, :2], Y), num_points=6)
    panels = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.get_title() for ax in panels] == ["mean", "standard deviation of f"]
    lines = _lines(panels[1])
    np.testing.assert_allclose(np.stack(lines["inducing points beta"], axis=1), X[4:7, :2])
    np.testing.assert_allclose(np.stack(lines["mean points gamma"], axis=1), X[:4, :2])
    assert {"observations", "inducing points beta", "mean points gamma"} == _legend(figure)


@pytest.mark.exhaustive
def test_more_columns_are_slices_named_by_the_data_frame() -> None:
    frame = pd.DataFrame(X, columns=["age", "dose", "time"])
    model = gpflow.models.SGPR((X, Y), KERNEL(), X[:5])
    figure = plot_posterior(model, (frame, Y), num_points=4)
    assert [ax.get_xlabel() for ax in figure.axes] == ["age", "dose", "time"]
    x, y = _lines(figure.axes[1])["mean"]
    inputs = np.tile(np.median(X, axis=0), (4, 1))
    inputs[:, 1] = x
    np.testing.assert_allclose(y, model.predict_f(inputs)[0][:, 0])
    held = plot_posterior(model, at=[0.5, 0.0, -0.5], num_points=4)
    x, y = _lines(held.axes[0])["mean"]
    np.testing.assert_allclose(
        y, model.predict_f(np.stack([x, 0.0 * x, 0.0 * x - 0.5], axis=1))[0][:, 0]
    )


def test_outputs_that_are_left_out_are_counted() -> None:
    targets = np.random.default_rng(0).normal(size=(12, 11))
    model = gpflow.models.GPR((X[:, :2], targets), KERNEL())
    figure = plot_posterior(model, num_points=2)
    assert figure.get_supxlabel() == "the first 9 of 11 outputs; 2 more are not shown"


@pytest.mark.exhaustive
def test_many_observations_in_a_plane_are_lines_of_density() -> None:
    inputs = np.random.default_rng(0).normal(size=(401, 2))
    model = gpflow.models.GPR((X[:, :2], Y), KERNEL())
    left = plot_posterior(model, (inputs, inputs[:, :1]), num_points=8).axes[0]
    few = plot_posterior(model, (inputs[:400], inputs[:400, :1]), num_points=8).axes[0]
    assert "density of observations" in _lines(left) and "density" not in str(_lines(few))
    assert max(len(part.get_offsets()) for part in left.collections) < 400
    assert max(len(part.get_offsets()) for part in few.collections) == 400
    innermost = next(part for part in left.collections[::-1] if part.get_paths()).get_paths()[-1]
    assert np.max(np.abs(innermost.vertices)) < 1.5, "where most observations are"


def test_columns_that_are_left_out_are_counted() -> None:
    inputs = np.random.default_rng(0).normal(size=(12, 11))
    figure = plot_posterior(gpflow.models.GPR((inputs, Y), KERNEL()), num_points=4)
    assert figure.get_supxlabel().startswith("the first 9 of 11 columns; 2 more")
    assert len(figure.axes) == 9


@pytest.mark.exhaustive
def test_standardized_models_are_in_the_units_of_the_data() -> None:
    own = (100.0 * X[:, :1], 500.0 + 10.0 * Y)
    model = gd.build(*own, num_inducing=5, num_mean_points=2, verbose=False)
    figure = plot_posterior(model, num_points=5)
    lines = _lines(figure.axes[0])
    np.testing.assert_allclose(
        lines["mean"][1], model.predict_f(lines["mean"][0][:, None])[0][:, 0]
    )
    dots = next(
        part for part in figure.axes[0].collections if len(part.get_offsets()) == 12
    ).get_offsets()
    np.testing.assert_allclose(dots, np.hstack(own))
    assert set(lines["inducing points beta"][0]) <= set(np.round(own[0][:, 0], 10)) or np.allclose(
        np.min(np.abs(lines["inducing points beta"][0][:, None] - own[0].T), axis=1), 0.0
    )


def test_bands_and_densities_of_a_skewed_posterior() -> None:
    labels = np.array([[0.0], [1.0], [1.0]])
    model = AffineIndependentGP((X[:3, :1], labels), KERNEL(), gd.likelihoods.BernoulliLogit())
    ax = plot_posterior(model, num_points=3).axes[0]
    band = _band(ax)
    x = _lines(ax)["probability of 1"][0]
    high = model.predict_f_quantiles(x[:, None], (0.975,))
    np.testing.assert_allclose(band[:, 1].max(), 1.0 / (1.0 + np.exp(-high.max())), rtol=1e-6)
    densities = plot_densities(model, X[:2, :1])
    x, y = densities.get_lines()[0].get_data()
    np.testing.assert_allclose(y, model.predict_f_density(X[:1, :1], x)[0])
    assert np.sum(y) * (x[1] - x[0]) == pytest.approx(1.0, abs=1e-2)
    with pytest.raises(DataError, match="pass from 1 to 8 rows"):
        plot_densities(model, np.zeros((9, 1)))


def test_weights_have_intervals() -> None:
    posterior = WeightsPosterior(tf.constant([1.0, -2.0]), tf.constant([[4.0, 0.0], [0.0, 0.25]]))
    ax = plot_weights(posterior, ["age"])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["age", "intercept"]
    (segments,) = (part.get_segments() for part in ax.collections)
    np.testing.assert_allclose(segments[0][:, 0], [1.0 - 3.919928, 1.0 + 3.919928])
    assert ax.get_ylim()[0] > ax.get_ylim()[1], "the first weight is at the top"
    two = WeightsPosterior(tf.zeros([2, 3]), tf.eye(2, batch_shape=[3]))
    assert len(plot_weights(two).get_legend().get_texts()) == 3
    with pytest.raises(DataError, match="level=2"):
        plot_weights(posterior, level=2)


def test_what_does_not_fit_is_refused() -> None:
    model = gpflow.models.SVGP(KERNEL(), gpflow.likelihoods.Gaussian(), X[:4])
    with pytest.raises(DataError, match=r"This SVGP does not keep its data: pass \(X, Y\)"):
        plot_posterior(model)
    with pytest.raises(DataError, match=r"Y has shape \(12,\); use Y\[:, None\]"):
        plot_posterior(model, (X, Y[:, 0]))
    with pytest.raises(DataError, match="at has shape"):
        plot_posterior(model, (X, Y), at=[0.0])
    with pytest.raises(DataError, match="num_points=1"):
        plot_posterior(model, (X, Y), num_points=1)
    with pytest.raises(DataError, match="densities of this SVGP are Gaussian"):
        plot_densities(model, X)
