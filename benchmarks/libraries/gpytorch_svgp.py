"""GPyTorch's SVGP and its orthogonally decoupled strategy, where GPyTorch is installed."""

from __future__ import annotations

__all__ = ["gpytorch_step", "missing", "recorded", "scaled_matern", "train_gpytorch"]

import importlib.util
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..harness.data import Data
from ..harness.metrics import gaussian_scores
from ..harness.records import Record, Recorder, Snapshot
from .models import Settings, Spec, points

if TYPE_CHECKING:
    import gpytorch
    import torch

_NO_BOUND = "its objective is not a lower bound with mean points, so no ELBO is reported"
_BATCH = 2000
"""Rows of one prediction."""


def missing() -> str:
    """Why GPyTorch cannot be used here, as a sentence with the fix; empty if it can be used."""
    if importlib.util.find_spec("gpytorch"):
        return ""
    return 'GPyTorch is not installed. Install it by pip install "gpflow_decoupled[gpytorch]".'


def scaled_matern(num_inputs: int) -> gpytorch.kernels.ScaleKernel:
    """Matern 5/2 with a lengthscale for each input, at the start of all models."""
    import gpytorch

    kernel = gpytorch.kernels.ScaleKernel(
        gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=num_inputs)
    )
    kernel.outputscale = 1.0
    kernel.base_kernel.lengthscale = 1.0
    return kernel


def _build(
    beta: np.ndarray, gamma: np.ndarray, settings: Settings
) -> tuple[gpytorch.models.ApproximateGP, gpytorch.likelihoods.GaussianLikelihood]:
    import gpytorch
    import torch
    from gpytorch import variational

    beta, gamma = (torch.tensor(Z, dtype=torch.float32) for Z in (beta, gamma))

    class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            strategy = variational.VariationalStrategy(
                self,
                beta,
                variational.CholeskyVariationalDistribution(len(beta)),
                learn_inducing_locations=True,
            )
            if len(gamma):
                delta = variational.DeltaVariationalDistribution(len(gamma))
                strategy = variational.OrthogonallyDecoupledVariationalStrategy(
                    strategy, gamma, delta
                )
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = scaled_matern(beta.shape[1])

        def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = settings.noise
    return Model(), likelihood


def _scores(
    model: gpytorch.models.ApproximateGP,
    likelihood: gpytorch.likelihoods.GaussianLikelihood,
    data: Data,
) -> dict[str, float]:
    """The metrics of the test rows."""
    import torch

    model.eval()
    with torch.no_grad():
        inputs = torch.tensor(data.X_test, dtype=torch.float32)
        found = [model(inputs[start : start + _BATCH]) for start in range(0, len(inputs), _BATCH)]
        mean, variance = (
            np.concatenate([part.numpy() for part in parts])[:, None].astype(float)
            for parts in ([q.mean for q in found], [q.variance for q in found])
        )
    return gaussian_scores(mean, variance + likelihood.noise.item(), data.Y_test)


def _stepping(
    model: gpytorch.models.ApproximateGP,
    likelihood: gpytorch.likelihoods.GaussianLikelihood,
    data: Data,
    settings: Settings,
) -> Callable[[], None]:
    """A step of Adam on all parameters, on random rows."""
    import gpytorch
    import torch

    torch.manual_seed(settings.seed)
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(data.X_train))
    adam = torch.optim.Adam(
        [*model.parameters(), *likelihood.parameters()], lr=settings.learning_rate
    )
    X, y = (
        torch.tensor(array, dtype=torch.float32) for array in (data.X_train, data.Y_train[:, 0])
    )
    model.train()
    likelihood.train()

    def step() -> None:
        rows = torch.randint(len(X), [min(settings.batch_size, len(X))])
        adam.zero_grad()
        loss = -objective(model(X[rows]), y[rows])
        loss.backward()
        adam.step()

    return step


def gpytorch_step(beta: np.ndarray, data: Data, settings: Settings) -> Callable[[], None]:
    """One training step of GPyTorch's SVGP in float32, which is its default."""
    return _stepping(*_build(beta, beta[:0], settings), data, settings)


def train_gpytorch(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    """Train by Adam on all parameters, in float32 as is GPyTorch's default, until the last of
    `targets`.
    """
    model, likelihood = _build(*points(spec, data, settings), settings)
    step = _stepping(model, likelihood, data, settings)
    recorder, snapshots = recorded(model, likelihood, step, data, targets, settings)
    note = _NO_BOUND if spec.num_gamma else ""
    return Record(data.name, spec.name, spec.library, 0.0, recorder.ms_per_step, snapshots, note)


def recorded(
    model: gpytorch.models.ApproximateGP,
    likelihood: gpytorch.likelihoods.GaussianLikelihood,
    step: Callable[[], None],
    data: Data,
    targets: Sequence[float],
    settings: Settings,
) -> tuple[Recorder, list[Snapshot]]:
    """Repeat `step` until the last of `targets`, and evaluate the model at each of them."""
    import torch

    both = torch.nn.ModuleList([model, likelihood])
    recorder = Recorder(
        targets,
        lambda: {name: value.detach().clone() for name, value in both.state_dict().items()},
        both.load_state_dict,
        settings.unit,
    )
    recorder.start()
    while not recorder.done:
        step()
        recorder()
    return recorder, recorder.finish(lambda: _scores(model, likelihood, data))
