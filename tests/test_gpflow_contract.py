"""What a user of GPflow writes without thinking, with every model of the package and with GPflow's
own: losses and steps outside and inside of a `tf.function`, its optimizers, its tools.

The short run takes a few models of each idiom; `--exhaustive` takes the product.
"""

from __future__ import annotations

import contextlib
import gc
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.utilities import deepcopy, freeze, multiple_assign, parameter_dict, print_summary
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, ModelError
from gpflow_decoupled.optimizers import (
    ConjugateComputation,
    NaturalGradient,
    collapsed_elbo,
    optimal_parameters,
)
from gpflow_decoupled.optimizers import natural_steps as bound_gradients
from tests.models.test_every_model import MODELS as OWN

_RNG = np.random.default_rng(5)
X = _RNG.uniform(-1.0, 1.0, (6, 2))
Y = np.sin(3.0 * X[:, :1]) + 0.1 * _RNG.standard_normal((6, 1))
Z, NEW = X[:4] + 0.05, X[:3] + 0.2


def _parts() -> tuple[gpflow.kernels.Kernel, gpflow.likelihoods.Likelihood]:
    return gpflow.kernels.Matern52(1.3, 0.8), gpflow.likelihoods.Gaussian(0.3)


def _svgp(**options: Any) -> gpflow.models.SVGP:
    return gpflow.models.SVGP(*_parts(), Z, num_data=6, **options)


def _labels() -> gd.models.NNGP:
    likelihood = gd.likelihoods.CategoricalLogit(3)
    labels = np.arange(6.0)[:, None] % 3
    return gd.models.NNGP((X, labels), _parts()[0], likelihood, num_neighbours=3)


THEIRS: dict[str, Callable[[], Any]] = {
    "SVGP": _svgp,
    "VGP": lambda: gpflow.models.VGP((X, Y), *_parts()),
    "GPR": lambda: gpflow.models.GPR((X, Y), _parts()[0], noise_variance=0.3),
}
MODELS = {
    **THEIRS,
    **OWN,
    "SparseCVIGP": lambda: gd.models.SparseCVIGP(*_parts(), Z, num_data=6),
    "LabelNNGP": _labels,
}
AT_PRIOR = ("CVIGP", "StateSpaceGP", "LCLGP", "SiteNNGP")
"""Their q moves by their own optimizers alone."""
BOTH = pytest.mark.parametrize(
    "autograph", [False, pytest.param(True, marks=pytest.mark.exhaustive)]
)
every = pytest.mark.parametrize("name", MODELS)


def _data(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """All rows, of as many columns as the model has outputs."""
    return X, np.tile(Y, (1, model.num_latent_gps))


def _loss(model: Any, **options: Any) -> Callable[[], tf.Tensor]:
    given = () if hasattr(model, "data") else (_data(model),)
    return model.training_loss_closure(*given, **options)


def _moved(name: str, seed: int = 0) -> Any:
    """A model whose Parameters are not those of a new one."""
    model, rng = MODELS[name](), np.random.default_rng(seed)
    if name == "SiteNNGP":
        ones = tf.ones([6, 1], tf.float64)
        model.assign_sites(tf.range(6), 2.0 * rng.uniform(size=(6, 1)) * ones, 3.0 * ones)
    elif name in AT_PRIOR:
        tau = rng.uniform(1.0, 2.0, (6, 1))
        model.assign_sites(tau * Y, tau, 0.5 * Y)
    model.kernel.variance.assign(rng.uniform(1.0, 1.2))
    return model


def _columns(model: Any) -> int:
    return getattr(model, "num_dims", 2) or 2


def _predictions(model: Any) -> np.ndarray:
    return np.stack(model.predict_f(NEW[:, : _columns(model)]))


@BOTH
@every
@pytest.mark.costly(keep=4)
def test_a_loss_is_read_anywhere_before_the_first_step(name: str, autograph: bool) -> None:
    model = MODELS[name]()
    expected = float(_loss(model, compile=False)())
    parameters = model.trainable_parameters
    prior = sum(float(p.log_prior_density()) for p in parameters if p.prior is not None)
    given = () if hasattr(model, "data") else (_data(model),)
    assert expected == pytest.approx(-float(model.maximum_log_likelihood_objective(*given)) - prior)

    def inside() -> tf.Tensor:
        return _loss(model, compile=False)()

    assert float(tf.function(inside, autograph=autograph)()) == pytest.approx(expected)
    if autograph:
        assert float(_loss(model, compile=True)()) == pytest.approx(expected)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", AT_PRIOR)
def test_a_loss_of_the_prior_has_no_gradient(name: str, compiled: bool) -> None:
    model = MODELS[name]()
    before = gpflow.utilities.read_values(model)
    for minimize in (_scipy, _adam):
        with pytest.raises(ModelError, match="is of the prior: no gradient moves its q"):
            minimize(model, compiled)
    for path, value in gpflow.utilities.read_values(model).items():
        np.testing.assert_array_equal(value, before[path])


def _adam(model: Any, compiled: bool) -> None:
    optimizer, loss = gpflow.keras.tf_keras.optimizers.Adam(0.01), _loss(model, compile=compiled)
    for _ in range(2):
        optimizer.minimize(loss, model.trainable_variables)


def _scipy(model: Any, compiled: bool) -> None:
    loss = _loss(model, compile=False)
    gpflow.optimizers.Scipy().minimize(
        loss, model.trainable_variables, compile=compiled, options={"maxiter": 2}
    )


@every
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("minimize", [_adam, _scipy])
@pytest.mark.costly(keep=3)
def test_optimizers_of_gpflow_and_keras(
    name: str, minimize: Callable[..., None], compiled: bool
) -> None:
    model = _moved(name)
    model.kernel.lengthscales.assign(0.5)
    gpflow.set_trainable(model.kernel.variance, False)
    before, variance = float(_loss(model, compile=False)()), model.kernel.variance.numpy()
    minimize(model, compiled)
    assert float(_loss(model, compile=False)()) < before
    assert model.kernel.variance.numpy() == variance


STEPS = {
    **dict.fromkeys(
        ("SVGP", "ODVGP", "HDVGP", "DVGP-coupled", "SOLVEGP", "BasisGP", "SparseCVIGP"),
        NaturalGradient,
    ),
    "CVIGP": ConjugateComputation,
    "StateSpaceGP": ConjugateComputation,
}


@BOTH
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.costly(keep=2)
def test_a_step_is_the_same_inside_of_a_function(name: str, autograph: bool) -> None:
    _same_inside(name, autograph)


@BOTH
def test_an_optimizer_may_be_made_inside_of_a_function(autograph: bool) -> None:
    _same_inside("SVGP", autograph, made_inside=True)


def test_a_step_of_an_svgp_is_gpflows_and_has_one_view() -> None:
    """With AutoGraph: the first thing that a user of GPflow tries."""
    model = _same_inside("SVGP", autograph=True)
    theirs = _svgp()
    loss = theirs.training_loss_closure((X, Y), compile=False)
    gpflow.optimizers.NaturalGradient(0.1).minimize(loss, [(theirs.q_mu, theirs.q_sqrt)])
    assert_allclose(model.q_mu, theirs.q_mu, rtol=1e-6)
    assert_allclose(model.q_sqrt, theirs.q_sqrt, rtol=1e-6)
    as_view = bound_gradients.as_basis_model
    view = as_view(model)
    assert as_view(model) is view
    model.num_data = 12
    assert as_view(model).num_data == 12
    model.kernel = gpflow.kernels.Matern12()
    assert as_view(model) is not view and as_view(model).kernel is model.kernel
    copy = deepcopy(model)
    assert as_view(copy).basis.q_mu is copy.q_mu, "and not of the first one"
    del model, copy, view, theirs
    gc.collect()
    assert not len(bound_gradients._VIEWS), "a view goes with its model"


def _same_inside(name: str, autograph: bool, made_inside: bool = False) -> Any:
    models = MODELS[name](), MODELS[name]()
    for model, inside in zip(models, (False, True)):
        optimizer = None if inside and made_inside else STEPS[name](0.1)
        given = () if hasattr(model, "data") else (_data(model),)

        def step(optimizer: Any = optimizer, model: Any = model, given: Any = given) -> Any:
            return (optimizer or STEPS[name](0.1)).minimize(model, *given)

        (tf.function(step, autograph=autograph) if inside else step)()
    for path, value in gpflow.utilities.read_values(models[0]).items():
        after = gpflow.utilities.read_values(models[1])[path]
        assert_allclose(after, value, rtol=1e-8, atol=1e-10, err_msg=path)
    assert np.max(np.abs(_predictions(models[1]) - _predictions(MODELS[name]()))) > 1e-3
    return models[1]


@BOTH
def test_the_optimum_of_an_svgp_is_that_of_sgpr(autograph: bool) -> None:
    model, data = _svgp(), (X, Y)
    sgpr = gpflow.models.SGPR(data, _parts()[0], Z, noise_variance=0.3)
    expected = float(sgpr.elbo())

    def read() -> tuple[tf.Tensor, ...]:
        optimal_parameters(model, data).assign(model)
        return collapsed_elbo(model, data), optimal_parameters(model, data).elbo

    assert_allclose(tf.function(read, autograph=autograph)(), [expected] * 2, rtol=1e-6)
    assert float(model.elbo(data)) == pytest.approx(expected, rel=1e-6)
    if not autograph:
        return
    for one, loss in ((model, lambda: -collapsed_elbo(model, data)), (sgpr, sgpr.training_loss)):
        variables = [*one.kernel.trainable_variables, *one.likelihood.trainable_variables]
        gpflow.optimizers.Scipy().minimize(loss, variables)  # compiled
    assert_allclose(model.kernel.lengthscales, sgpr.kernel.lengthscales, rtol=1e-3)
    assert_allclose(model.likelihood.variance, sgpr.likelihood.variance, rtol=1e-3)


@every
@pytest.mark.costly(keep=3)
def test_a_model_is_built_inside_of_a_function_or_refused(name: str) -> None:
    """Where values are needed; GPflow's SVGP fails there."""
    held: list[Any] = []

    def build() -> tf.Tensor:
        if not held:
            held.append(MODELS[name]())
        return tf.zeros([])

    try:
        tf.function(build, autograph=False)()
    except (DataError, ModelError) as error:
        assert "outside of " in str(error)
    except TypeError:
        assert name == "SVGP"


@every
@pytest.mark.costly(keep=4)
def test_copies(name: str, tmp_path: Path) -> None:
    model = _moved(name)
    expected, loss = _predictions(model), float(_loss(model, compile=False)())
    copy, frozen = deepcopy(model), freeze(model)
    assert_allclose(_predictions(frozen), expected, rtol=1e-9)
    assert not frozen.trainable_variables
    copy.kernel.lengthscales.assign(3.0)
    assert not np.allclose(_predictions(copy), expected)
    assert_allclose(_predictions(model), expected, rtol=1e-12)
    copy.kernel.lengthscales.assign(model.kernel.lengthscales)
    assert_allclose(_predictions(copy), expected, rtol=1e-9)
    assert float(_loss(copy, compile=False)()) == pytest.approx(loss)
    other = MODELS[name]()
    tf.train.Checkpoint(model=other).read(
        tf.train.Checkpoint(model=model).write(str(tmp_path / "c"))
    )
    assert_allclose(_predictions(other), expected, rtol=1e-9)


@every
@pytest.mark.costly(keep=4)
def test_values_of_parameters_are_all_that_is_assigned(name: str) -> None:
    """To a model of the same data: the same predictions."""
    model, other = _moved(name), MODELS[name]()
    _loss(model, compile=False)()
    multiple_assign(other, parameter_dict(model))
    assert_allclose(_predictions(other), _predictions(model), rtol=1e-9)
    assert float(_loss(other, compile=False)()) == pytest.approx(
        float(_loss(model, compile=False)())
    )


@pytest.mark.parametrize("kind", [gd.models.NNGP, gpflow.models.GPR])
def test_values_of_parameters_are_not_those_of_data(kind: type) -> None:
    """Rows in another order, of which a model of neighbours has its own nearest ones."""
    options = {"num_neighbours": 2} if kind is gd.models.NNGP else {}
    rng = np.random.default_rng(1)
    inputs, order = rng.uniform(size=(30, 1)), rng.permutation(30)
    data = inputs, np.sin(9.0 * inputs)
    first = kind(data, gpflow.kernels.Matern52(1.0, 0.4), **options)
    second = kind(tuple(part[order] for part in data), gpflow.kernels.Matern52(), **options)
    first.training_loss(), second.training_loss()
    fresh = kind(tuple(part[order] for part in data), gpflow.kernels.Matern52(1.0, 0.4), **options)
    multiple_assign(second, parameter_dict(first))
    if kind is gd.models.NNGP:
        np.testing.assert_array_equal(second.order, fresh.order)
        second.refresh_neighbours()
    assert float(second.training_loss()) == pytest.approx(float(fresh.training_loss()), rel=1e-9)


@every
@pytest.mark.costly(keep=6)
def test_the_summary_lists_each_parameter_once(name: str) -> None:
    model = _moved(name)
    _loss(model, compile=False)()
    _predictions(model)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        print_summary(model)
    paths = list(parameter_dict(model))
    assert all(path.split(".")[-1] in printed.getvalue() for path in paths)
    assert not [path for path in paths if "._" in path], "which no user has named"
    values = [id(value) for value in parameter_dict(model).values()]
    assert len(set(values)) == len(values), paths


@every
@pytest.mark.costly(keep=2)
def test_a_monitor_at_step_zero(name: str) -> None:
    model, seen = MODELS[name](), list[float]()
    loss = _loss(model, compile=False)
    read = gpflow.monitor.ExecuteCallback(lambda: seen.append(float(loss())))
    gpflow.monitor.Monitor(gpflow.monitor.MonitorTaskGroup([read]))(0)
    assert np.isfinite(seen[0])


@every
@pytest.mark.costly(keep=3)
def test_a_model_is_exported_with_its_predictions(name: str, tmp_path: Path) -> None:
    """As GPflow's notebook does; and the posterior that is cached predicts the same."""
    model = _moved(name)
    expected, new = _predictions(model), NEW[:, : _columns(model)]
    assert_allclose(np.stack(model.posterior().predict_f(new)), expected, rtol=1e-6)
    model.predict = tf.function(
        lambda inputs: model.predict_f(inputs, full_cov=False),
        input_signature=[tf.TensorSpec([None, new.shape[1]], tf.float64)],
        autograph=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tf.saved_model.save(model, str(tmp_path))
    served = tf.saved_model.load(str(tmp_path))
    assert_allclose(np.stack(served.predict(new)), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["GPR", "CVIGP", "LCLGP", "NNGP", "DTC"])
def test_data_that_are_variables_are_followed_or_refused(name: str) -> None:
    x, y = tf.Variable(X), tf.Variable(Y)
    if name == "GPR":
        model, new = (
            gpflow.models.GPR((x, y), _parts()[0]),
            gpflow.models.GPR((X, -2.0 * Y), _parts()[0]),
        )
        y.assign(-2.0 * Y)
        assert_allclose(_predictions(model), _predictions(new))
        return
    kind = getattr(gd.models, name)
    parts = (_parts()[0], Z) if name == "DTC" else _parts()
    options = {"num_neighbours": 3} if name == "NNGP" else {}
    with pytest.raises(DataError, match="Pass Y.numpy") as info:
        kind((X, y), *parts, **options)
    assert ("model.update(" in str(info.value)) == hasattr(kind, "update")
    kind((X, y.numpy()), *parts, **options)
