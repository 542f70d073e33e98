"""`build` with gaps in the outputs, and with numbers of each row."""

from __future__ import annotations

import gpflow
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import RowLikelihood
from gpflow_decoupled.wrappers.sklearn import DecoupledGPClassifier, DecoupledGPRegressor

RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 10.0, (40, 2))
F = np.sin(X[:, 0])
Y = 100.0 + np.stack([20.0 * F, 2.0 * F + 0.3 * X[:, 1]], axis=1)
Y += [1.0, 0.2] * RNG.normal(size=Y.shape)
GAPS = Y.copy()
GAPS[:12, 1] = np.nan
GAPS[30:, 0] = np.nan
QUIET = {"verbose": False}
EAGER = {"compile": False, "progress": False}


@pytest.mark.exhaustive
def test_a_missing_entry_leaves_out_just_this_entry(tmp_path) -> None:
    """The bound is the sum of the exact evidences of the outputs, on the rows that each has."""
    model = gd.build(X, GAPS, **QUIET)
    assert isinstance(model.model.likelihood, RowLikelihood)
    result = gd.fit(model, steps=4, **EAGER)
    kernel, noise = model.kernel, model.likelihood.likelihood.variance.numpy()
    exact = 0.0
    for p in range(2):
        seen, mean = ~np.isnan(GAPS[:, p]), gpflow.functions.Constant(model.outputs.mean[p])
        twin = gpflow.models.GPR((X[seen], GAPS[seen, p : p + 1]), kernel.kernels[p], mean)
        twin.likelihood.variance.assign(noise[p])
        exact += float(twin.log_marginal_likelihood())
        np.testing.assert_allclose(model.predict_f(X)[0][:, p], twin.predict_f(X)[0][:, 0])
    assert result.elbo == pytest.approx(exact, rel=1e-6)
    scores = model.predict_log_density((X, GAPS)).numpy()
    assert np.all(np.isfinite(scores))
    gd.save(model, str(tmp_path / "gaps"))
    again = gd.load(str(tmp_path / "gaps"))
    np.testing.assert_allclose(again.predict_y(X)[0], model.predict_y(X)[0])


@pytest.mark.exhaustive
def test_a_frame_keeps_rows_that_have_one_of_the_outputs(capsys) -> None:
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "u": GAPS[:, 0], "v": GAPS[:, 1]})
    frame.loc[12, ["u", "v"]] = np.nan
    model = gd.build(frame, ["u", "v"])
    assert "1 row without a target left out" in capsys.readouterr().out
    assert model.shape == (39, 2)
    assert gd.fit(model, frame, steps=1, **EAGER).steps == 1


def _related(seed: int, elsewhere: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, two outputs with gaps, their functions, and the rows where the second is not seen.

    The second output follows the first, and has a slow function of its own.
    """
    rng = np.random.default_rng(seed)
    x = np.linspace(0.0, 10.0, 40)[:, None]
    first, second = rng.uniform(0.0, 6.0, 2)
    f = np.sin(1.7 * x + first) + 0.5 * np.sin(2.9 * x + second)
    F = np.hstack([f, 2.0 - 0.8 * f + 0.3 * np.sin(0.5 * x)])
    y = F + 0.1 * rng.standard_normal(F.shape)
    gap = (x[:, 0] > 4.0) & (x[:, 0] < 7.0)
    y[gap, 1] = np.nan
    if elsewhere:  # outside of the gap no row has both
        y[::2, 0] = np.where(gap[::2], y[::2, 0], np.nan)
        y[1::2, 1] = np.nan
    return x, y, F, gap


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "seed, elsewhere", [(2, False), (2, True), *((seed, False) for seed in (0, 1, 3, 4))]
)
def test_related_outputs_fill_gaps(seed: int, elsewhere: bool) -> None:
    """Without own functions intervals in the gap covered 3 to 22 %, since the shared function had
    to be everything.
    """
    x, y, F, gap = _related(seed, elsewhere)
    errors = []
    for outputs in (None, "coregionalised"):
        model = gd.build(x, y, outputs=outputs, **QUIET)
        gd.fit(model, steps=9, progress=False)
        mean, variance = (np.asarray(part)[gap, 1] for part in model.predict_f(x))
        errors.append(np.sqrt(np.mean((mean - F[gap, 1]) ** 2)))
    assert errors[1] < 0.7 * errors[0]
    inside = np.abs(mean - F[gap, 1]) < 3.0 * np.sqrt(variance)
    assert np.mean(inside) > 0.5


@pytest.mark.exhaustive
def test_coregionalised_models_are_saved_and_drawn(tmp_path) -> None:
    model = gd.build(X, GAPS, outputs="coregionalised", rank=2, **QUIET)
    kernel = model.model.kernel
    assert kernel.W.shape == (2, 4) and kernel.shared.shape == (2, 2)
    assert [bool(part.variance.trainable) for part in kernel.kernels] == [False, False, True, True]
    gd.save(model, tmp_path / "model.zip")
    again = gd.load(tmp_path / "model.zip")
    np.testing.assert_allclose(again.predict_y(X)[0], model.predict_y(X)[0])
    assert gd.wrappers.plot_posterior(model) is not None


@pytest.mark.exhaustive
@pytest.mark.parametrize("level", [0.9, None])
def test_a_quantile_has_a_level(level: float | None) -> None:
    y = F + 0.5 * np.random.default_rng(1).standard_normal(40)
    model = gd.build(X, y, "quantile", quantile=level, **QUIET)
    gd.fit(model, steps=9, **EAGER)
    below = np.mean(y < np.asarray(model.predict_f(X)[0])[:, 0])
    assert below > 0.8 if level else 0.3 < below < 0.7


@pytest.mark.parametrize(
    "name, level, message",
    [
        ("quantile", 1.5, "quantile=1.5 must be a number above 0"),
        ("gaussian", 0.9, 'quantile=0.9 is the level of likelihood="quantile"'),
    ],
)
def test_bad_levels_are_refused(name: str, level: float, message: str) -> None:
    with pytest.raises(DataError, match=message):
        gd.build(X, Y[:, 0], name, quantile=level, **QUIET)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize(
    "options", [{"num_inducing": 5, "num_mean_points": 0}, {"outputs": "coregionalised"}]
)
def test_other_models_take_gaps(options: dict) -> None:
    model = gd.build(X, GAPS, **options, **QUIET)
    result = gd.fit(model, steps=2, **EAGER)
    assert np.isfinite(result.elbo) and np.all(np.isfinite(model.predict_y(X)[0]))


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("mean_points", [0, 5])
@pytest.mark.parametrize("several", ["heteroskedastic", "coregionalised"])
def test_several_latents_have_inducing_points(several: str, mean_points: int) -> None:
    """Without mean points they were refused when training began, for the kind of the points."""
    shared = several == "coregionalised"
    data = (X, Y) if shared else (X, Y[:, :1])
    options = {"outputs": several} if shared else {"likelihood": several}
    model = gd.build(*data, **options, num_inducing=5, num_mean_points=mean_points, **QUIET)
    result = gd.fit(model, steps=2, **EAGER)
    assert np.isfinite(result.elbo) and np.all(np.isfinite(model.predict_y(X)[0]))


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_weights_are_relative(factor: float) -> None:
    """Those of mean 3 sent the noise to 0: rows counted as copies of one draw.

    A row counts as if its noise were s2 / w, but for the normaliser of its density to the power w.
    """
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 40)
    w, y = weight / weight.mean(), Y[:, 0]
    model = gd.build(X, y, sample_weight=factor * weight, **QUIET)
    gd.optimizers.ConjugateComputation(1.0).run(model.model)
    mean, scale = np.average(y, weights=w), model.outputs.scale.numpy()[0]
    assert scale == pytest.approx(np.sqrt(np.average((y - mean) ** 2, weights=w)))
    s2 = model.likelihood.likelihood.variance.numpy() * np.ones(40)
    K = model.kernel(X).numpy() + np.diag(s2 / w)
    solved = np.linalg.solve(K, y - mean)
    exact = -0.5 * ((y - mean) @ solved + np.linalg.slogdet(2.0 * np.pi * K)[1])
    exact += 0.5 * np.sum(np.log(2.0 * np.pi * s2 / w) - w * np.log(2.0 * np.pi * s2))
    assert float(model.elbo()) == pytest.approx(exact, rel=1e-8)
    expected = mean + model.kernel(X[:3] + 0.5, X).numpy() @ solved
    np.testing.assert_allclose(model.predict_f(X[:3] + 0.5)[0][:, 0], expected, rtol=1e-8)
    np.testing.assert_allclose(model.training_data[1][:, 1], factor * weight)
    model.update((X[:1], np.array([[y[0], 6.0 * factor]])))
    assert model._Y[-1, 1] == pytest.approx(6.0 / weight.mean())


NOTHING = np.array([0, 17])
"""Rows that say nothing."""
_FRAME = pd.DataFrame({"a": X[:, 0], "word": np.where(np.arange(40) % 2, "u", "v")})


def _with_nothing(name: str) -> tuple[object, np.ndarray, dict]:
    """X, y and options of `build`, with something odd in two rows."""
    x, y, options = X.copy(), Y[:, 0].copy(), dict[str, object]()
    if name == "far away":
        x[NOTHING] = 1e4
    elif name == "labels":
        y = np.where(F > 0.0, 1.0, 0.0)
        y[NOTHING], options = 2.0, {"likelihood": "multiclass"}
    elif name == "counts":
        y, options = np.round(np.exp(F)), {"likelihood": "poisson", "exposure": np.exp(X[:, 1])}
        y[NOTHING] = 1e6
    elif name == "a frame":
        x = _FRAME.assign(word=_FRAME.word.where(~np.isin(np.arange(40), NOTHING), "new"))
        x.index = np.linspace(40.0, 0.5, 40)
    elif name == "outputs":
        y, options = Y.copy(), {"outputs": "coregionalised"}
        y[NOTHING] = [-9999.0, 9999.0]
    else:
        y[NOTHING], options = -9999.0, {"neighbours": {"num_neighbours": 6}}.get(name, {})
    options |= {"num_inducing": 7, "num_mean_points": 0} if name in ("points", "far away") else {}
    return x, y, options


@pytest.mark.costly(keep=2)
@pytest.mark.filterwarnings("ignore:column 'word' has words that training did not have")
@pytest.mark.parametrize(
    "name", ["exact", "neighbours", "points", "far away", "labels", "counts", "a frame", "outputs"]
)
def test_rows_of_weight_zero_are_no_data(name: str) -> None:
    """Before, one of y = -9999 set the scale: predictions of 0.16 for 0.83 to -0.82."""
    x, y, options = _with_nothing(name)
    seen = ~np.isin(np.arange(40), NOTHING)
    weight = np.where(seen, np.linspace(1.0, 2.0, 40), 0.0)
    part = options | ({"exposure": options["exposure"][seen]} if "exposure" in options else {})
    model = gd.build(x, y, sample_weight=weight, **options, **QUIET)
    other = gd.build(x[seen], y[seen], sample_weight=weight[seen], **part, **QUIET)
    found, expected = (gpflow.utilities.parameter_dict(one) for one in (model, other))
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value)
    for ours, theirs in zip(model.training_data, other.training_data):
        np.testing.assert_array_equal(ours, theirs)
    # data of the caller have these rows, and are known again
    for ours, own in zip(model._to_train_on((x, y)), (model._X, model._Y)):
        np.testing.assert_array_equal(ours, own)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", ["exact", "far away", "outputs"])
def test_known_noise_says_how_much_a_row_counts(name: str) -> None:
    x, y, options = _with_nothing(name)
    seen = ~np.isin(np.arange(40), NOTHING)
    noise = np.where(seen, 0.5, 1e12)
    model = gd.build(x, y, noise_variance=noise, **options, **QUIET)
    other = gd.build(x[seen], y[seen], noise_variance=noise[seen], **options, **QUIET)
    for part in ("mean", "scale"):
        for ours, theirs in ((model.inputs, other.inputs), (model.outputs, other.outputs)):
            np.testing.assert_allclose(getattr(ours, part), getattr(theirs, part), rtol=1e-6)
    if name == "far away":
        points = (one.inducing_variable.Z.numpy() for one in (model, other))
        np.testing.assert_allclose(*points, rtol=1e-6)


def test_known_noise_is_in_units_and_may_be_a_column() -> None:
    noise = RNG.uniform(0.01, 25.0, 40)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "s2": noise, "y": Y[:, 0]})
    model = gd.build(frame, "y", noise_variance="s2", **QUIET)
    assert [str(name) for name in model.table.names] == ["a", "b"]
    result = gd.fit(model, frame, steps=3, **EAGER)
    own = gpflow.functions.Constant(model.outputs.mean[0])
    K = model.kernel(X).numpy() + np.diag(noise + model.likelihood.likelihood.variance.numpy())
    residual = Y[:, 0] - own(X)[:, 0].numpy()
    exact = -0.5 * (residual @ np.linalg.solve(K, residual) + np.linalg.slogdet(2.0 * np.pi * K)[1])
    assert result.elbo == pytest.approx(exact, rel=1e-6)
    np.testing.assert_allclose(model.training_data[1][:, 1], noise)
    with_noise = model.predict_log_density(frame).numpy()
    assert not np.allclose(with_noise, model.predict_log_density((X, Y[:, :1])))


@pytest.mark.exhaustive
def test_exposure_and_trials() -> None:
    exposure = RNG.uniform(0.5, 20.0, 40)
    counts = RNG.poisson(exposure * np.exp(F))
    model = gd.build(X, counts, "poisson", exposure=exposure, **QUIET)
    level = float(model.model.mean_function.c.numpy().reshape(()))
    assert level == pytest.approx(np.log(counts.mean() / exposure.mean()))
    far = gd.build(X, counts, "poisson", offset=np.log(exposure) - 1000.0, **QUIET)
    np.testing.assert_allclose(far.model.mean_function.c, level + 1000.0)
    gd.fit(model, steps=9, **EAGER)
    rates = model.predict_y(X)[0].numpy()[:, 0]
    assert np.corrcoef(np.log(rates), F)[0, 1] > 0.9
    trials = RNG.integers(1, 30, 40)
    share = 1.0 / (1.0 + np.exp(-2.0 * F))
    model = gd.build(X, RNG.binomial(trials, share), "bernoulli", trials=trials, **QUIET)
    gd.fit(model, steps=9, **EAGER)
    assert np.corrcoef(model.predict_y(X)[0].numpy()[:, 0], share)[0, 1] > 0.9


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [{}, {"num_inducing": 8, "num_mean_points": 0}])
def test_rows_keep_their_numbers_in_training(options: dict) -> None:
    """Rows that the model was built from have their exposures in every model that trains on them.

    Their bound is that of Y with the numbers as further columns; those of other rows are said to be
    missing.
    """
    rng = np.random.default_rng(1)
    exposure = rng.uniform(0.5, 20.0, 40)
    counts = rng.poisson(exposure * np.exp(F))[:, None].astype(float)
    complete = np.hstack([counts, np.log(exposure)[:, None]])
    bounds = []
    for data in ((X, counts), (X, complete), None):
        model = gd.build(X, counts, "poisson", exposure=exposure, **options, **QUIET)
        bounds.append(gd.fit(model, data, steps=2, **EAGER).history["elbo"])
    np.testing.assert_allclose(bounds, bounds[1:2] * 3, rtol=1e-12)
    assert float(model.elbo((X, counts))) == pytest.approx(float(model.elbo()), rel=1e-12)
    other = X + 0.1, counts
    if not options:
        with pytest.raises(DataError, match="Y is another"):
            model.elbo((X, complete + [[0.0, 1.0]]))
        with pytest.warns(UserWarning, match="Y has no offset of its rows"):
            model.update(other)
        return
    with pytest.warns(UserWarning, match="Pass offset as further columns of Y"):
        model.elbo(other)


@pytest.mark.parametrize("y", [Y, GAPS])
def test_noise_that_varies_is_of_one_output(y: np.ndarray) -> None:
    with pytest.raises(DataError, match="build a model for each column, of the rows that have it"):
        gd.build(X, y, "heteroskedastic", **QUIET)


@pytest.mark.exhaustive
def test_noise_that_varies_is_better_with_a_latent_for_it() -> None:
    x = np.linspace(0.0, 60.0, 90)[:, None]
    y = 50.0 * np.sin(x / 8.0) + np.where(x < 30.0, 1.0, 25.0) * RNG.normal(size=x.shape)
    scores = []
    for name in ("gaussian", "heteroskedastic"):
        model = gd.build(x[::2], y[::2], name, **QUIET)
        gd.fit(model, steps=9, **EAGER)
        scores.append(float(np.mean(model.predict_log_density((x[1::2], y[1::2])))))
    assert scores[1] > scores[0] + 0.2
    mean = model.predict_f(x)[0].numpy()
    assert np.ptp(mean[:, 0]) > 50.0 and mean.shape == (90, 2)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize(
    "options, message",
    [
        ({"sample_weight": np.ones(3)}, r"sample_weight has shape \(3,\); pass a number per row"),
        ({"exposure": np.zeros(40)}, "exposure has entries that are not positive"),
        ({"offset": np.full(40, np.nan), "likelihood": "poisson"}, "offset of row 0 is nan; pass"),
        ({"exposure": np.ones(40), "offset": np.ones(40)}, "pass one"),
        ({"noise_variance": "s"}, "noise_variance='s' is no column of X"),
        ({"outputs": "coregionalised"}, "pass two outputs or more"),
        ({"sample_weight": -np.ones(40)}, "weight of row 0 is -1"),
        ({"sample_weight": np.full(40, np.inf)}, "sample_weight of row 0 is inf; pass a finite"),
        ({"sample_weight": np.zeros(40)}, "sample_weight is 0 in all rows"),
        ({"exposure": np.full(40, np.inf)}, "exposure of row 0 is inf; pass a finite number"),
    ],
)
def test_bad_numbers_are_refused(options: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        gd.build(X, Y[:, 0], **options, **QUIET)


@pytest.mark.exhaustive
def test_estimators_take_them() -> None:
    weight = RNG.uniform(0.5, 2.0, 40)
    options = {"steps": 2, "fit_options": EAGER}
    gaps = DecoupledGPRegressor(**options).fit(X, GAPS)
    assert gaps.predict(X).shape == (40, 2)
    weighted = DecoupledGPRegressor(validation_fraction=0.2, **options)
    weighted.fit(X, Y[:, 0], sample_weight=weight)
    assert weighted.standardized_.numbers.names == ("weight",)
    quantiles = weighted.predict_quantiles(X, (0.1, 0.9))
    assert quantiles.shape == (40, 2) and np.all(quantiles[:, 0] < quantiles[:, 1])
    known = DecoupledGPRegressor(**options).fit(X, Y[:, 0], noise_variance=weight)
    assert np.all(np.isfinite(known.predict(X)))
    counts = RNG.poisson(weight * 9.0)
    counted = [
        DecoupledGPRegressor(likelihood="poisson", **options).fit(X, counts, **given)
        for given in ({"exposure": weight}, {"offset": np.log(weight)})
    ]
    assert all(model.standardized_.numbers is not None for model in counted)
    np.testing.assert_allclose(*(model.predict(X) for model in counted), rtol=1e-6)
    labels = np.where(F > 0.0, "up", "down")
    classifier = DecoupledGPClassifier(**options).fit(X, labels, sample_weight=weight)
    assert classifier.score(X, labels) > 0.7


@pytest.mark.exhaustive
def test_held_out_rows_have_their_numbers() -> None:
    """With an exposure of 1 they had a log density of -482 nats a row."""
    exposure = RNG.uniform(50.0, 200.0, 40)
    counts = RNG.poisson(exposure)
    frame = pd.DataFrame({"x": X[:, 0], "e": exposure})
    options = {"steps": 2, "validation_fraction": 0.2, "fit_options": EAGER}
    scores = [
        DecoupledGPRegressor(likelihood="poisson", **options)
        .fit(inputs, counts, exposure=given)
        .result_.history["log_density"]
        for inputs, given in ((frame, "e"), (X[:, :1], exposure))
    ]
    np.testing.assert_allclose(*scores, rtol=1e-6)


@pytest.mark.exhaustive
def test_left_out_rows_are_in_units_beside_numbers_of_rows() -> None:
    options = {"num_neighbours": 6, **QUIET}
    one = gd.build(X, GAPS, "student_t", sample_weight=np.ones(40), **options)
    other = gd.build(X, GAPS, "student_t", **options)
    rows = np.array([0, 20, 39])
    found, expected = (model.leave_one_out(rows) for model in (one, other))
    np.testing.assert_allclose(found.log_density, expected.log_density)
    inside = other.model.leave_one_out(rows).log_density
    seen = ~np.isnan(GAPS[rows])
    scale = np.sum(np.log(other.outputs.scale.numpy()) * seen, axis=1)
    np.testing.assert_allclose(found.log_density, inside - scale)


NUMBERS = {"offset": np.linspace(-1.0, 1.0, 12), "trials": np.arange(12.0) % 5 + 1.0}
NUMBERS["exposure"] = np.exp(NUMBERS["offset"])
LAWS = {
    # the argument of build, and y given f
    "poisson": ("exposure", lambda f, _: stats.poisson(np.exp(f))),
    "negative_binomial": ("offset", lambda f, _: stats.nbinom(1.0, 1.0 / (1.0 + np.exp(f)))),
    "binomial": ("trials", lambda f, _: stats.binom(NUMBERS["trials"], expit(f))),
    "beta_binomial": (
        "trials",
        lambda f, _: stats.betabinom(NUMBERS["trials"], 10.0 * expit(f), 10.0 * expit(-f)),
    ),
    "probit": ("trials", lambda f, _: stats.binom(NUMBERS["trials"], stats.norm.cdf(f))),
    "gaussian": ("offset", lambda f, own: stats.norm(f, np.sqrt(own.variance.numpy()))),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", LAWS)
def test_every_prediction_is_for_the_numbers_of_the_rows(name: str) -> None:
    """By sums over values of f, for columns of a frame, and for what is passed."""
    argument, law = LAWS[name]
    y = np.arange(12.0) % 2.0 + 100.0 * (argument == "offset" and name != "negative_binomial")
    frame = pd.DataFrame({"x": np.arange(12.0), "number": NUMBERS[argument], "y": y})
    model = gd.build(frame, "y", name, **{argument: "number"}, **QUIET)
    only = frame[["x"]]
    mean, variance = (np.asarray(part)[:, 0] for part in model.predict_f(only))
    z, w = np.polynomial.hermite_e.hermegauss(120)
    f = mean + np.sqrt(variance) * z[:, None] + (NUMBERS["offset"] if argument != "trials" else 0.0)
    own = getattr(model.likelihood, "likelihood", None)
    at, w = law(f, own), w[:, None] / w.sum()
    first = np.sum(w * at.mean(), axis=0)
    second = np.sum(w * (at.var() + (at.mean() - first) ** 2), axis=0)
    real = name == "gaussian"
    density = at.pdf if real else at.pmf
    given = {argument: NUMBERS[argument]}
    for X, data, numbers in ((frame, frame, {}), (only, (only, y[:, None]), given)):
        moments = (np.asarray(part)[:, 0] for part in model.predict_y(X, **numbers))
        for one, expected in zip(moments, (first, second)):
            np.testing.assert_allclose(one, expected, rtol=1e-6)
        found = model.predict_log_density(data, **numbers)
        np.testing.assert_allclose(found, np.log(np.sum(w * density(y), axis=0)), atol=1e-6)
        high = model.predict_quantiles(X, (0.8,), **numbers)[:, 0, 0]
        np.testing.assert_array_less(0.8 - 1e-6, np.sum(w * at.cdf(high), axis=0))
        low = high if real else high - 1.0
        np.testing.assert_array_less(np.sum(w * at.cdf(low), axis=0), 0.8 + 1e-6)
    plain = np.asarray(model.predict_y(only)[0])[:, 0]
    assert not np.allclose(plain, first)
    wrong = "offset" if argument == "trials" else "trials"
    with pytest.raises(DataError, match=f"built without {wrong}.*build it with {wrong}="):
        model.predict_y(only, **{wrong: NUMBERS[wrong]})
    with pytest.raises(DataError, match=f"{argument}='area' is no column of X"):
        model.predict_quantiles(only, **{argument: "area"})


@pytest.mark.exhaustive
def test_quantiles_of_f_plus_noise_move_with_the_offset() -> None:
    y, offset = 100.0 + 5.0 * F[:12], NUMBERS["offset"]
    model = gd.build(X[:12], y, "student_t", offset=offset, **QUIET)
    moved = model.predict_quantiles(X[:12], offset=offset)
    expected = model.predict_quantiles(X[:12]) + offset[:, None, None]
    np.testing.assert_allclose(moved, expected, rtol=1e-6)


def test_estimators_predict_for_an_exposure() -> None:
    options = {"likelihood": "poisson", "steps": 2, "num_inducing": 5, "num_mean_points": 0}
    model = DecoupledGPRegressor(**options, fit_options={"compile": False})
    model.fit(X[:12], np.arange(12.0), exposure=NUMBERS["exposure"])
    one, many = model.predict(X[:12]), model.predict(X[:12], exposure=NUMBERS["exposure"])
    np.testing.assert_allclose(many, one * NUMBERS["exposure"])
    high = model.predict_quantiles(X[:12], (0.9,), exposure=np.full(12, 100.0))
    assert np.all(high > 20.0 * model.predict(X[:12])[:, None])
