"""`build` chooses a model by the rules of docs/choosing.md, says what it chose, and refuses
unusable labels.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.bases import CoupledBasis, OrthogonalBasis
from gpflow_decoupled.building import FULL_ROWS
from gpflow_decoupled.building.likelihoods import prior_mean
from gpflow_decoupled.errors import DataError, UnknownOptionError
from gpflow_decoupled.likelihoods import BernoulliLogit, CategoricalLogit, Ordinal
from gpflow_decoupled.training import Evaluation, Schedule

EAGER = {"compile": False, "progress": False, "natural_gradient": 1.0, "learning_rate": 0.1}


def _waves(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """X [rows, 2] of tens, and Y = 500 + 100 sin with noise of 5."""
    rng = np.random.default_rng(0)
    X = rng.uniform(10.0, 30.0, (rows, 2))
    return X, 500.0 + 100.0 * np.sin(X[:, :1] / 3.0) + 5.0 * rng.standard_normal((rows, 1))


def test_three_lines_are_enough(capsys: pytest.CaptureFixture[str]) -> None:
    X, Y = _waves(60)
    model = gd.build(X, Y)
    said = capsys.readouterr().out
    assert (
        "CVIGP(Matern52, Gaussian, N=60) of 60 rows and 2 columns" in said
        and "X and Y standardised" in said
    )
    gd.fit(model, (X, Y), steps=6, **EAGER)
    mean, variance = (part.numpy() for part in model.predict_y(X))
    assert np.sqrt(np.mean((mean - Y) ** 2)) < 20.0 and np.all(variance > 0.0)
    gd.build(X, Y, verbose=False)
    assert capsys.readouterr().out == ""


def test_a_full_gp_has_the_exact_posterior() -> None:
    X, Y = _waves(30)
    model = gd.build(X, Y, verbose=False)
    gd.optimizers.ConjugateComputation(1.0).run(model.model)
    assert float(model.elbo()) == pytest.approx(_log_evidence(X, Y), rel=1e-8)


def _log_evidence(X: np.ndarray, Y: np.ndarray) -> float:
    """log p(Y) of the model before training, by NumPy alone."""
    z, y = (X - X.mean(axis=0)) / X.std(axis=0), (Y - Y.mean()) / Y.std()
    r = np.sqrt(np.sum((z[:, None] - z[None]) ** 2, axis=2) / z.shape[1])  # lengthscales sqrt(D)
    K = (1.0 + np.sqrt(5.0) * r + 5.0 / 3.0 * r**2) * np.exp(-np.sqrt(5.0) * r) + 0.1 * np.eye(
        len(X)
    )
    fit = -0.5 * (y.T @ np.linalg.solve(K, y)).item() - 0.5 * np.linalg.slogdet(2.0 * np.pi * K)[1]
    return fit - len(Y) * np.log(Y.std())


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options, basis, sizes",
    [
        ({"num_inducing": 20}, OrthogonalBasis, {"beta": 20, "gamma": 40}),
        ({"num_inducing": 20, "num_mean_points": 15}, OrthogonalBasis, {"beta": 20, "gamma": 15}),
        ({"num_inducing": 20, "num_mean_points": 0}, CoupledBasis, {"beta": 20}),
        ({"num_inducing": 300}, CoupledBasis, {"beta": 60}),
    ],
)
def test_numbers_of_points_are_taken(options: dict, basis: type, sizes: dict) -> None:
    model = gd.build(*_waves(60), verbose=False, **options)
    assert type(model.model.basis) is basis and model.model.sizes == sizes


@pytest.mark.exhaustive
def test_many_rows_have_two_sets_of_points(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gpflow_decoupled.building.choice.NUM_INDUCING", 12)
    X, Y = _waves(FULL_ROWS + 1)
    model = gd.build(X, Y, "student_t")
    assert isinstance(model.model, gd.models.ODVGP)
    assert "beta for mean and covariance, gamma for the mean alone" in capsys.readouterr().out


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name, Y, kind, scaled",
    [
        ("bernoulli", [0, 1, 1, 0], BernoulliLogit, False),
        ("multiclass", [0, 1, 1, 0], BernoulliLogit, False),
        ("multiclass", [0, 1, 2, 0], CategoricalLogit, False),
        ("ordinal", [0, 2, 1, 0], Ordinal, False),
        ("poisson", [0, 500, 600, 800], gpflow.likelihoods.Poisson, False),
        ("student_t", [0.5, 1.5, 2.0, 1.0], gpflow.likelihoods.StudentT, True),
        ("gamma", [0.5, 1.5, 2.0, 1.0], gpflow.likelihoods.Gamma, False),
    ],
)
def test_likelihoods_have_names(name: str, Y: list, kind: type, scaled: bool) -> None:
    X = np.arange(4.0)[:, None]
    model = gd.build(X, np.array(Y)[:, None], name, verbose=False)
    assert isinstance(model.model.likelihood, kind)
    assert (model.outputs is not None) == scaled
    assert model.model.num_latent_gps == (3 if kind is CategoricalLogit else 1)
    assert isinstance(model.model, gd.models.CVIGP)
    assert np.all(np.isfinite(model.predict_y(X)[0]))


def test_large_counts_start_at_their_mean() -> None:
    X, counts = np.arange(20.0)[:, None], np.random.default_rng(0).poisson([500.0, 1.0], (20, 2))
    mean = gd.build(X, counts, "poisson", verbose=False).model.mean_function(X)
    np.testing.assert_allclose(mean[0], np.log(counts.mean(axis=0)))
    np.testing.assert_allclose(prior_mean("poisson", np.zeros((20, 1)))(X), np.log(0.5 / 20))


@pytest.mark.exhaustive
def test_what_is_passed_is_copied_and_used() -> None:
    X, Y = _waves(20)
    kernel, likelihood = (
        gpflow.kernels.Matern32(lengthscales=[1.0, 2.0]),
        gpflow.likelihoods.Gaussian(0.5),
    )
    model = gd.build(
        X, np.concatenate([Y, -Y], axis=1), likelihood, kernel, num_inducing=5, verbose=False
    )
    assert model.model.num_latent_gps == 2
    assert model.model.kernel is not kernel and model.model.likelihood is not likelihood
    np.testing.assert_array_equal(model.model.kernel.lengthscales, [1.0, 2.0])
    assert float(model.model.likelihood.variance.numpy()) == pytest.approx(0.5)
    made = gd.build(X, Y, kernel=lambda D: gpflow.kernels.Linear(variance=[1.0] * D), verbose=False)
    assert isinstance(made.model.kernel, gpflow.kernels.Linear)


@pytest.mark.exhaustive
def test_each_output_has_a_noise_of_its_own() -> None:
    """A quiet output beside a loud one has intervals of its own width."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 10.0, (60, 1))
    noise = np.array([0.02, 0.5])
    Y = np.hstack([np.sin(X), np.cos(X)]) + noise * rng.standard_normal((60, 2))
    model = gd.build(X, Y, verbose=False)
    gd.fit(model, (X, Y), progress=False)
    np.testing.assert_allclose(np.sqrt(model.likelihood.variance), noise, rtol=0.3)
    spread = np.sqrt(np.mean(model.predict_y(X)[1], axis=0))
    np.testing.assert_allclose(spread, noise, rtol=0.4)
    sparse = gd.build(X, Y, num_inducing=9, verbose=False)
    gd.fit(sparse, initialize="auto", steps=20, progress=False)
    quiet, loud = np.sqrt(sparse.likelihood.variance)
    assert quiet < 0.2 * loud


BINARY = np.array([[0.0], [1.0], [1.0], [0.0]])


@pytest.mark.parametrize(
    "Y, likelihood, message",
    [
        (BINARY[:, :, None], "bernoulli", r"Y has shape \(4, 1, 1\); Y must be a matrix"),
        (
            2.0 * BINARY - 1.0,
            "bernoulli",
            "outside the support of BernoulliLogit, which takes 0 or 1; recode Y",
        ),
        (
            BINARY + 1.0,
            "multiclass",
            "Y has the labels 1, 2; classes are 0, 1, 2, ... with none left out",
        ),
        (np.zeros((4, 1)), "multiclass", "Y has one class"),
        (np.eye(4)[:, :2], "multiclass", "Y has 2 columns; for classes pass one"),
        (
            np.array([["a"], ["b"], ["b"], ["a"]]),
            "gaussian",
            "Y holds string values; encode them as numbers",
        ),
        (BINARY - 0.5, "poisson", "outside the support of Poisson"),
        (BINARY * np.nan, "gaussian", r"Y\[0, 0\] is nan"),
        (
            BINARY,
            gpflow.likelihoods.Bernoulli,
            "likelihood is the class Bernoulli itself; pass an instance",
        ),
        (BINARY[:3], "gaussian", "X has 4 rows and Y has 3"),
        (BINARY.T, "poisson", r"X has 4 rows and Y has 1; .*: use Y\.T\."),
    ],
)
def test_bad_data_are_refused(Y: np.ndarray, likelihood: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        gd.build(np.arange(4.0)[:, None], Y, likelihood, verbose=False)


def test_bad_options_are_refused() -> None:
    X, Y = _waves(10)
    with pytest.raises(
        UnknownOptionError,
        match="likelihood='normal' is not known; use one of 'gaussian', .* mean 'gaussian'?",
    ):
        gd.build(X, Y, "normal")
    for name, near in {
        "binary": "bernoulli",
        "Poisson": "poisson",
        "studentt": "student_t",
    }.items():
        with pytest.raises(UnknownOptionError, match=rf"Did you mean '{near}'\?"):
            gd.build(X, Y, name)
    with pytest.raises(DataError, match="num_inducing=0 must be a whole number of at least 1"):
        gd.build(X, Y, num_inducing=0)
    with pytest.raises(DataError, match="num_mean_points=-1"):
        gd.build(X, Y, num_mean_points=-1)
    with pytest.raises(DataError, match="seed=-1"):
        gd.build(X, Y, seed=-1)
    with pytest.raises(DataError, match=r"'rbf' is no .*\"auto\".*SquaredExponential\(\).* RBF"):
        gd.build(X, Y, kernel="rbf")
    with pytest.warns(UserWarning, match='Y is true or false, .*likelihood="bernoulli"'):
        gd.build(X, Y[:, :1] > np.mean(Y), verbose=False)
    with pytest.raises(DataError, match="has 3 lengthscales and reads 2 columns"):
        gd.build(X, Y, kernel=gpflow.kernels.Matern52(lengthscales=[1.0, 1.0, 1.0]))


@pytest.mark.exhaustive
def test_the_mean_may_be_on_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """With the mean of the exact GP at the hyperparameters as they are, in the units of the
    data.
    """
    X, Y = _waves(60)
    model = gd.build(X, Y, num_inducing=10, num_mean_points="data")
    assert "the mean is on all rows" in capsys.readouterr().out
    for part in (model.model.kernel, model.model.likelihood, model.model.basis.beta):
        gpflow.set_trainable(part, False)
    gd.fit(
        model,
        (X, Y),
        steps=1,
        mean_solver=gd.optimizers.ConjugateGradients(tolerance=1e-9),
        progress=False,
    )
    exact = gd.build(X, Y, verbose=False)
    gd.optimizers.ConjugateComputation(1.0).run(exact.model)
    np.testing.assert_allclose(
        model.predict_f(X[:7] + 0.5)[0], exact.predict_f(X[:7] + 0.5)[0], atol=1e-3
    )
    with pytest.raises(
        DataError, match="num_mean_points='all' must be a number of points, or 'data'"
    ):
        gd.build(X, Y, num_mean_points="all")


@pytest.mark.exhaustive
def test_fit_takes_data_in_their_units_as_the_method_does() -> None:
    X, Y = _waves(40)
    models = [gd.build(X, Y, num_inducing=5, num_mean_points=0, verbose=False) for _ in range(2)]
    scores = Evaluation((X[:5], Y[:5]), every=2)
    gd.fit(models[0], (X, Y), steps=1, evaluation=scores, **EAGER)
    models[1].fit(steps=1, evaluation=(X[:5], Y[:5]), **EAGER)
    np.testing.assert_allclose(
        models[1].predict_f(X[:4])[0], models[0].predict_f(X[:4])[0], rtol=1e-12
    )
    models[0].model.num_data = None
    with pytest.raises(DataError, match=r"X has shape \(40,\); it must be a matrix"):
        gd.fit(models[0], (X[:, 0], Y), steps=1, **EAGER)


@pytest.mark.exhaustive
def test_fit_takes_a_dataset_in_its_units() -> None:
    X, Y = _waves(40)
    models = [gd.build(X, Y, num_inducing=10, num_mean_points=5, verbose=False) for _ in range(2)]
    models[0].model.num_data = 40
    gd.fit(models[0], tf.data.Dataset.from_tensor_slices((X, Y)).batch(40), steps=1, **EAGER)
    gd.fit(models[1], (X, Y), steps=1, batch_size=None, **EAGER)
    np.testing.assert_allclose(
        models[1].predict_f(X[:4])[0], models[0].predict_f(X[:4])[0], rtol=1e-9
    )


@pytest.mark.exhaustive
def test_a_model_that_owns_its_data_refuses_others() -> None:
    X, Y = _waves(20)
    model = gd.build(X, Y, verbose=False)
    for data, message in (
        ((X[:5], Y[:5]), "CVIGP owns the 20 rows"),
        ((X, Y + 1.0), "and Y is another"),
    ):
        with pytest.raises(DataError, match=message):
            gd.fit(model, data, steps=1, **EAGER)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:The bound fell")  # as natural gradients of a robust maximum may
def test_adam_moves_q_of_a_robust_maximum() -> None:
    """Unless an option asks for natural gradients; see docs/benchmarks.md for the measurement."""
    X, Y = _waves(20)
    labels = np.digitize(Y, [450.0, 550.0])
    quiet = {
        "steps": 1,
        "compile": False,
        "progress": False,
        "schedule": Schedule(ramp_steps=0, anneal=0.0),
    }
    moved = []
    for options in (
        {},
        {"natural_gradient": None},
        {"natural_gradient": 0.5},
        {"negative_precision": "damp"},
    ):
        model = gd.build(X, labels, gpflow.likelihoods.MultiClass(3), num_inducing=5, verbose=False)
        gd.fit(model, (X, labels), **quiet, **options)
        moved.append(model.model.basis.q_mu.numpy())
    np.testing.assert_array_equal(moved[0], moved[1])
    np.testing.assert_array_equal(moved[2], moved[3])
    assert not np.allclose(moved[0], moved[2])


def test_rows_of_classes_beyond_a_full_gp_have_neighbours() -> None:
    X, Y = _waves(600)
    labels = np.digitize(Y, [450.0, 550.0])
    inside = gd.build(X, labels, "multiclass", verbose=False).model
    assert isinstance(inside, gd.models.NNGP) and inside.num_neighbours == 30
    other = gd.build(X, labels, "multiclass", verbose=False, num_inducing=9, num_mean_points=0)
    assert not isinstance(other.model, gd.models.NNGP)


@pytest.mark.exhaustive
def test_neighbours_are_taken_where_they_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    X, Y = _waves(60)
    for likelihood, labels in (
        ("bernoulli", (Y > 500.0).astype(int)),
        ("multiclass", np.digitize(Y, [450.0, 550.0])),
        ("poisson", np.floor(Y / 100.0).astype(int)),
        ("gaussian", Y),
    ):
        inside = gd.build(X, labels, likelihood, num_neighbours=9).model
        assert isinstance(inside, gd.models.NNGP)
        assert inside.num_neighbours == 9 and inside.chooses_neighbours
    assert "9 nearest earlier ones" in capsys.readouterr().out
    with pytest.raises(DataError, match="num_neighbours=9 asks"):
        gd.build(X, Y, num_neighbours=9, num_inducing=5)
    with pytest.raises(DataError, match="outputs"):
        gd.build(X, np.hstack([Y, Y]), num_neighbours=9, outputs="coregionalised")
    with pytest.raises(DataError, match="num_neighbours"):
        gd.build(X, Y, num_neighbours=0)
