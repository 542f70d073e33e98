"""The choice of a kernel by leave-one-out scores."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest

from gpflow_decoupled.building import kernels
from gpflow_decoupled.building.kernels import choose_kernel
from gpflow_decoupled.models import NNGP


class _NoNoise:
    """Rounds that end with the noise variance at its lower bound, as on data without noise."""

    best = 1.0

    def __init__(self, model: NNGP, **options: object) -> None:
        model.likelihood.variance.unconstrained_variable.assign(-100.0)

    def start(self) -> None:
        """Do nothing."""

    def run(self, number: int) -> None:
        """Do nothing."""


def test_the_noise_of_a_choice_is_a_value_that_a_likelihood_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No Parameter takes its lower bound as a value: it is minus infinity without the transform."""
    monkeypatch.setattr(kernels, "NeighbourRounds", _NoNoise)
    X = np.linspace(-2.0, 2.0, 80)[:, None]
    choice = choose_kernel(X, np.sin(2.0 * X))
    assert 1e-6 < choice.noise_variance < 1.1e-6
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    likelihood.variance.assign(choice.noise_variance)
