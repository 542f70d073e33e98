"""Random problems: how each model is built on random data, and how it is asked for its bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import gpflow
import numpy as np
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel

from gpflow_decoupled import models
from gpflow_decoupled.bases import CoupledBasis, OrthogonalBasis

from .ingredients import (
    COLUMNS,
    LIKELIHOODS,
    ROWS,
    STATIONARY,
    draw_inputs,
    draw_kernel,
    draw_likelihood,
    draw_mean,
    draw_scale,
)  # fmt: skip

Data = tuple[np.ndarray, np.ndarray]


@dataclass
class Parts:
    """What a model is made of: data, kernel, likelihood, mean function, latents L, and points beta
    and gamma.
    """

    data: Data
    kernel: Kernel
    likelihood: Likelihood
    mean: MeanFunction | None
    latents: int
    beta: np.ndarray
    gamma: np.ndarray

    @property
    def sparse(self) -> dict[str, object]:
        """Options of models on inducing points."""
        return {"mean_function": self.mean, "num_latent_gps": self.latents}


Build = Callable[[Parts], GPModel]


MODELS: dict[str, Build] = {
    "ODVGP": lambda p: models.ODVGP(p.kernel, p.likelihood, p.gamma, p.beta, **p.sparse),
    "ODVGP diagonal": lambda p: models.ODVGP(
        p.kernel, p.likelihood, p.gamma, p.beta, mean_scaling="diagonal", whiten=False, **p.sparse
    ),
    "HDVGP": lambda p: models.HDVGP(p.kernel, p.likelihood, p.gamma, p.beta, **p.sparse),
    "DVGP": lambda p: models.DVGP(p.kernel, p.likelihood, p.gamma, p.beta, **p.sparse),
    "DVGP coupled": lambda p: models.DVGP(
        p.kernel, p.likelihood, p.gamma, p.beta, covariance="coupled", **p.sparse
    ),
    "SOLVEGP": lambda p: models.SOLVEGP(p.kernel, p.likelihood, p.gamma, p.beta, **p.sparse),
    "BasisGP": lambda p: models.BasisGP(
        p.kernel, p.likelihood, CoupledBasis(_inducing(p), p.latents), mean_function=p.mean
    ),
    "SparseCVIGP": lambda p: models.SparseCVIGP(p.kernel, p.likelihood, p.beta, **p.sparse),
    "SparseCVIGP orthogonal": lambda p: models.SparseCVIGP(
        p.kernel,
        p.likelihood,
        OrthogonalBasis(_inducing(p, p.gamma), _inducing(p), p.latents),
        mean_function=p.mean,
    ),
    "SVGP": lambda p: gpflow.models.SVGP(p.kernel, p.likelihood, _inducing(p), **p.sparse),
    "CVIGP": lambda p: models.CVIGP(
        p.data, p.kernel, p.likelihood, mean_function=p.mean, num_latent_gps=p.latents
    ),
    "LCLGP": lambda p: models.LCLGP(
        p.data, p.kernel, p.likelihood, mean_function=p.mean, num_latent_gps=p.latents
    ),
    "AffineIndependentGP": lambda p: models.AffineIndependentGP(
        p.data, p.kernel, p.likelihood, mean_function=p.mean
    ),
    "CVIGLM": lambda p: models.CVIGLM(p.data, p.likelihood, num_latent_gps=p.latents),
    "CVIGLM function": lambda p: models.CVIGLM(
        p.data, p.likelihood, num_latent_gps=p.latents, form="function"
    ),
    "LCLGLM": lambda p: models.LCLGLM(p.data, p.likelihood, num_latent_gps=p.latents),
    "AffineIndependentGLM": lambda p: models.AffineIndependentGLM(p.data, p.likelihood),
}
"""By name; a model of one latent function refuses several."""

FULL = (
    "CVIGP",
    "LCLGP",
    "AffineIndependentGP",
    "CVIGLM function",
    "LCLGLM",
    "AffineIndependentGLM",
)
"""Models that own their data."""
LINEAR = ("CVIGLM", "CVIGLM function", "LCLGLM", "AffineIndependentGLM")
"""Models that bring their own kernel and mean function."""


def data_of(model: GPModel, data: Data) -> Data | None:
    """What `fit` takes: nothing for a model that owns its data."""
    return None if hasattr(model, "data") else data


def labels_for(model: GPModel, Y: np.ndarray) -> np.ndarray:
    """Y as the model's own verbs take it: GPflow's models with `Softmax` take integers alone."""
    own = type(model) is gpflow.models.SVGP and isinstance(
        model.likelihood, gpflow.likelihoods.Softmax
    )
    return Y.astype(np.int32) if own else Y


def bound(model: GPModel, data: Data) -> float:
    """The bound in nats on all data."""
    given = data_of(model, (data[0], labels_for(model, data[1])))
    if given is None:
        return float(model.elbo())
    if getattr(model, "num_data", 0) is None:
        model.num_data = len(data[0])
    return float(model.elbo(given))


def _inducing(p: Parts, Z: np.ndarray | None = None) -> gpflow.inducing_variables.InducingVariables:
    """Inducing points as a kernel of several latents needs them."""
    points = gpflow.inducing_variables.InducingPoints(p.beta if Z is None else Z)
    several = isinstance(p.kernel, gpflow.kernels.MultioutputKernel)
    return (
        gpflow.inducing_variables.SharedIndependentInducingVariables(points) if several else points
    )


SLOW = ("AffineIndependentGP", "AffineIndependentGLM", "LCLGP", "LCLGLM")
"""Models whose optimizers are always compiled: they are drawn less often."""
ONE_LATENT = ("AffineIndependentGP", "AffineIndependentGLM")


@dataclass
class Problem:
    """What was drawn. Its model is built within `config`, so that all numbers have its type."""

    model: str
    likelihood: str
    kernel: str
    mean: str
    dtype: type
    data: Data
    noise: float
    size: float
    lengthscale: float
    latents: int
    notes: list[str]
    parts_seed: list[int] = field(repr=False)

    @property
    def title(self) -> str:
        """The problem in words."""
        (N, D), P = self.data[0].shape, self.data[1].shape[1]
        words = [
            (
                f"{self.model}, {self.likelihood}, {self.kernel}, mean {self.mean},"
                f" {self.dtype.__name__}"
            ),
            f"N={N} D={D} P={P} L={self.latents}",
            f"sizes of X {self.lengthscale:g}, of f {self.size:g}, of noise {self.noise:g}",
            *self.notes,
        ]
        return "; ".join(word for word in words if word)

    @property
    def is_stationary(self) -> bool:
        """Whether far from the data the posterior is the prior."""
        return self.model not in LINEAR and self.kernel.split(" ARD")[0] in STATIONARY

    @property
    def is_moderate(self) -> bool:
        """Whether all scales are within a factor of ten of one, so that steps of Adam are small."""
        return (
            all(0.1 <= scale <= 10.0 for scale in (self.lengthscale, self.size, self.noise))
            and not self.notes
        )

    @contextmanager
    def config(self) -> Iterator[None]:
        """GPflow's float type for this problem."""
        with gpflow.config.as_context(gpflow.config.Config(float=self.dtype)):
            yield

    def build(self, rows: np.ndarray | None = None) -> GPModel:
        """A new model, the same at every call.

        :param rows: inputs [N, D] among which the inducing points are drawn; those of the data if
        not given."""
        rng = np.random.default_rng(self.parts_seed)
        X = self.data[0] if rows is None else rows
        kernel, _ = draw_kernel(rng, self.size**2, self.lengthscale, X.shape[1], self.latents)
        mean, _ = draw_mean(rng, X, self.latents, self.size)
        beta, gamma = _points(rng, X, self.lengthscale)
        likelihood = LIKELIHOODS[self.likelihood].make(self.noise)
        return MODELS[self.model](
            Parts(self.data, kernel, likelihood, mean, self.latents, beta, gamma)
        )


def draw_problem(
    rng: np.random.Generator,
    *,
    gaussian: bool = False,
    moderate: bool = False,
    rows: int | None = None,
    model: str | None = None,
) -> Problem:
    """Draw a problem.

    :param rng: of the case.
    :param gaussian: Gaussian noise only.
    :param moderate: scales of one, float64 and no duplicates.
    :param rows: N, if it is given.
    :param model: its name, of `MODELS`; one is drawn if not given.
    """
    names = [name for name in MODELS if name not in SLOW]
    model = str(rng.choice(names if rng.uniform() < 0.85 else SLOW)) if model is None else model
    dtype = np.float64 if moderate or rng.uniform() < 0.75 else np.float32
    likelihood, latents = draw_likelihood(rng, several=model not in ONE_LATENT)
    if gaussian:
        likelihood, latents = "Gaussian", 1
    rows = int(rng.choice(ROWS)) if rows is None else rows
    columns = int(rng.choice(COLUMNS))
    lengthscale = 1.0 if moderate else draw_scale(rng, dtype)
    X, note = draw_inputs(rng, rows, columns, lengthscale)
    if moderate:
        X, note = rng.uniform(-2.0, 2.0, (rows, columns)), ""
    size = draw_scale(rng, dtype) if LIKELIHOODS[likelihood].has_scale and not moderate else 1.0
    noise = size * float(rng.choice([0.1, 0.3, 1.0, 1e-4 if dtype is np.float64 else 0.01]))
    notes = [note] if note else []
    if not moderate and likelihood == "Gaussian" and rng.uniform() < 0.1:
        noise = 1e-4 if dtype is np.float64 else 1e-2  # a variance of 1e-8, whatever the size of f
        notes.append("least noise")
    seed = [int(number) for number in rng.integers(0, 2**31, 4)]
    parts = np.random.default_rng(seed)
    kernel, kernel_name = draw_kernel(parts, size**2, lengthscale, columns, latents)
    mean, mean_name = draw_mean(parts, X, latents, size)
    f = (
        size
        * np.cumsum(np.sin(3.0 * X / lengthscale + rng.uniform(0.0, 6.0, columns)), axis=1)[:, -1:]
    )
    f = f * rng.normal(size=latents) + (0.0 if mean is None else np.asarray(mean(X)))
    Y = LIKELIHOODS[likelihood].observe(rng, f, noise)
    if not moderate and rng.uniform() < 0.1:
        Y, _ = np.tile(Y[:1], (rows, 1)), notes.append("constant Y")
    if not moderate and LIKELIHOODS[likelihood].has_scale and rng.uniform() < 0.15:
        wrong = draw_scale(rng, dtype)
        observed = Y.shape[1] - LIKELIHOODS[likelihood].numbered  # codes have no units
        Y[:, :observed] *= wrong
        notes.append(f"Y times {wrong:g}")
    data = X.astype(dtype), Y.astype(dtype)
    return Problem(
        model,
        likelihood,
        kernel_name,
        mean_name,
        dtype,
        data,
        noise,
        size,
        lengthscale,
        latents,
        notes,
        seed,
    )


def _points(
    rng: np.random.Generator, X: np.ndarray, lengthscale: float
) -> tuple[np.ndarray, np.ndarray]:
    """beta [M_b, D] and gamma [M_g, D], distinct: rows of X, and new points among them."""
    rows = np.unique(X, axis=0)
    rows = rows[rng.permutation(len(rows))]
    cut = max(1, min(len(rows) // 2, 10))
    new = X[rng.integers(len(X), size=3)] + 0.3 * lengthscale * rng.normal(
        size=(3, X.shape[1])
    ).astype(X.dtype)
    gamma = np.concatenate([rows[cut : cut + 10], new.astype(X.dtype)])
    return rows[:cut], np.unique(gamma, axis=0)
