"""Mean functions, and noise that does not train, are in the user's units."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import AsymmetricLaplace, CensoredNormal, Laplace

RNG = np.random.default_rng(0)
X, XNEW = RNG.uniform(0.0, 10.0, (25, 2)), RNG.uniform(0.0, 30.0, (6, 2))
SLOPE = np.array([[30.0], [-5.0]])
Y = 500.0 + X @ SLOPE + 20.0 * np.sin(X[:, :1]) + RNG.normal(size=(25, 1))
QUIET = {"verbose": False}


def _line(outputs: int = 1) -> gpflow.functions.MeanFunction:
    return gpflow.functions.Linear(SLOPE * np.arange(1.0, outputs + 1.0), 450.0)


def _plain(model: gd.Standardized, mean: object, y: np.ndarray) -> gpflow.models.GPR:
    """GPflow's exact GP in the user's units."""
    exact = gpflow.models.GPR((X, y), gpflow.utilities.deepcopy(model.kernel), mean)
    exact.likelihood.variance.assign(np.ravel(model.likelihood.variance.numpy())[0])
    return exact


@pytest.mark.exhaustive
@pytest.mark.parametrize("scale", [None, "neither", "Y"])
def test_a_mean_function_is_in_units(scale: str | None) -> None:
    model = gd.build(X, Y, mean_function=_line(), scale=scale, **QUIET)
    assert np.all(model.inputs.scale.numpy() == 1.0)
    gd.optimizers.ConjugateComputation(1.0).run(model.model)
    exact = _plain(model, _line(), Y)
    assert_allclose(model.elbo(), exact.log_marginal_likelihood(), rtol=1e-8)
    for verb in ("predict_f", "predict_y"):
        for found, expected in zip(getattr(model, verb)(XNEW), getattr(exact, verb)(XNEW)):
            assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.exhaustive
def test_it_is_trained_in_units() -> None:
    mean = gpflow.functions.Linear(np.zeros((2, 1)), 600.0)
    model = gd.build(X, Y, mean_function=mean, **QUIET)
    gd.fit(model, progress=False)
    assert_allclose(mean.A, np.zeros((2, 1)))  # a copy is trained
    trained = model.model.mean_function.function
    exact = _plain(model, trained, Y)
    assert_allclose(trained.A, SLOPE, atol=8.0)
    for found, expected in zip(model.predict_y(XNEW), exact.predict_y(XNEW)):
        assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options, tolerance",
    [
        ({"num_neighbours": 24}, 1e-3),  # one row is in no prediction
        ({"num_inducing": 25, "num_mean_points": 0}, 1e-5),
        ({"num_inducing": 20, "num_mean_points": 5}, 1e-2),
    ],
)
def test_every_model_has_it(options: dict, tolerance: float, tmp_path) -> None:
    """Far from the data the prediction is the mean function, near them the exact one."""
    model = gd.build(X, Y, mean_function=_line(), **options, **QUIET)
    if "num_inducing" in options:
        schedule = gd.training.Schedule(ramp_steps=0, anneal=0.0)
        options = {"natural_gradient": 1.0, "learning_rate": 1e-12, "schedule": schedule}
        gd.fit(model, steps=9, compile=False, progress=False, **options)
    far = X + 1e6
    assert_allclose(model.predict_f(far)[0], _line()(far), rtol=1e-10)
    expected = _plain(model, _line(), Y).predict_f(X)[0]
    assert_allclose(model.predict_f(X)[0], expected, rtol=tolerance)
    gd.save(model, tmp_path / "model.zip")
    again = gd.load(tmp_path / "model.zip")
    assert_allclose(again.predict_y(XNEW)[0], model.predict_y(XNEW)[0], rtol=1e-10)


def test_several_outputs_have_their_own_mean() -> None:
    both = np.hstack([Y, 3.0 * Y + X[:, :1]])
    model = gd.build(X, both, mean_function=_line(2), **QUIET)
    gd.optimizers.ConjugateComputation(1.0).run(model.model)
    found = model.predict_f(XNEW)[0].numpy()
    for output, kernel in enumerate(model.kernel.kernels):
        mean = gpflow.functions.Linear(SLOPE * (output + 1.0), 450.0)
        data = X, both[:, output : output + 1]
        exact = gpflow.models.GPR(data, gpflow.utilities.deepcopy(kernel), mean)
        exact.likelihood.variance.assign(model.likelihood.variance.numpy()[output])
        assert_allclose(found[:, output], exact.predict_f(XNEW)[0][:, 0], rtol=1e-8)


def test_of_counts_it_is_of_f() -> None:
    mean = gpflow.functions.Constant([1.5])
    model = gd.build(X, RNG.poisson(9.0, 25), "poisson", mean_function=mean, **QUIET)
    assert_allclose(model.predict_f(X + 1e6)[0], 1.5)


REAL = {
    "gaussian": (lambda: gl.Gaussian(4.0), "variance"),
    "gaussian by scale": (lambda: gl.Gaussian(scale=2.0), "scale"),
    "student_t": (lambda: gl.StudentT(2.0, 4.0), "scale"),
    "laplace": (lambda: Laplace(2.0), "scale"),
    "quantile": (lambda: AsymmetricLaplace(0.7, 2.0), "scale"),
    "tobit": (lambda: CensoredNormal(2.0), "scale"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", REAL)
def test_noise_that_does_not_train_is_in_units(name: str, capsys) -> None:
    """Densities beside the same model of unscaled Y, with kernel and q in other units."""
    make, parameter = REAL[name]
    likelihood = make()
    gpflow.set_trainable(getattr(likelihood, parameter), False)
    kernel = gpflow.kernels.Matern52(variance=1.0, lengthscales=3.0)
    model = gd.build(X, Y, likelihood, kernel)
    assert "does not train, in units of Y" in capsys.readouterr().out
    own = getattr(likelihood, parameter)
    assert_allclose(own, getattr(make(), parameter))  # the user's stays
    seen = model.likelihood
    seen = getattr(seen, "likelihood", seen)
    assert_allclose(getattr(seen, parameter), own, rtol=1e-12)
    assert not getattr(seen, parameter).trainable
    kernel.variance.assign(float(Y.var()))
    plain = gd.build(X, Y - Y.mean(), likelihood, kernel, scale="neither", **QUIET)
    for one in (model, plain):
        gd.optimizers.ConjugateComputation().run(one.model)
    assert float(model.elbo()) == pytest.approx(float(plain.elbo()), rel=1e-6)
    variances = (one.predict_y(XNEW)[1] for one in (model, plain))
    assert_allclose(*variances, rtol=1e-5)


@pytest.mark.exhaustive
def test_noise_that_trains_starts_from_standardised_y(capsys) -> None:
    model = gd.build(X, Y, gl.Gaussian(0.3))
    assert "to which Y the numbers of your likelihood belong" in capsys.readouterr().out
    assert_allclose(model.likelihood.variance, 0.3 * Y.var())


def test_fixed_noise_of_several_outputs() -> None:
    both = np.hstack([Y, 0.1 * X[:, :1]])
    likelihood = gl.Gaussian(4.0)
    gpflow.set_trainable(likelihood.variance, False)
    model = gd.build(X, both, likelihood, **QUIET)
    assert_allclose(model.likelihood.variance, [4.0, 4.0])
    shared = gl.StudentT(2.0)
    gpflow.set_trainable(shared.scale, False)
    with pytest.raises(DataError, match="outputs of different scale share it"):
        gd.build(X, both, shared, **QUIET)
    unscaled = gd.build(X, both, shared, scale="X", **QUIET)
    assert_allclose(unscaled.likelihood.scale, 2.0)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize(
    "options, message",
    [
        ({"mean_function": 3.0}, "mean_function"),
        ({"mean_function": gpflow.functions.Linear(np.ones((5, 1)))}, "mean_function Linear"),
        ({"mean_function": _line(), "kernel": "auto"}, "compares kernels without a mean function"),
        ({"mean_function": _line(), "likelihood": "heteroskedastic"}, "several latent functions"),
    ],
)
def test_bad_mean_functions_are_refused(options: dict, message: str) -> None:
    with pytest.raises((DataError, TypeError), match=message):
        gd.build(X, Y, **options, **QUIET)
