"""What a user of GPflow writes without thinking, with every model of the package and with GPflow's
own: losses and steps outside and inside of a `tf.function`, its optimizers, its tools.

The short run takes a few models of each idiom; `--exhaustive` takes the product.
"""

from __future__ import annotations

import contextlib
import copy as standard
import gc
import io
import pickle
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
from tests.models.registry import AT_PRIOR, KINDS, NOISE, THEIRS, X, Y, data_for, loss_of, moved
from tests.models.registry import MODELS as OWN
from tests.models.serving import loaded, module_of

MODELS = {**THEIRS, **OWN, **KINDS}
NEW = X[:3] + 0.2
BOTH = pytest.mark.parametrize(
    "autograph", [False, pytest.param(True, marks=pytest.mark.exhaustive)]
)
every = pytest.mark.parametrize("name", MODELS)


def _parts() -> tuple[gpflow.kernels.Kernel, gpflow.likelihoods.Likelihood]:
    return gpflow.kernels.Matern52(1.3, 0.8), gpflow.likelihoods.Gaussian(NOISE)


def _new(model: Any) -> np.ndarray:
    return NEW[:, : getattr(model, "num_dims", 2) or 2]


def _predictions(model: Any) -> np.ndarray:
    return np.stack(model.predict_f(_new(model)))


def _same(model: Any, expected: np.ndarray, rtol: float = 1e-9) -> None:
    assert_allclose(_predictions(model), expected, rtol=rtol, atol=1e-12)


@BOTH
@every
@pytest.mark.costly(keep=4)
def test_a_loss_is_read_anywhere_before_the_first_step(name: str, autograph: bool) -> None:
    model = MODELS[name]()
    expected = float(loss_of(model, compile=False)())
    parameters = model.trainable_parameters
    prior = sum(float(p.log_prior_density()) for p in parameters if p.prior is not None)
    given = () if hasattr(model, "data") else (data_for(model),)
    assert expected == pytest.approx(-float(model.maximum_log_likelihood_objective(*given)) - prior)

    def inside() -> tf.Tensor:
        return loss_of(model, compile=False)()

    assert float(tf.function(inside, autograph=autograph)()) == pytest.approx(expected)
    if autograph:
        assert float(loss_of(model, compile=True)()) == pytest.approx(expected)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", AT_PRIOR)
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_a_loss_of_the_prior_has_no_gradient(name: str, compiled: bool) -> None:
    model = MODELS[name]()
    before = gpflow.utilities.read_values(model)
    for minimize in (_scipy, _adam):
        with pytest.raises(ModelError, match="is of the prior: no gradient moves its q"):
            minimize(model, compiled)
    for path, value in gpflow.utilities.read_values(model).items():
        np.testing.assert_array_equal(value, before[path])


def _adam(model: Any, compiled: bool) -> None:
    optimizer, loss = gpflow.keras.tf_keras.optimizers.Adam(0.01), loss_of(model, compile=compiled)
    for _ in range(2):
        optimizer.minimize(loss, model.trainable_variables)


def _scipy(model: Any, compiled: bool) -> None:
    loss = loss_of(model, compile=False)
    gpflow.optimizers.Scipy().minimize(
        loss, model.trainable_variables, compile=compiled, options={"maxiter": 2}
    )


@pytest.mark.exhaustive
@every
@pytest.mark.parametrize("minimize", [_adam, _scipy])
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_optimizers_of_gpflow_and_keras(
    name: str, minimize: Callable[..., None], compiled: bool
) -> None:
    model = moved(MODELS[name])
    held = model.kernel.trainable_parameters[0]
    gpflow.set_trainable(held, False)
    before, value = float(loss_of(model, compile=False)()), held.numpy()
    minimize(model, compiled)
    assert float(loss_of(model, compile=False)()) < before
    np.testing.assert_array_equal(held, value)


STEPS = {
    **dict.fromkeys(
        ("SVGP", "ODVGP", "HDVGP", "DVGP-coupled", "SOLVEGP", "BasisGP", "SparseCVIGP"),
        NaturalGradient,
    ),
    "CVIGP": ConjugateComputation,
    "StateSpaceGP": ConjugateComputation,
    **dict.fromkeys(
        ("CVIGP, noise that varies", "CVIGP, mixed outputs", "StateSpaceGP of labels"),
        ConjugateComputation,
    ),
}


@BOTH
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.costly(keep=2)
def test_a_step_is_the_same_inside_of_a_function(name: str, autograph: bool) -> None:
    _same_inside(name, autograph)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["ODVGP", "HDVGP", "BasisGP", "SparseCVIGP"])
def test_a_step_by_gpflow_on_the_parameters_is_ours(name: str) -> None:
    twins = [moved(MODELS[name]) for _ in range(2)]
    pairs = [(twins[0].basis.q_mu, twins[0].basis.q_sqrt)]
    gpflow.optimizers.NaturalGradient(0.3).minimize(loss_of(twins[0]), pairs)
    NaturalGradient(0.3).minimize(twins[1], data_for(twins[1]))
    for path, value in gpflow.utilities.read_values(twins[0]).items():
        if path.rsplit("_")[-1] in ("mu", "sqrt"):
            found = gpflow.utilities.read_values(twins[1])[path]
            assert_allclose(found, value, rtol=1e-8, atol=1e-9, err_msg=path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["ODVGP", "SOLVEGP"])
def test_xla_gives_the_same_loss_and_gradient(name: str) -> None:
    model = moved(MODELS[name])
    data = tuple(tf.constant(part) for part in data_for(model))

    def run() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            value = model.training_loss(data)
        return [value, *tape.gradient(value, model.trainable_variables)]

    for left, right in zip(tf.function(run, jit_compile=True, autograph=False)(), run()):
        assert_allclose(left, right, rtol=1e-8, atol=1e-9)


@pytest.mark.exhaustive
@BOTH
def test_an_optimizer_may_be_made_inside_of_a_function(autograph: bool) -> None:
    _same_inside("SVGP", autograph, made_inside=True)


def test_a_step_of_an_svgp_is_gpflows_and_has_one_view() -> None:
    """With AutoGraph: the first thing that a user of GPflow tries."""
    model = _same_inside("SVGP", autograph=True)
    theirs = THEIRS["SVGP"]()
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
        given = () if hasattr(model, "data") else (data_for(model),)

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
    model, data = THEIRS["SVGP"](), (X, Y)
    sgpr = gpflow.models.SGPR(data, _parts()[0], X[:4] + 0.05, noise_variance=NOISE)
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


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", [*THEIRS, *OWN])
def test_a_model_is_built_inside_of_a_function_or_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where values are needed; GPflow's SVGP fails there."""
    monkeypatch.setattr("tests.models.builders.randomize", lambda *_: None)  # reads values
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


def _through_a_file(model: Any, path: Path) -> Any:
    gd.save(model, path)
    return gd.load(path)


def _through_a_checkpoint(model: Any, path: Path, fresh: Any) -> Any:
    status = tf.train.Checkpoint(model=fresh).read(
        tf.train.Checkpoint(model=model).write(str(path))
    )
    status.assert_existing_objects_matched()
    return fresh


@every
@pytest.mark.costly(keep=4)
def test_copies(name: str, tmp_path: Path) -> None:
    """Each is the model, and is independent of it."""
    model = moved(MODELS[name])
    expected, loss = _predictions(model), float(loss_of(model, compile=False)())
    frozen = freeze(model)
    _same(frozen, expected)
    assert not frozen.trainable_variables
    copies = [
        standard.deepcopy(model),
        deepcopy(model),
        _through_a_checkpoint(model, tmp_path / "state", MODELS[name]()),
    ]
    if name not in THEIRS:
        copies.append(_through_a_file(model, tmp_path / "model.zip"))
    if not isinstance(model.likelihood, gpflow.likelihoods.HeteroskedasticTFPConditional):
        copies.append(pickle.loads(pickle.dumps(model)))  # it has a function within a function
    for copy in copies:
        assert type(copy) is type(model)
        _same(copy, expected)
        assert float(loss_of(copy, compile=False)()) == pytest.approx(loss, rel=1e-9)
        for variable in copy.trainable_variables:
            variable.assign_add(0.3 * tf.ones_like(variable))
        assert not np.allclose(_predictions(copy), expected)
    _same(model, expected, rtol=1e-12)


@pytest.mark.exhaustive
@every
def test_values_of_parameters_are_all_that_is_assigned(name: str) -> None:
    """To a model of the same data: the same predictions."""
    model, other = moved(MODELS[name]), MODELS[name]()
    loss_of(model, compile=False)()
    multiple_assign(other, parameter_dict(model))
    _same(other, _predictions(model))
    assert float(loss_of(other, compile=False)()) == pytest.approx(
        float(loss_of(model, compile=False)())
    )


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
@every
def test_the_summary_lists_each_parameter_once(name: str) -> None:
    model = moved(MODELS[name])
    loss_of(model, compile=False)()
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
    loss = loss_of(model, compile=False)
    read = gpflow.monitor.ExecuteCallback(lambda: seen.append(float(loss())))
    gpflow.monitor.Monitor(gpflow.monitor.MonitorTaskGroup([read]))(0)
    assert np.isfinite(seen[0])


@pytest.mark.exhaustive
@every
@pytest.mark.filterwarnings("ignore")  # of TensorFlow's own exporter
def test_a_model_is_exported_with_its_predictions(name: str, tmp_path: Path) -> None:
    """As GPflow's notebook does; and the posterior that is cached predicts the same, and is
    exported with the values at its last update.
    """
    model = moved(MODELS[name])
    expected, new = _predictions(model), _new(model)
    posterior = model.posterior(gpflow.posteriors.PrecomputeCacheType.VARIABLE)
    assert isinstance(posterior, gpflow.posteriors.AbstractPosterior)
    assert_allclose(np.stack(posterior.predict_f(new)), expected, rtol=1e-6)
    for place, source in enumerate((model, posterior)):
        served = loaded(module_of(source, new.shape[1]), tmp_path / str(place))
        assert_allclose(np.stack(served.predict(new)), expected, rtol=1e-6)


@pytest.mark.costly(keep=1)
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
    parts = (_parts()[0], X[:4]) if name == "DTC" else _parts()
    options = {"num_neighbours": 3} if name == "NNGP" else {}
    with pytest.raises(DataError, match="Pass Y.numpy") as info:
        kind((X, y), *parts, **options)
    assert ("model.update(" in str(info.value)) == hasattr(kind, "update")
    kind((X, y.numpy()), *parts, **options)


class _Watched(gpflow.kernels.Matern52):
    """Says whether AutoGraph converts the code that calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
        self.seen.add(tf.__internal__.autograph.control_status_ctx().status.name)
        return super().K_r2(r2)


@pytest.mark.parametrize("name", ["SVGP step", "CVIGP loss", "BasisGP loss"])
def test_autograph_does_not_convert_the_package(name: str) -> None:
    """Which took 7 to 16 seconds of the first step in a plain `tf.function`."""
    kernel, likelihood = _Watched(), gpflow.likelihoods.Gaussian()
    if name == "SVGP step":
        svgp = gpflow.models.SVGP(kernel, likelihood, X[:4], num_data=len(X))
        call = lambda: gd.optimizers.NaturalGradient(0.1).minimize(svgp, (X, Y))  # noqa: E731
    elif name == "CVIGP loss":
        call = gd.models.CVIGP((X, Y), kernel, likelihood).training_loss
    else:
        model = gd.models.BasisGP(kernel, likelihood, gd.bases.CoupledBasis(X[:4]), num_data=len(X))
        call = model.training_loss_closure((X, Y), compile=False)
    tf.function(call)()
    assert kernel.seen == {"DISABLED"}
