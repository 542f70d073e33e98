"""Every basis, in every variant, with what the shared tests need to know of it: a new basis joins
by one `_add`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import gpflow
import numpy as np

from gpflow_decoupled.bases import (
    AffineIndependentBasis,
    Basis,
    CoupledBasis,
    DecoupledBasis,
    DualBasis,
    HybridBasis,
    MeanOnDataBasis,
    OrthogonalBasis,
    SiteBasis,
    SolveBasis,
    StateSpaceBasis,
)
from gpflow_decoupled.inducing.variables import as_inducing
from tests.reference import decoupled as ref
from tests.reference import grams as gr

Array = np.ndarray


class Case(NamedTuple):
    """One variant of a basis."""

    basis: type[Basis]
    options: dict[str, Any]
    has_mean_points: bool
    family: Callable[..., ref.Process]
    """The reference of this basis."""
    parameters: Callable[..., tuple]
    """(basis, state, Grams, latent) -> the parameters of `family`."""
    jitters_gamma: bool = False
    """Whether the residual kernel at gamma is factorised, and so gets jitter."""
    jitters_beta: bool = True
    """Whether the kernel at beta gets jitter."""

    def build(self, kernel: Any, latents: int, gamma: Array, beta: Array, **extra: Any) -> Basis:
        """The basis on these points."""
        if self.basis in OWNERS:
            return self.basis(beta, latents, **self.options, **extra)
        points = [as_inducing(beta, "beta", kernel)]
        if self.basis is MeanOnDataBasis:
            basis = self.basis(*points, latents, **self.options, **extra)
            basis.data_mean.set_data(gamma)
            return basis
        if next(iter(inspect.signature(self.basis).parameters)) != "beta":
            points.insert(0, as_inducing(gamma, "gamma", kernel))
        basis = self.basis(*points, latents, **self.options, **extra)
        basis.refresh(kernel)
        return basis


CASES: dict[str, Case] = {}
OWNERS = (SiteBasis, DualBasis)
"""Of models that own their data: their points are the data's inputs, and their Parameters are not
trainable.
"""
LOWEST_PRECISION = -0.1
"""Random sites may be negative, and K^-1 + W positive definite all the same: the trace of K is
below 10.
"""


def registered() -> set[type[Basis]]:
    """The bases that the shared tests cover."""
    own_tests = {
        AffineIndependentBasis,  # of one latent, not Gaussian
        StateSpaceBasis,  # of one input; see tests/models/test_state_space.py
    }
    return own_tests | {case.basis for case in CASES.values()}


def missing(bases: Iterable[type[Basis]]) -> list[str]:
    """What is not covered among `bases`, by name."""
    return sorted(basis.__name__ for basis in set(bases) - registered())


def kernel_of(kind: str) -> tuple[Any, int]:
    """A kernel and its number of latents: "one", "two" that share it, or two with "separate"
    kernels.
    """
    if kind == "separate":
        parts = [matern(1.3, 0.8), matern(0.6, 1.4)]
        return gpflow.kernels.SeparateIndependent(parts), 2
    return matern(1.3, 0.8), 2 if kind == "two" else 1


def matern(variance: float, lengthscale: float) -> gpflow.kernels.Kernel:
    """The kernel whose numpy version is `grams.matern32`."""
    return gpflow.kernels.Matern32(variance=variance, lengthscales=lengthscale)


def numpy_kernel(kernel: Any, latent: int) -> Callable[[Array, Array], Array]:
    """The numpy version of the kernel of one latent."""
    part = (
        kernel.kernels[latent] if isinstance(kernel, gpflow.kernels.MultioutputKernel) else kernel
    )
    variance, lengthscale = np.asarray(part.variance), np.asarray(part.lengthscales)
    return lambda X, X2: gr.matern32(X, X2, variance, lengthscale)


def randomize(basis: Basis, rng: np.random.Generator, scale: float = 1.0) -> None:
    """Random values in everything that q has, apart from its points."""
    for parameter in variational(basis):
        value = np.asarray(parameter)
        noise = rng.normal(size=value.shape)
        if value.ndim == 3:
            size = value.shape[-1]
            noise = np.tril(noise) / np.sqrt(size) + np.eye(size)
        else:
            noise = np.asarray(parameter.transform.forward(noise))  # positive ones, for example
        parameter.assign(scale * noise)
    if isinstance(basis, OWNERS):
        precision = basis.tau if isinstance(basis, SiteBasis) else basis.lam
        precision.assign(np.maximum(precision, LOWEST_PRECISION))


def variational(basis: Basis) -> list[gpflow.Parameter]:
    """The Parameters of q, apart from its points."""
    named = (getattr(basis, name, _NOTHING) for name in ("beta", "gamma", "alpha", "points"))
    points = {
        id(p) for part in named if not isinstance(part, gpflow.Parameter) for p in part.parameters
    }
    return [p for p in basis.parameters if id(p) not in points]


_NOTHING = gpflow.base.Module()


def _gaussian(k: gr.Grams, mean: Any, root: Any, whiten: bool, latent: int) -> tuple[Array, Array]:
    chol = k.chol if whiten else np.eye(len(k.K_b))
    full_root = chol @ np.asarray(root)[latent]
    m = np.zeros(len(chol)) if mean is None else chol @ np.asarray(mean)[:, latent]
    return m, full_root @ full_root.T


def _coefficients(basis: Basis, state: Any, latent: int) -> Array:
    return basis.mean_coefficients(state).numpy()[:, latent]


def _coupled(basis: Any, state: Any, k: gr.Grams, latent: int) -> tuple:
    return _gaussian(k, basis.q_mu, basis.q_sqrt, basis.whiten, latent)


def _inverse(basis: Any, state: Any, k: gr.Grams, latent: int) -> tuple:
    return _coefficients(basis, state, latent), np.asarray(basis.chol_B)[latent]


def _decoupled_coupled(basis: Any, state: Any, k: gr.Grams, latent: int) -> tuple:
    return _coefficients(basis, state, latent), _gaussian(
        k, None, basis.q_sqrt, basis.whiten, latent
    )[1]


def _hybrid(basis: Any, state: Any, k: gr.Grams, latent: int) -> tuple:
    m_h, S = _coupled(basis, state, k, latent)
    return _coefficients(basis, state, latent), np.linalg.solve(k.K_b, m_h), S


def _orthogonal(basis: Any, state: Any, k: gr.Grams, latent: int) -> tuple:
    return (_coefficients(basis, state, latent), *_coupled(basis, state, k, latent))


def _solve(basis: Any, state: Any, k: gr.Grams, latent: int) -> tuple:
    perpendicular = gr.residual(k)
    v = _gaussian(perpendicular, basis.v_mu, basis.v_sqrt, basis.whiten, latent)
    return (*_coupled(basis, state, k, latent), *v)


def _site(basis: Any, state: Any, k: gr.Grams, latent: int) -> tuple:
    S = np.linalg.inv(np.linalg.inv(k.K_b) + np.diag(np.asarray(basis.tau)[:, latent]))  # (C9)
    return S @ np.asarray(basis.nu)[:, latent], S


def _dual(basis: Any, state: Any, k: gr.Grams, latent: int) -> tuple:
    alpha, lam = (np.asarray(parameter)[:, latent] for parameter in (basis.alpha, basis.lam))
    return -k.K_b @ alpha, np.linalg.inv(np.linalg.inv(k.K_b) + np.diag(lam))  # (V7)


def _add(name: str, *case: Any) -> None:
    CASES[name] = Case(*case)


def _add_variants(name: str, basis: type[Basis], options: dict[str, Any], *rest: Any) -> None:
    """Each scaling of the mean's coordinates, and one unwhitened variant if the basis can be
    that.
    """
    for scaling in ("none", "diagonal", "whitened"):
        _add(f"{name}-{scaling}", basis, {**options, "mean_scaling": scaling}, True, *rest)
    if options.get("covariance") != "inverse":
        _add(
            f"{name}-unwhitened",
            basis,
            {**options, "mean_scaling": "diagonal", "whiten": False},
            True,
            *rest,
        )


for _tail, _whiten in (("", True), ("-unwhitened", False)):
    _add(f"coupled{_tail}", CoupledBasis, {"whiten": _whiten}, False, ref.coupled, _coupled)
    _add(
        f"on-data{_tail}", MeanOnDataBasis, {"whiten": _whiten}, False, ref.orthogonal, _orthogonal
    )
    _add(f"solve{_tail}", SolveBasis, {"whiten": _whiten}, False, ref.solve, _solve, True)
_add("site", SiteBasis, {}, False, ref.coupled, _site, False, False)
_add("dual", DualBasis, {}, False, ref.coupled, _dual, False, False)
_add_variants("hybrid", HybridBasis, {}, ref.hybrid, _hybrid)
_add_variants("orthogonal", OrthogonalBasis, {}, ref.orthogonal, _orthogonal)
_add_variants(
    "inverse", DecoupledBasis, {"covariance": "inverse"}, ref.decoupled_inverse_factor, _inverse
)
_add_variants(
    "decoupled",
    DecoupledBasis,
    {"covariance": "coupled"},
    ref.decoupled_coupled,
    _decoupled_coupled,
)

BOUNDED = {
    name: CASES[name]
    for name in CASES
    if name in ("coupled", "solve", "on-data") or name.endswith("-whitened")
}
"""Those whose bound is compared with the evidence, which is slow: each basis in its default
variant.
"""
