"""The number of Gauss-Hermite nodes."""

from __future__ import annotations

__all__ = ["MOST_NODES", "finer", "nodes_of", "with_nodes"]

import copy

from gpflow import likelihoods as gl
from gpflow.quadrature import NDiagGHQuadrature

from .row_likelihood import RowLikelihood

MOST_NODES = 300
"""With more nodes NumPy's weights underflow."""
_MOST_LATENTS = 2
"""With more latents per observation a grid of twice the nodes is too large."""


def nodes_of(likelihood: gl.Likelihood) -> int | None:
    """The number of Gauss-Hermite nodes per latent function; None without such a rule."""
    if isinstance(likelihood, gl.SwitchedLikelihood):
        return max(
            (number for part in likelihood.likelihoods if (number := nodes_of(part))), default=None
        )
    if isinstance(likelihood, RowLikelihood):
        return nodes_of(likelihood.likelihood)
    if isinstance(likelihood, gl.MultiClass):
        return int(likelihood.num_gauss_hermite_points)
    rule = getattr(likelihood, "quadrature", None)
    return rule.n_gh if isinstance(rule, NDiagGHQuadrature) and rule.dim <= _MOST_LATENTS else None


def with_nodes(likelihood: gl.Likelihood, number: int) -> gl.Likelihood:
    """A copy with another number of nodes, if any, sharing all Parameters."""
    if nodes_of(likelihood) is None:
        return likelihood
    other = copy.copy(likelihood)
    changed: dict[str, object]
    if isinstance(likelihood, gl.SwitchedLikelihood):
        changed = {"likelihoods": [with_nodes(part, number) for part in likelihood.likelihoods]}
    elif isinstance(likelihood, RowLikelihood):
        changed = {"likelihood": with_nodes(likelihood.likelihood, number)}
    elif isinstance(likelihood, gl.MultiClass):
        changed = {"num_gauss_hermite_points": number}
    else:
        changed = {"quadrature": NDiagGHQuadrature(likelihood.quadrature.dim, number)}
    for name, value in changed.items():
        object.__setattr__(other, name, value)  # past the tracking of tf.Module
    return other


def finer(likelihood: gl.Likelihood, doublings: int) -> gl.Likelihood:
    """The likelihood with 2^doublings times its nodes, at most 300."""
    number = nodes_of(likelihood)
    if number is None or doublings == 0:
        return likelihood
    return with_nodes(likelihood, min(number * 2**doublings, MOST_NODES))
