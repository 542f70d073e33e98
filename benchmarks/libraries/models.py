"""The models of the benchmarks, declared as data: `orthogonal-300+1000` has 300 covariance and 1000
mean points.
"""

from __future__ import annotations

__all__ = [
    "FAMILIES",
    "HELD",
    "ON_DATA",
    "Settings",
    "Spec",
    "build",
    "kernel_and_likelihood",
    "parse",
    "points",
    "precision",
]

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import gpflow
import numpy as np

from gpflow_decoupled import bases, models
from gpflow_decoupled.likelihoods import CategoricalLogit
from gpflow_decoupled.training.routes.minibatches import natural_step

from ..harness.data import Data, inducing_points

MEAN_SUBSAMPLE = 128
"""Rows in the estimate (D25) of the quadratic form of the mean basis, where there are at least
`FEW_MEAN_POINTS`.
"""
FEW_MEAN_POINTS = 1000
"""With fewer the form costs little as a whole, and its estimate may be too noisy for the decoupled
and the hybrid basis.
"""
SMOOTHNESS = 2.5
"""Of the Matern kernel where a name does not tell it."""


class Settings(NamedTuple):
    """What all models of a run share, ours and those of other libraries."""

    batch_size: int = 1024
    learning_rate: float = 0.01
    natural_gradient: float | None = 0.2
    """step size of natural gradients; None is the default of `fit`, see `step_of`"""
    anneal: float = 0.2
    """share of a run of known length, at its end, over which all step sizes fall"""
    noise: float = 1.0
    """initial noise variance, in units of the output's variance"""
    seed: int = 0
    budgets: tuple[float, ...] = (60.0,)
    """times of training, each a run of its own with our models, in units of `unit`"""
    unit: str = "seconds"
    """of the budgets: either "seconds" or "steps", as for `Recorder`"""
    multiclass: str = "softmax"
    """likelihood of three classes and more: "softmax", our `CategoricalLogit`, or "robustmax",
    GPflow's `MultiClass`
    """
    dtype: str = "float64"
    """floating type of our models; GPflow and GPJax are always trained in float64, GPyTorch in
    float32
    """

    def step_of(self, points: int, data: Data) -> float:
        """The step size of natural gradients for so many inducing points, the same for all
        libraries.
        """
        if self.natural_gradient is not None:
            return self.natural_gradient
        return natural_step(min(self.batch_size, len(data.X_train)), points, len(data.X_train))


class Spec(NamedTuple):
    """A declared model: its family, its numbers of points, and how q is trained."""

    family: str
    num_beta: int
    """inducing points of the covariance"""
    num_gamma: int = 0
    """further inducing points of the mean"""
    natural: bool = True
    """natural gradients where the family has them; otherwise Adam for all parameters, written
    FAMILY-M-adam
    """
    start: bool = False
    """whether our `fit` starts from values that suit the data, written FAMILY-M-start"""
    auto: bool = False
    """whether the kernel is chosen by leave-one-out scores first, written neighbours-M-auto"""
    bound: str = "classical"
    """of `BasisGP`; "tight" is written FAMILY-M-tight"""
    smoothness: float = SMOOTHNESS
    """of the Matern kernel; 0.5 is written vecchia-M-matern12, 1.5 vecchia-M-matern32"""

    @property
    def name(self) -> str:
        sizes = f"{self.num_beta}+{self.num_gamma}" if self.num_gamma else f"{self.num_beta}"
        return (
            f"{self.family}-{sizes}"
            + ("" if self.natural else "-adam")
            + ("-start" if self.start else "")
            + ("-auto" if self.auto else "")
            + ("-tight" if self.bound == "tight" else "")
            + ("" if self.smoothness == SMOOTHNESS else f"-matern{2 * self.smoothness:.0f}2")
        )

    @property
    def library(self) -> str:
        return FAMILIES[self.family]


FAMILIES = {
    "coupled": "gpflow_decoupled",
    "sites": "gpflow_decoupled",
    "whitened": "gpflow_decoupled",
    "lbfgs": "gpflow_decoupled",
    "decoupled": "gpflow_decoupled",
    "hybrid": "gpflow_decoupled",
    "orthogonal": "gpflow_decoupled",
    "solve": "gpflow_decoupled",
    "data": "gpflow_decoupled",
    "descent": "gpflow_decoupled",
    "neighbours": "gpflow_decoupled",
    "gpflow": "gpflow",
    "sgpr": "gpflow",
    "cglb": "gpflow",
    "gpr": "gpflow",
    "trees": "scikit-learn",
    "lightgbm": "lightgbm",
    "gpytorch": "gpytorch",
    "vnngp": "gpytorch",
    "gpjax": "gpjax",
    "vecchia": "gpboost",
}
"""Family -> library. `sites` and `whitened` are the coupled basis whose sites, or whose whitened
q(u), stay the same while the kernel changes; `coupled` and the others leave that choice to `fit`.
`lbfgs` is the coupled basis whose kernel, noise and points move by L-BFGS on all rows after a
quarter of the run. `data` has its mean on all training rows, by conjugate gradients; `descent` has
it by four epochs of stochastic dual descent per solve. `neighbours` is the nearest-neighbour GP, of
which the number is that of neighbours in the likelihood; `vecchia` is GPBoost's, `vnngp` GPyTorch's
variational one. `sgpr`, `cglb` and
`gpr` are GPflow's SGPR, CGLB and GPR by L-BFGS; `gpr` refuses more rows than the number says, and
`cglb` more than 10,000, because it stores the kernel matrix. `trees` are scikit-learn's gradient-
boosted trees, of which the number is the limit of iterations. `gpflow` and `gpjax` are the whitened
SVGP of these libraries; `gpytorch` is the SVGP of GPyTorch, or its orthogonally decoupled one where
there are mean points. `lightgbm` are LightGBM's trees."""

HELD = ("sites", "whitened")
"""Families named after the `hold` of `fit` that they choose."""

COUPLED = ("coupled", "lbfgs", *HELD)
"""Families of the coupled basis."""

ON_DATA = ("data", "descent")
"""Families whose mean is on all training rows."""

NEIGHBOURS = "neighbours"
"""The family of nearest-neighbour GPs."""

TIGHT = (*COUPLED, *ON_DATA, "hybrid", "orthogonal")
"""Families with a choice of the bound."""

_LBFGS_AND_TREES = ("cglb", "gpr", "sgpr", "trees", "lightgbm")

_ONE_WAY = (*ON_DATA, NEIGHBOURS, "gpytorch", "vecchia", "vnngp", *_LBFGS_AND_TREES)
"""Families with one way of training."""

_WITHOUT_MEAN_POINTS = (
    *COUPLED,
    *ON_DATA,
    NEIGHBOURS,
    "gpflow",
    "gpjax",
    "vnngp",
    *_LBFGS_AND_TREES,
)
"""Families whose mean has no points beside those of the covariance."""


def parse(name: str) -> Spec:
    """The declaration that a name stands for: `orthogonal-300+1000` is Spec("orthogonal", 300,
    1000).

    :raises ValueError: if the name is no declaration; the message says how to write one.
    """
    options = r"(-adam)?(-start)?(-auto)?(-tight)?(?:-matern([13])2)?"
    match = re.fullmatch(r"([a-z]+)-(\d+)(?:\+(\d+))?" + options, name)
    if not match or match[1] not in FAMILIES:
        families = ", ".join(FAMILIES)
        raise ValueError(
            f"Model {name!r} is not known; write FAMILY-M or FAMILY-M+MEAN_POINTS, and -adam,"
            f" -start, -auto, -tight or -matern12 after it, with {families}."
        )
    natural, start, auto = match[4] is None, match[5] is not None, match[6] is not None
    bound = "classical" if match[7] is None else "tight"
    smoothness = SMOOTHNESS if match[8] is None else int(match[8]) / 2
    sizes = int(match[2]), int(match[3] or 0)
    spec = Spec(match[1], *sizes, natural, start, auto, bound, smoothness)
    _check(spec, name)
    return spec


def _check(spec: Spec, name: str) -> None:
    """Refuse options that a family does not have; raises `ValueError`."""
    if spec.auto and spec.family != NEIGHBOURS:
        raise ValueError(
            f"Model {name!r}: -auto chooses the kernel of {NEIGHBOURS} alone; leave it out."
        )
    if spec.smoothness != SMOOTHNESS and spec.family != "vecchia":
        raise ValueError(
            f"Model {name!r}: -matern12 and -matern32 are kernels of vecchia; leave them out."
        )
    if spec.bound == "tight" and spec.family not in TIGHT:
        raise ValueError(f"Model {name!r}: {spec.family} has one bound; leave out -tight.")
    if spec.start and (spec.library != "gpflow_decoupled" or spec.family == NEIGHBOURS):
        raise ValueError(
            f"Model {name!r}: -start is an option of our own fit; leave it out for {spec.family}."
        )
    if spec.family in _ONE_WAY and not spec.natural:
        raise ValueError(f"Model {name!r}: {spec.family} has one way of training; leave out -adam.")
    if spec.family in _WITHOUT_MEAN_POINTS and spec.num_gamma:
        raise ValueError(
            f"Model {name!r}: {spec.family} has no mean points of its own; leave out"
            f" +{spec.num_gamma}."
        )
    if spec.family in ("decoupled", "hybrid", "orthogonal", "solve") and not spec.num_gamma:
        raise ValueError(
            f"Model {name!r}: {spec.family} needs mean points; write {name}+MEAN_POINTS."
        )


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Set GPflow's default float inside the block, with the larger jitter that GPflow's models need
    in float32.
    """
    jitter = 1e-6 if dtype == "float64" else 1e-4
    with gpflow.config.as_context(gpflow.config.Config(float=np.dtype(dtype).type, jitter=jitter)):
        yield


def kernel_and_likelihood(
    data: Data, settings: Settings
) -> tuple[gpflow.kernels.Kernel, gpflow.likelihoods.Likelihood]:
    """The kernel and the likelihood that all models start from.

    The kernel is Matern-5/2 with a lengthscale per input, which starts at 1, or at sqrt(D), as in
    our wrappers, where classes are declared. The likelihood is Gaussian, Bernoulli for labels of
    two classes, or that of the settings for more."""
    num_inputs = data.X_train.shape[1]
    kernel = gpflow.kernels.Matern52(
        lengthscales=np.full(num_inputs, np.sqrt(num_inputs) if data.num_classes else 1.0)
    )
    if data.num_classes > 2:
        softmax = settings.multiclass == "softmax"
        return kernel, (CategoricalLogit if softmax else gpflow.likelihoods.MultiClass)(
            data.num_classes
        )
    if set(np.unique(data.Y_train)) == {0.0, 1.0}:
        return kernel, gpflow.likelihoods.Bernoulli()
    return kernel, gpflow.likelihoods.Gaussian(settings.noise)


def points(spec: Spec, data: Data, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Inducing points beta [M_beta, D], which are the same for all models of that size, and gamma
    [M_gamma, D].
    """
    beta = inducing_points(data, spec.num_beta, settings.seed)
    if not spec.num_gamma:
        return beta, np.zeros([0, beta.shape[1]])
    return beta, inducing_points(data, spec.num_gamma, settings.seed + 1, given=beta)


def build(spec: Spec, data: Data, settings: Settings) -> gpflow.models.GPModel:
    """The GPflow model of a declaration, one of ours or GPflow's own, ready to be trained."""
    kernel, likelihood = kernel_and_likelihood(data, settings)
    beta, gamma = points(spec, data, settings)
    num_data, L = len(data.X_train), data.num_classes if data.num_classes > 2 else 1
    if spec.family == "gpflow":
        return gpflow.models.SVGP(
            kernel, likelihood, beta, whiten=True, num_latent_gps=L, num_data=num_data
        )
    if spec.family in COUPLED:
        basis = bases.CoupledBasis(beta, L)
        return models.BasisGP(kernel, likelihood, basis, num_data=num_data, bound=spec.bound)
    options = {"num_latent_gps": L, "num_data": num_data}
    if spec.family in ON_DATA:
        return models.ODVGP(kernel, likelihood, "data", beta, bound=spec.bound, **options)
    if spec.family == "solve":
        return models.SOLVEGP(kernel, likelihood, gamma, beta, **options)
    options["mean_subsample"] = None if spec.num_gamma < FEW_MEAN_POINTS else MEAN_SUBSAMPLE
    if spec.family == "decoupled":
        return models.DVGP(kernel, likelihood, np.concatenate([gamma, beta]), beta, **options)
    constructor = {"hybrid": models.HDVGP, "orthogonal": models.ODVGP}[spec.family]
    return constructor(kernel, likelihood, gamma, beta, bound=spec.bound, **options)
