"""`fit(compile="xla")`: the same steps as without XLA, to round-off, for every model on inducing
points; refused elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization, Matern32, SquaredExponential

import gpflow_decoupled as gd
from gpflow_decoupled.errors import UnknownOptionError
from gpflow_decoupled.models import CVIGP, ODVGP, MonteCarlo
from gpflow_decoupled.training.stages import minibatches
from tests.training.problems import BETA, GAMMA, MODELS, grouped, orthogonal, sine, values


def _several() -> ODVGP:
    """Two outputs of two latent functions that are mixed."""
    kernel = LinearCoregionalization(
        [Matern32(), SquaredExponential()], W=np.array([[1.0, 0.3], [-0.2, 0.8]])
    )
    points = [
        gpflow.inducing_variables.SharedIndependentInducingVariables(_points(Z))
        for Z in (GAMMA, BETA)
    ]
    return ODVGP(kernel, gpflow.likelihoods.Gaussian(0.1), *points)


def _points(Z: np.ndarray) -> gpflow.inducing_variables.InducingPoints:
    return gpflow.inducing_variables.InducingPoints(Z)


def _with(likelihood: gpflow.likelihoods.Likelihood, **options: Any) -> ODVGP:
    return ODVGP(SquaredExponential(), likelihood, GAMMA, BETA, **options)


CASES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    **{name: (make, {}) for name, make in MODELS.items()},
    "whitened": (orthogonal, {"hold": "whitened"}),
    "natural mean": (orthogonal, {"mean_solver": "natural"}),
    "newton": (orthogonal, {"mean_solver": "newton"}),
    "Adam alone": (orthogonal, {"natural_gradient": None}),
    "subsample": (lambda: orthogonal(mean_subsample=3), {}),
    "damp": (lambda: _with(gpflow.likelihoods.StudentT(0.5)), {"natural_gradient": 1.0}),
    "clip": (lambda: _with(gpflow.likelihoods.StudentT(0.5)), {"negative_precision": "clip"}),
    "draws": (lambda: _with(gpflow.likelihoods.StudentT(0.5), expectations=MonteCarlo(3)), {}),
    "mixed": (_several, {}),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES)
def test_the_steps_are_those_without_xla(case: str) -> None:
    make, options = CASES[case]
    X, Y = sine()
    if case == "mixed":
        Y = np.concatenate([Y, np.cos(X)], axis=1)
    ends = []
    for compile in (True, "xla"):
        model = make()
        gd.fit(
            model,
            (X, Y),
            steps=4,
            batch_size=20,
            progress=False,
            compile=compile,
            **grouped(**options),
        )
        ends.append(values(model))
    if case in ("draws", "subsample"):  # XLA has random numbers of its own
        assert all(np.all(np.isfinite(value)) for value in ends[1].values())
        return
    limit = 1e-5 if case == "newton" else 1e-7  # conjugate gradients end within their own tolerance
    for name, value in ends[0].items():
        np.testing.assert_allclose(ends[1][name], value, rtol=limit, atol=limit, err_msg=name)


@pytest.mark.exhaustive
def test_xla_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps are compiled without XLA here, which takes 20 seconds."""
    seen: list[object] = []

    class Watched(minibatches.Compiled):
        def __init__(self, function: Callable[..., Any], **options: Any) -> None:
            seen.append(options["jit_compile"])
            super().__init__(function, **{**options, "jit_compile": False})

    monkeypatch.setattr(minibatches, "Compiled", Watched)
    gd.fit(MODELS["SVGP"](), sine(), steps=2, progress=False, compile="xla")
    assert seen == [True]


def test_models_that_own_their_data_and_replicas_refuse_it() -> None:
    model = CVIGP(sine(), SquaredExponential(), gpflow.likelihoods.Gaussian())
    with pytest.raises(
        UnknownOptionError, match="compile='xla' is not known; use one of True, False"
    ):
        gd.fit(model, compile="xla", progress=False)
    with pytest.raises(
        UnknownOptionError, match="'fast' is not known; use one of True, False, 'xla'"
    ):
        gd.fit(orthogonal(), sine(), compile="fast", progress=False)
    with pytest.raises(UnknownOptionError, match="compile='array.*is not known"):
        gd.fit(orthogonal(), sine(), compile=np.ones(2), progress=False)  # type: ignore[arg-type]
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        built = orthogonal()
    with pytest.raises(UnknownOptionError, match="for one device; use compile=True with strategy"):
        gd.fit(built, sine(), compile="xla", strategy=strategy, progress=False)
