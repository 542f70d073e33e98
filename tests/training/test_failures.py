"""A step that fails numerically: the error names the matrix, the model keeps the last good
Parameters.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest

import gpflow_decoupled as gd
from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.training import turns
from tests.training.problems import GAMMA, MODELS, grouped, orthogonal, sine, values


def _is_finite(model) -> bool:
    return all(np.all(np.isfinite(value)) for value in values(model).values())


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", ["ODVGP", "SOLVEGP", "DVGP inverse", "SVGP"])
def test_huge_steps_fail_with_a_name_and_a_sound_model(name: str) -> None:
    gpflow.config.set_default_jitter(0.0)
    model = MODELS[name]()
    with pytest.raises(NumericalError) as info:
        gd.fit(
            model,
            sine(),
            steps=60,
            learning_rate=1e3,
            natural_gradient=None if name == "DVGP inverse" else 1.0,
            progress=False,
            compile=False,
        )
    error = info.value
    assert error.matrix and str(error).startswith(f"Step {error.result.steps}: ")
    assert "Likely fixes: " in str(error) and str(error).endswith(
        "The model holds the last good parameters."
    )
    assert error.result.reason == "numerical failure"
    assert len(error.result.history["elbo"]) == error.result.steps > 0
    assert np.all(np.isfinite(error.result.history["elbo"]))
    assert _is_finite(model)


def test_singular_prior_is_named_with_its_condition() -> None:
    class Indefinite(gpflow.kernels.SquaredExponential):
        def K_r2(self, r2):
            return 1.0 + r2

    model = gd.models.BasisGP(
        Indefinite(), gpflow.likelihoods.Gaussian(), gd.bases.CoupledBasis(GAMMA)
    )
    before = values(model)
    message = (
        r"Step 0: K_beta \(8 x 8\) is not positive definite: smallest diagonal 1, smallest"
        r" eigenvalue -1\.\d+, "
        "condition infinite. Likely fixes: another formula of the kernel"
    )
    with pytest.raises(NumericalError, match=message) as info:
        gd.fit(model, sine(), steps=3, progress=False, compile=False)
    assert info.value.matrix == "K_beta" and info.value.result.steps == 0
    after = values(model)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def _poisoned(model, at: int, **options) -> tuple[dict, NumericalError]:
    """Make the bound NaN at a step; the Parameters at the step before it, and the error."""
    seen: list[dict] = []
    spoilt = model.likelihood.variational_expectations

    def expectations(X, mean, variance, Y):
        return spoilt(X, mean, variance, Y) * (np.nan if len(seen) > at else 1.0)

    snapshot = turns.snapshot

    def record(variables) -> list:
        seen.append(values(model))
        return snapshot(variables)

    model.likelihood.variational_expectations = expectations
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "snapshot", record)
        with pytest.raises(
            NumericalError, match="one of its gradients, or .* sound. .+ The model holds the last"
        ) as info:
            gd.fit(model, sine(), steps=9, progress=False, compile=False, **grouped(**options))
    return seen[at - 1], info.value


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", ["ODVGP", "DVGP coupled", "SVGP"])
def test_parameters_are_those_of_the_last_good_step(name: str) -> None:
    model = MODELS[name]()
    good, error = _poisoned(model, at=3)
    assert error.result.steps == 3 and len(error.result.history["elbo"]) == 3
    for path, value in values(model).items():
        np.testing.assert_array_equal(value, good[path], err_msg=path)


@pytest.mark.exhaustive
def test_refresh_of_the_scaling_is_undone_with_the_step() -> None:
    """The coefficients are held in the frozen scaling's coordinates: both go back, or the mean
    changes.
    """
    model = orthogonal()
    _poisoned(model, at=3, refresh_every=3)
    expected = orthogonal()
    schedule = gd.training.Schedule(refresh_every=3, anneal=0.0)
    trace = gd.fit(expected, sine(), steps=2, schedule=schedule, progress=False, compile=False)
    assert trace.steps == 2
    state, other = (m.basis.factor(m.kernel) for m in (model, expected))
    np.testing.assert_allclose(
        model.basis.mean_coefficients(state), expected.basis.mean_coefficients(other), rtol=1e-6
    )


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:The bound fell")
def test_training_can_go_on_after_a_failure() -> None:
    gpflow.config.set_default_jitter(0.0)
    model = orthogonal()
    with pytest.raises(NumericalError):
        gd.fit(
            model,
            sine(),
            steps=60,
            learning_rate=1e3,
            natural_gradient=1.0,
            progress=False,
            compile=False,
        )
    result = gd.fit(model, sine(), steps=2, learning_rate=1e-3, progress=False, compile=False)
    assert result.steps == 2


@pytest.mark.exhaustive
def test_refused_step_of_the_policy_raise_says_so() -> None:
    """All labels are where the log density bends upwards, seen from a narrow prior."""
    X, Y = sine()
    Y = 0.7 + 0.1 * Y
    model = gd.models.ODVGP(
        gpflow.kernels.SquaredExponential(variance=0.02),
        gpflow.likelihoods.StudentT(scale=0.1),
        GAMMA,
        [[0.2], [0.8]],
    )
    options = grouped(natural_gradient=1.0, ramp_steps=0, negative_precision="raise")
    with pytest.raises(NumericalError, match='precision of q.*negative_precision="clip"') as info:
        gd.fit(model, (X, Y), steps=20, progress=False, compile=False, **options)
    assert _is_finite(model) and info.value.matrix == "precision of q"
