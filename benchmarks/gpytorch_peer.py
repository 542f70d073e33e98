"""GPyTorch as a peer, used only where it is installed: SVGP, and its orthogonally decoupled strategy."""

from __future__ import annotations

__all__ = ["AVAILABLE", "gpytorch_step", "train_gpytorch"]

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .data import Data
from .metrics import evaluate
from .models import Settings, Spec, points
from .records import Record, Recorder

AVAILABLE = importlib.util.find_spec("gpytorch") is not None
_NOTE = "its objective is not a lower bound with mean points, so no ELBO is reported"


def _build(beta: np.ndarray, gamma: np.ndarray, settings: Settings) -> tuple[Any, Any]:
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
                strategy = variational.OrthogonallyDecoupledVariationalStrategy(strategy, gamma, delta)
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=beta.shape[1])
            )
            self.covar_module.outputscale = 1.0
            self.covar_module.base_kernel.lengthscale = 1.0

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = settings.noise
    return Model(), likelihood


class _Predictor:
    """The two verbs of GPflow that the metrics use."""

    def __init__(self, model: Any, likelihood: Any) -> None:
        self._model, self._likelihood = model, likelihood

    def predict_y(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        import torch

        self._model.eval()
        with torch.no_grad():
            q = self._model(torch.tensor(X, dtype=torch.float32))
        variance = q.variance.numpy()[:, None].astype(float) + float(self._likelihood.noise)
        return q.mean.numpy()[:, None].astype(float), variance

    def predict_log_density(self, data: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        mean, variance = self.predict_y(data[0])
        return -0.5 * (np.log(2.0 * np.pi * variance) + (data[1] - mean) ** 2 / variance)[:, 0]


def _stepping(model: Any, likelihood: Any, data: Data, settings: Settings) -> Callable[[], None]:
    """Adam on everything, on random rows."""
    import gpytorch
    import torch

    torch.manual_seed(settings.seed)
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(data.X_train))
    adam = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=settings.learning_rate)
    X, y = (torch.tensor(array, dtype=torch.float32) for array in (data.X_train, data.Y_train[:, 0]))
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
    """One training step of its SVGP, in float32 as is its default."""
    return _stepping(*_build(beta, beta[:0], settings), data, settings)


def train_gpytorch(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    """Adam on everything in float32, GPyTorch's own default, until the last of `targets` (seconds)."""
    import torch

    model, likelihood = _build(*points(spec, data, settings), settings)
    step, both = _stepping(model, likelihood, data, settings), torch.nn.ModuleList([model, likelihood])
    recorder = Recorder(
        targets, lambda: {k: v.detach().clone() for k, v in both.state_dict().items()}, both.load_state_dict
    )
    recorder.start()
    while not recorder.done:
        step()
        recorder()
    predictor = _Predictor(model, likelihood)
    snapshots = recorder.finish(lambda: evaluate(predictor, data))
    return Record(data.name, spec.name, spec.library, 0.0, recorder.ms_per_step, snapshots, _NOTE)
