"""GPyTorch's variational nearest-neighbour GP (Wu, Pleiss and Cunningham 2022)."""

from __future__ import annotations

__all__ = ["train_vnngp"]

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..harness.data import Data
from ..harness.records import Record
from .gpytorch_svgp import recorded, scaled_matern
from .models import Settings, Spec

if TYPE_CHECKING:
    import gpytorch
    import torch

_BATCH = 256
"""Rows of a step, as in GPyTorch's tutorial: a batch of 1,024 has a quarter of the steps."""
_NOISE = 0.1
"""The first noise variance, that of our neighbours; from 1 it ends where it ends from here."""


def train_vnngp(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    """Train by Adam in float32 until the last of `targets`, with every training row a point.

    `num_beta` neighbours, in likelihood and predictions alike. GPyTorch finds them once, by the
    unscaled distance of inputs, one row after the other; the note has these seconds, which are
    not part of the training time."""
    import gpytorch
    import torch

    torch.manual_seed(settings.seed)
    order = np.random.default_rng(settings.seed).permutation(len(data.X_train))
    X, y = (
        torch.tensor(array, dtype=torch.float32)
        for array in (data.X_train[order], data.Y_train[order, 0])
    )
    before = time.perf_counter()
    model = _model(X, spec.num_beta)
    note = f"neighbours of {len(X)} rows in {time.perf_counter() - before:.1f} s"
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = _NOISE
    step = _stepping(model, likelihood, y, settings)
    recorder, snapshots = recorded(model, likelihood, step, data, targets, settings)
    return Record(data.name, spec.name, spec.library, 0.0, recorder.ms_per_step, snapshots, note)


def _model(X: torch.Tensor, num_neighbours: int) -> gpytorch.models.ApproximateGP:
    import gpytorch
    from gpytorch import variational

    class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            q = variational.MeanFieldVariationalDistribution(len(X))
            strategy = variational.NNVariationalStrategy(
                self, X, q, k=num_neighbours, training_batch_size=_BATCH
            )
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = scaled_matern(X.shape[1])

        def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

        def __call__(self, x: torch.Tensor | None, **kwargs: Any) -> Any:
            return self.variational_strategy(x=x, prior=False, **kwargs)

    return Model()


def _stepping(
    model: gpytorch.models.ApproximateGP,
    likelihood: gpytorch.likelihoods.GaussianLikelihood,
    y: torch.Tensor,
    settings: Settings,
) -> Callable[[], None]:
    """A step of Adam on all parameters; the strategy draws the rows."""
    import gpytorch
    import torch

    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    adam = torch.optim.Adam(
        [*model.parameters(), *likelihood.parameters()], lr=settings.learning_rate
    )
    model.train()
    likelihood.train()

    def step() -> None:
        adam.zero_grad()
        q = model(None)
        loss = -objective(q, y[model.variational_strategy.current_training_indices])
        loss.backward()
        adam.step()

    return step
