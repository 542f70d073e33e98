"""A built model has the parts and verbs of a model, all in the units of the data."""

from __future__ import annotations

import threading
import time

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, ModelError
from gpflow_decoupled.training import held_out_metrics
from gpflow_decoupled.wrappers import plot_calibration, plot_posterior
from tests.interrupts import interrupt_call

RNG = np.random.default_rng(0)
X = RNG.uniform([100.0, -2.0], [300.0, 5.0], (30, 2))
Y = 150.0 + np.stack([40.0 * np.sin(X[:, 0] / 30.0), 1e-2 * X[:, 1]], axis=1)
Y += [4.0, 1e-3] * RNG.standard_normal(Y.shape)
NEW = X[:6] + [3.0, 0.1]


@pytest.fixture(scope="module")
def exact() -> gd.Standardized:
    model = gd.build(X, Y[:, :1], verbose=False)
    gd.fit(model, steps=9, progress=False)
    return model


@pytest.mark.exhaustive
def test_kernel_and_likelihood_are_in_units(exact) -> None:
    """GPflow's model of them, in the units of the data, has the same posterior."""
    mean = gpflow.functions.Constant(exact.outputs.mean)
    twin = gpflow.models.GPR((X, Y[:, :1]), exact.kernel, mean, likelihood=exact.likelihood)
    for ours, theirs in (
        (exact.predict_f(NEW), twin.predict_f(NEW)),
        (exact.predict_y(NEW), twin.predict_y(NEW)),
    ):
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-7)
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)
    assert float(exact.elbo()) == pytest.approx(float(twin.log_marginal_likelihood()), rel=1e-7)
    evidence = exact.evidence()
    assert evidence.upper - evidence.lower < 1e-6
    assert evidence.lower == pytest.approx(float(exact.elbo()), rel=1e-7)
    lengths = exact.model.kernel.lengthscales.numpy() * X.std(axis=0)
    np.testing.assert_allclose(exact.kernel.lengthscales, lengths)


@pytest.mark.exhaustive
@pytest.mark.parametrize("weighted", [False, True])
def test_noise_that_varies_is_in_units(weighted: bool) -> None:
    """Its latent is the logarithm of a deviation of Y: a model of the parts agrees."""
    weights = {"sample_weight": np.ones(30)} if weighted else {}
    model = gd.build(X, Y[:, :1], "heteroskedastic", verbose=False, **weights)
    gd.fit(model, steps=3, progress=False)
    inside, scale = model.model, model.outputs.scale.numpy()
    mean_of_f, variance = model.predict_f(NEW)
    likelihood = gpflow.likelihoods.HeteroskedasticTFPConditional()
    for ours, theirs in zip(
        model.predict_y(NEW), likelihood.predict_mean_and_var(NEW, mean_of_f, variance)
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    mean = gpflow.functions.Constant(np.append(model.outputs.mean, np.log(scale)))
    twin = gd.models.CVIGP((X, Y[:, :1]), model.kernel, likelihood, mean_function=mean)
    units = np.append(scale, 1.0)
    twin.basis.nu.assign(inside.basis.nu / units)
    twin.basis.tau.assign(inside.basis.tau / units**2)
    for ours, theirs in zip((mean_of_f, variance), twin.predict_f(NEW)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert float(model.elbo()) == pytest.approx(float(twin.elbo()), rel=1e-7)


@pytest.mark.exhaustive
def test_inducing_points_are_in_units() -> None:
    """GPflow's model of them predicts the same; a whitened q(u) has no units."""
    model = gd.build(X, Y[:, :1], num_inducing=8, num_mean_points=0, verbose=False)
    gd.fit(model, (X, Y[:, :1]), steps=2, compile=False, progress=False)
    points = model.inducing_variable
    assert type(points).__name__ == "InducingPoints" and points.num_inducing == 8
    inside = model.model
    mean = gpflow.functions.Constant(model.outputs.mean)
    q = {"q_mu": inside.q_mu.numpy(), "q_sqrt": inside.q_sqrt.numpy()}
    twin = gpflow.models.SVGP(model.kernel, model.likelihood, points, mean_function=mean, **q)
    for ours, theirs in zip(model.predict_f(NEW), twin.predict_f(NEW)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    points.Z.assign(X[:8])
    np.testing.assert_allclose(model.inputs.inverse_transform(inside.basis.beta.Z), X[:8])
    gpflow.set_trainable(points, True)
    assert inside.basis.beta.Z.trainable
    with pytest.raises(ModelError, match="InducingPoints.Z is a view"):
        points.Z = X[:8]


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("kind", ["two outputs", "coregionalised", "quantile"])
def test_models_on_points_are_in_units(kind: str) -> None:
    """The model inside, with parts in units, predicts the same and has the same bound."""
    options = {"num_inducing": 8, "num_mean_points": 0, "verbose": False}
    values = Y * [1.0, 1e3]
    if kind == "quantile":
        values, options = values[:, :1], options | {"likelihood": kind, "quantile": 0.8}
    elif kind == "coregionalised":
        options["outputs"] = kind
    model = gd.build(X, values, **options)
    gd.fit(model, steps=3, compile=False, progress=False)
    twin = gpflow.utilities.deepcopy(model.model)
    twin.kernel, twin.likelihood = map(gpflow.utilities.deepcopy, (model.kernel, model.likelihood))
    trained = np.broadcast_to(model.model.mean_function(X[:1]), values[:1].shape)
    mean = model.outputs.inverse_transform(trained)[0]
    twin.mean_function = gpflow.functions.Constant(mean)
    points = getattr(twin.basis.beta, "inducing_variable", twin.basis.beta)
    points.Z.assign(model.inputs.inverse_transform(points.Z))
    if kind == "two outputs":  # their kernels differ now
        twin.basis.beta = gpflow.inducing_variables.SharedIndependentInducingVariables(points)
    new = NEW, values[:6]
    for ours, theirs in (
        (model.predict_f(NEW), twin.predict_f(NEW)),
        (model.predict_y(NEW), twin.predict_y(NEW)),
        ([model.predict_log_density(new)], [twin.predict_log_density(new)]),
        ([model.elbo((X, values))], [twin.elbo((X, values))]),
    ):
        for one, other in zip(ours, theirs):
            np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.exhaustive
def test_a_trained_mean_at_more_points_remembers_and_updates_in_units() -> None:
    """As the model inside does with scaled data; the refusal names the call that helps."""
    model = gd.build(X, Y[:, :1], num_inducing=6, num_mean_points=5, verbose=False)
    gd.fit(model, steps=2, compile=False, progress=False)
    inside, batch = gpflow.utilities.deepcopy(model.model), (NEW, Y[:6, :1])
    with pytest.raises(ModelError, match=r"call model.remember\(data\) once"):
        model.update(batch)
    model.remember()
    model.update(batch)
    scaled = [part.transform(rows) for part, rows in ((model.inputs, X), (model.outputs, Y[:, :1]))]
    inside.remember(scaled)
    inside.update([model.inputs.transform(NEW), model.outputs.transform(Y[:6, :1])])
    mean, variance = inside.predict_f(model.inputs.transform(NEW))
    found = model.predict_f(NEW)
    np.testing.assert_allclose(found[0], model.outputs.inverse_transform(mean), rtol=1e-8)
    np.testing.assert_allclose(found[1], variance * model.outputs.scale**2, rtol=1e-8)


@pytest.mark.exhaustive
def test_shared_inducing_points_are_in_units(exact) -> None:
    options = {"num_inducing": 8, "num_mean_points": 0, "verbose": False}
    model = gd.build(X, Y, outputs="coregionalised", **options)
    points = model.inducing_variable.inducing_variable
    found = np.asarray(points.Z)
    assert all(np.isclose(X, row).all(axis=1).any() for row in found)
    copied = gpflow.utilities.deepcopy(model.inducing_variable)
    np.testing.assert_allclose(copied.inducing_variable.Z, found)
    with pytest.raises(ModelError, match="CVIGP has no inducing points"):
        _ = exact.inducing_variable


def test_rows_left_out_are_in_units(exact) -> None:
    """With all other rows as neighbours it is the formula of the exact GP."""
    model = gd.build(X, Y[:, :1], num_neighbours=29, verbose=False)
    model.model.spread_neighbours = None
    noisy = model.kernel(X) + model.likelihood.variance * np.eye(30)
    inverse = np.linalg.inv(noisy)
    variance = 1.0 / np.diag(inverse)
    errors = (inverse @ (Y[:, :1] - model.outputs.mean))[:, 0] * variance
    density = -0.5 * (np.log(2.0 * np.pi * variance) + errors**2 / variance)
    found = model.leave_one_out()
    np.testing.assert_allclose(found.mean[:, 0], Y[:, 0] - errors, rtol=1e-4)
    np.testing.assert_allclose(found.variance[:, 0], variance, rtol=1e-4)
    np.testing.assert_allclose(found.log_density, density, rtol=1e-4)
    some = model.leave_one_out(np.array([3, 7]))
    np.testing.assert_allclose(some.log_density, found.log_density[[3, 7]], rtol=1e-7)
    with pytest.raises(ModelError, match="CVIGP has no leave_one_out"):
        exact.leave_one_out()


@pytest.mark.exhaustive
def test_a_record_is_in_units(exact) -> None:
    held_out = (NEW, Y[:6, :1])
    model = gd.build(X, Y[:, :1], verbose=False)
    result = gd.fit(model, steps=9, evaluation=held_out, progress=False)
    scores = held_out_metrics(model, held_out)
    assert result.elbo == pytest.approx(float(model.elbo()), rel=1e-9)
    assert result.history["elbo"][-1] == pytest.approx(result.elbo)
    for name in ("rmse", "log_density"):
        assert result.history[name][-1] == pytest.approx(scores[name], rel=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_scores_of_left_out_rows_are_in_units(likelihood: str, monkeypatch) -> None:
    """In units half as large each is log 2 less, in history and verb; the line has all rows."""
    lines: list[str] = []
    show = lambda self, text: lines.append(text)  # noqa: E731
    monkeypatch.setattr("gpflow_decoupled.training.options.ProgressLine.show", show)
    histories, verbs, shown = [], [], []
    for Y_in in (Y[:, :1], 2.0 * Y[:, :1]):
        model = gd.build(X, Y_in, likelihood, num_neighbours=8, verbose=False)
        result = gd.fit(model, steps=2, progress=False, compile=False)
        histories.append(result.history["leave_one_out"])
        verbs.append(model.leave_one_out().log_density)
        shown.append(float(lines[-1].split()[-2]))
    for one, other in (histories, verbs):
        np.testing.assert_allclose(one - other, np.log(2.0), rtol=1e-9)
    assert shown[0] - shown[1] == pytest.approx(len(X) * np.log(2.0), rel=1e-3)


@pytest.mark.exhaustive
def test_scores_of_outputs_of_other_sizes_are_in_units() -> None:
    held_out = (NEW, Y[:6])
    model = gd.build(X, Y, num_inducing=8, num_mean_points=0, verbose=False)
    options = {"compile": False, "progress": False, "batch_size": None}
    result = gd.fit(model, (X, Y), steps=2, evaluation=held_out, **options)
    scores = held_out_metrics(model, held_out)
    for name in ("rmse", "log_density"):
        assert result.history[name][-1] == pytest.approx(scores[name], rel=1e-9)
    assert isinstance(model.kernel, gpflow.kernels.SeparateIndependent)
    np.testing.assert_allclose(
        model.likelihood.variance,
        model.model.likelihood.variance.numpy() * Y.std(axis=0) ** 2,
    )
    whole = float(model.elbo())
    assert float(model.elbo((X, Y))) == pytest.approx(whole)
    half = float(model.elbo((X[:15], Y[:15])))
    assert np.isfinite(half) and half != whole


@pytest.mark.exhaustive
def test_a_posterior_is_cached_in_units(exact, tmp_path) -> None:
    posterior = exact.posterior("variable")
    for ours, theirs in zip(posterior.predict_f(NEW), exact.predict_f(NEW)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)

    class Server(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.posterior = posterior

        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float64)], autograph=False)
        def predict(self, inputs):
            return self.posterior.predict_f(inputs)

    tf.saved_model.save(Server(), str(tmp_path / "served"))
    served = tf.saved_model.load(str(tmp_path / "served"))
    found = served.predict(tf.constant(NEW))
    np.testing.assert_allclose(found[0], exact.predict_f(NEW)[0], rtol=1e-9)


@pytest.mark.exhaustive
def test_a_posterior_of_a_frame_takes_its_columns_of_numbers() -> None:
    """A server, which has no frames, is given them."""
    frame = pd.DataFrame({"x": X[:, 0], "kind": np.where(X[:, 1] > 1.0, "a", "b"), "y": Y[:, 0]})
    frame.loc[3, "x"] = np.nan
    model = gd.build(frame, "y", verbose=False)
    posterior = model.posterior("variable")
    served = tf.function(posterior.predict_f, autograph=False)(model.table.inputs(frame))
    for ours, theirs in zip(served, model.predict_f(frame)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


@pytest.mark.exhaustive
def test_functions_are_drawn_in_units(exact) -> None:
    draws = exact.pathwise_samples(300, num_frequencies=300)
    values = np.asarray(draws(NEW))
    mean, variance = (part.numpy() for part in exact.predict_f(NEW))
    assert values.shape == (300, 6, 1)
    error = 5.0 * np.sqrt(variance / 300.0) + 0.1 * np.sqrt(variance)
    assert np.all(np.abs(values.mean(axis=0) - mean) < error)


@pytest.mark.exhaustive
def test_new_rows_are_taken_in_units(exact) -> None:
    model = gpflow.utilities.deepcopy(exact)
    model.update((NEW, Y[:6, :1]))
    assert model.shape == (36, 2) and len(model.training_data[0]) == 36
    np.testing.assert_allclose(model.training_data[0][-6:], NEW)
    gd.optimizers.ConjugateComputation(1.0).run(model.model)
    assert np.isfinite(float(model.elbo()))


COUNTS = np.arange(30.0)[:, None] % 3
UPDATED = {
    "CVIGP": ({}, Y[:, :1]),
    "GaussianNNGP": ({"num_neighbours": 4}, Y[:, :1]),
    "SiteNNGP": ({"num_neighbours": 4, "likelihood": "poisson"}, COUNTS),
    "LabelNNGP": ({"num_neighbours": 4, "likelihood": "multiclass"}, COUNTS),
}


def _updated(kind: str) -> gd.Standardized:
    options, values = UPDATED[kind]
    model = gd.build(X, values, verbose=False, **options)
    assert type(model.model).__name__ == kind
    return model


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("kind, name, at", [
    ("CVIGP", "CVIGP._as_tensors", 1), ("CVIGP", "CVIGP.update", 0),
    ("GaussianNNGP", "GaussianNNGP.update", 0),
    ("SiteNNGP", "SiteNNGP.move_sites", 2), ("SiteNNGP", "SiteNNGP.update", 0),
    ("LabelNNGP", "GaussianNNGP.update", 0), ("LabelNNGP", "LabelNNGP.update", 0),
])  # fmt: skip
def test_an_interrupted_update_changes_nothing(kind, name, at, monkeypatch) -> None:
    """Neither the model nor its record of the data, so that a second call counts rows once."""
    model, values = _updated(kind), UPDATED[kind][1]
    new, before = (NEW, values[:6]), [part.numpy() for part in model.predict_f(NEW)]
    kind_of, method = name.split(".")
    owner = getattr(gd.models.neighbours, kind_of, gd.models.CVIGP)
    function = getattr(owner, method)

    def pressed(*arguments, **options):
        function(*arguments, **options)  # after all, but before the caller goes on
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if at == 0:
            patch.setattr(owner, method, pressed)
        else:
            interrupt_call(patch, owner, method, at)
        with pytest.raises(KeyboardInterrupt):
            model.update(new)
    assert model.shape == (30, 2) and len(model.training_data[0]) == 30
    for now, was in zip(model.predict_f(NEW), before):
        np.testing.assert_array_equal(now, was)
    model.update(new)
    assert model.shape == (36, 2) and len(model.training_data[0]) == 36


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("kind", UPDATED)
def test_threads_that_update_a_model_lose_no_rows(kind, monkeypatch) -> None:
    """Each waits until the other is done."""
    model, values = _updated(kind), UPDATED[kind][1]
    for library, join in ((tf, tf.concat), (np, np.concatenate)):

        def slow(*arguments, join=join, **options):
            time.sleep(2e-3)  # the other thread's turn
            return join(*arguments, **options)

        monkeypatch.setattr(library, join.__name__, slow)
    threads = [
        threading.Thread(target=model.update, args=((NEW[rows], values[rows]),))
        for rows in (slice(0, 2), slice(2, 4), slice(4, 6))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model.shape == (36, 2) and len(model.model.data[0]) == 36
    np.testing.assert_allclose(
        np.sort(model.training_data[0][30:], axis=0), np.sort(NEW, axis=0), rtol=1e-12
    )


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("what", ["gaps", "censored"])
def test_a_bound_counts_the_entries_that_new_rows_have(what: str) -> None:
    """The determinant of the scaling is of the entries that are seen, also after an update."""
    options: dict = {}
    if what == "gaps":
        observed, new, seen = Y.copy(), Y[:6], [21, 36]
        observed[::2, 0] = np.nan
    else:
        observed, new, seen = Y[:, :1], np.hstack([Y[:6, :1], np.zeros((6, 1))]), [21]
        options = {"likelihood": "tobit", "censored": np.arange(30) % 2}
    model = gd.build(X, observed, verbose=False, **options)
    model.update((NEW, new))
    assert float(model.log_scale()) == pytest.approx(seen @ np.log(model.outputs.scale.numpy()))


@pytest.mark.exhaustive
def test_plots_are_in_units(exact) -> None:
    axes = plot_calibration(exact, (NEW, Y[:6, :1]))
    assert axes.get_xlabel() == "predictive quantile"
    frame = pd.DataFrame({"age": X[:, 0], "town": ["a", "b"] * 15, "rent": Y[:, 0]})
    model = gd.build(frame, "rent", verbose=False)
    gd.fit(model, frame, steps=2, progress=False)
    assert plot_calibration(model, frame) is not None
    figure = plot_posterior(model, frame, num_points=5)
    assert [ax.get_xlabel() for ax in figure.axes][:3] == ["age", "town=a", "town=b"]


@pytest.mark.exhaustive
def test_parts_of_a_kernel_keep_their_units() -> None:
    """A kernel handed over is in units of X; its variance is in those of Y at last."""
    parts = gpflow.kernels
    own = parts.Matern32(lengthscales=40.0, active_dims=[0]) * parts.Periodic(
        parts.SquaredExponential(active_dims=[0]), period=60.0
    ) + parts.Linear(active_dims=[1])
    model = gd.build(X, Y[:, :1], kernel=own, verbose=False)
    np.testing.assert_allclose(model.kernel(X), own(X) * Y[:, 0].std() ** 2, rtol=1e-9)
    scaled = gd.build(X, Y[:, :1], kernel=own, scale="both", verbose=False)
    with pytest.raises(ModelError, match="Periodic of scaled X has no form in units"):
        _ = scaled.kernel
    noisy = gpflow.likelihoods.Gaussian(gpflow.functions.Constant(0.1))
    with pytest.raises(ModelError, match="Noise that depends on the inputs"):
        _ = gd.build(X, Y[:, :1], noisy, verbose=False).likelihood


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("kind", ["coregionalised", "mixed", "separate", "shared"])
def test_kernels_of_outputs_are_in_units(kind: str) -> None:
    """Covariances of outputs of other sizes, and values that are assigned there."""
    parts, options = gpflow.kernels, {}
    if kind == "coregionalised":
        options["outputs"] = kind
    else:
        latents = [parts.Matern32(lengthscales=[1.0, 2.0]), parts.Matern52()]
        options["kernel"] = {
            "mixed": lambda _: parts.LinearCoregionalization(latents, [[1.0, 0.2], [0.5, 2.0]]),
            "separate": lambda _: parts.SeparateIndependent(latents),
            "shared": lambda _: parts.SharedIndependent(latents[0], 2),
        }[kind]
    model = gd.build(X, Y, scale="both", verbose=False, **options)
    inner, scale = model.model.kernel, Y.std(axis=0)
    standardised = model.inputs.transform(X)
    expected = inner(standardised, full_cov=True, full_output_cov=True)
    expected = expected * scale[:, None, None] * scale
    found = model.kernel(X, full_cov=True, full_output_cov=True)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    free = gpflow.utilities.deepcopy(model.kernel)
    np.testing.assert_allclose(free(X, full_cov=True, full_output_cov=True), expected, rtol=1e-9)
    view = model.kernel.latent_kernels[-1]
    view.lengthscales.assign(3.0 * view.lengthscales)
    again = model.kernel.latent_kernels[-1].lengthscales
    np.testing.assert_allclose(again, 3.0 * free.latent_kernels[-1].lengthscales.numpy())
    np.testing.assert_allclose(
        inner.latent_kernels[-1].lengthscales * model.inputs.scale, again, rtol=1e-9
    )


@pytest.mark.exhaustive
def test_other_noise_is_in_units() -> None:
    for name in ("student_t", "laplace"):
        model = gd.build(X, Y[:, :1], name, verbose=False)
        expected = model.model.likelihood.scale.numpy() * Y[:, 0].std()
        np.testing.assert_allclose(model.likelihood.scale, expected)
    counts = np.round(Y[:, :1])
    model = gd.build(X, counts, "poisson", verbose=False)
    assert model.likelihood is model.model.likelihood


def test_other_data_of_a_full_gp_have_no_bound(exact) -> None:
    assert float(exact.elbo((X, Y[:, :1]))) == pytest.approx(float(exact.elbo()))
    with pytest.raises(DataError, match="CVIGP owns the 30 rows"):
        exact.elbo((NEW, Y[:6, :1]))


@pytest.mark.exhaustive
def test_parts_are_views_of_what_trains() -> None:
    model = gd.build(X, Y[:, :1], verbose=False)
    inside, factor = model.model.kernel, X.std(axis=0)
    gpflow.set_trainable(model.kernel, False)
    assert not inside.trainable_parameters and not model.kernel.trainable_parameters
    gpflow.set_trainable(model.kernel.variance, True)
    assert inside.variance.trainable and not inside.lengthscales.trainable
    model.kernel.lengthscales.assign(3.0 * factor)
    np.testing.assert_allclose(inside.lengthscales, 3.0)
    model.likelihood.variance.assign(2.0)
    expected = 2.0 / Y[:, 0].std() ** 2
    np.testing.assert_allclose(model.model.likelihood.variance, expected)
    copied = gpflow.utilities.deepcopy(model.kernel)  # plain, for other models
    assert type(copied) is gpflow.kernels.Matern52
    copied.lengthscales.assign(factor)
    np.testing.assert_allclose(inside.lengthscales, 3.0)


def test_views_refuse_what_would_have_no_effect() -> None:
    one = gpflow.kernels.Matern52(lengthscales=2.0)
    model = gd.build(X, Y[:, :1], kernel=one, scale="both", verbose=False)
    with pytest.raises(ModelError, match="Matern52.variance is a view"):
        model.kernel.variance = 2.0
    with pytest.raises(ModelError, match="a prior would have no effect"):
        model.kernel.variance.prior = object()
    with pytest.raises(DataError, match="lengthscales is a single number in standardised data"):
        model.kernel.lengthscales.assign([1.0, 2.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="variance cannot be -1"):
        model.likelihood.variance.assign(-1.0)
    model.kernel.lengthscales.assign(3.0 * X.std(axis=0))
    np.testing.assert_allclose(model.model.kernel.lengthscales, 3.0)


@pytest.mark.exhaustive
def test_callbacks_and_the_line_show_units(monkeypatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(
        "gpflow_decoupled.training.options.ProgressLine.show",
        lambda self, text: lines.append(text),
    )
    model = gd.build(X, Y[:, :1], verbose=False)
    seen: list[float] = []
    callback = lambda step, metrics, inside: seen.append(metrics["elbo"])  # noqa: E731
    result = gd.fit(model, steps=9, callbacks=[callback], progress=False)
    assert seen == [pytest.approx(result.elbo)]
    assert float(lines[-1].split()[-2]) == pytest.approx(result.elbo, rel=1e-4)
