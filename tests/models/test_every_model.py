"""Every model answers every verb of prediction: no marker leaves a row of this table out of the
short run.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled import models
from gpflow_decoupled.errors import NumericalError
from tests.models.builders import X
from tests.models.registry import MODELS, NOISE


@pytest.mark.costly(keep=4)
@pytest.mark.parametrize("name", MODELS)
def test_every_verb(name: str, rng: np.random.Generator) -> None:
    """Predictions of y and its density are those of f with the noise; q is Gaussian here."""
    model = MODELS[name]()
    Xnew = rng.normal(size=(3, model.num_dims or X.shape[1]))
    mean, variance = model.predict_f(Xnew)
    Ynew = rng.normal(size=mean.shape)
    for left, right in zip(model.posterior().predict_f(Xnew), (mean, variance)):
        assert_allclose(left, right, rtol=1e-5)
    y_mean, y_variance = model.predict_y(Xnew)
    assert_allclose(y_mean, mean, rtol=1e-6, atol=1e-9)
    assert_allclose(y_variance, variance + NOISE, rtol=1e-5)
    density = -0.5 * (np.log(2 * np.pi * y_variance) + (Ynew - y_mean) ** 2 / y_variance)
    found = model.predict_log_density((Xnew, Ynew))
    assert_allclose(found, np.sum(density, axis=1), rtol=1e-5, atol=1e-9)
    samples = model.predict_f_samples(Xnew, 4)
    assert samples.shape == (4, *mean.shape) and np.all(np.isfinite(samples))


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize("name", MODELS)
def test_a_parameter_that_is_nan_is_refused_by_name(name: str) -> None:
    model = MODELS[name]()
    Xnew = X[:2, : model.num_dims] + 0.1
    Ynew = np.zeros(model.predict_y(Xnew)[0].shape)
    posterior = model.posterior()
    model.kernel.variance.unconstrained_variable.assign(np.nan)
    if name != "DTC":  # GPflow's
        posterior.update_cache()
    verbs = {
        "predict_f": lambda: model.predict_f(Xnew),
        "predict_y": lambda: model.predict_y(Xnew),
        "predict_log_density": lambda: model.predict_log_density((Xnew, Ynew)),
        "predict_f_samples": lambda: model.predict_f_samples(Xnew, 2),
        "a new posterior": lambda: model.posterior().predict_f(Xnew),
        "its posterior": lambda: posterior.predict_f(Xnew),
    }
    if name == "DTC":
        del verbs["its posterior"]
    if isinstance(model, models.NNGP):
        verbs["leave_one_out"] = model.leave_one_out
    for verb, call in verbs.items():
        with pytest.raises(NumericalError, match=r"model.kernel.variance has entries that") as info:
            call()
        assert "_owner" not in str(info.value) and "cache" not in str(info.value), verb


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize("name", MODELS)
def test_an_input_whose_distance_overflows_has_the_prior(name: str) -> None:
    model = MODELS[name]()
    model.mean_function = gpflow.functions.Zero()  # a linear one is infinite there
    Xnew = X[:3, : model.num_dims] + 0.1
    far = np.concatenate([Xnew, np.full((1, Xnew.shape[1]), 1e300)])
    beyond = np.concatenate([Xnew, np.full((1, Xnew.shape[1]), 1e6)])
    verbs = [model.predict_f, model.predict_y]
    if name != "DTC":  # GPflow's
        verbs.append(model.posterior().predict_f)
    for verb in verbs:
        for found, expected in zip(verb(far), verb(beyond)):
            assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_no_model_is_left_out() -> None:
    public = [getattr(gd.models, name) for name in gd.models.__all__]
    kinds = [
        one for one in public if isinstance(one, type) and issubclass(one, gpflow.models.GPModel)
    ]
    made = [type(make()) for make in MODELS.values()]
    assert {kind.__name__ for kind in kinds} - {kind.__name__ for kind in made} == {
        "FullGP",
        "NNGP",
    }, "bases of others"
