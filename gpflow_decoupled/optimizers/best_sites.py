"""The best sites at a given prior."""

from __future__ import annotations

__all__ = [
    "BestSites", "Expectation", "Past", "Posterior", "SiteMoments", "best_sites",
    "dense_posterior",
]  # fmt: skip

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from ..linalg.site_posterior import DenseSites, dense_sites

Expectation: TypeAlias = Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray, np.ndarray]]
"""Mean (less the prior's) and variance of f [N, L] -> sum_n E_n in nats, dE/dmean and dE/dvariance
[N, L]."""
Past: TypeAlias = list[tuple[np.ndarray, np.ndarray]]
"""Sites [2, N, L], nu and tau, and full steps from there."""


class SiteMoments(NamedTuple):
    """The prior times some sites."""

    mean: np.ndarray
    """Of f less its prior mean, [N, L]."""
    variance: np.ndarray
    """Of f, [N, L]."""
    divergence: float
    """KL from the prior in nats."""
    latents: list[DenseSites] | None = None
    """The posterior of each latent, if it is dense."""


Posterior: TypeAlias = Callable[[np.ndarray, np.ndarray], "SiteMoments | None"]
"""nu and tau [N, L] -> the posterior; None where it does not exist."""
_MOST, _HALVINGS = 100, 12
"""Steps of a run, and halvings of a step; a log-concave likelihood takes some 5, and none."""
_DEPTH, _RANK = 6, 1e-10
"""Last steps of an extrapolation, and the relative singular value below which they are dependent.
"""
_ROUND_OFF = 1e-12
"""A share of the bound by which it may fall."""


class BestSites(NamedTuple):
    """Sites, and the bound at their posterior."""

    nu: np.ndarray
    """[N, L]"""
    tau: np.ndarray
    """[N, L]"""
    elbo: float
    """Nats."""
    at: SiteMoments
    """The posterior."""
    g: np.ndarray
    """dE/dmean [N, L] there."""
    h: np.ndarray
    """dE/dvariance [N, L] there."""


def dense_posterior(K: np.ndarray) -> Posterior:
    """The posterior under a prior K [G, N, N], one for all L latents or one for each; by LAPACK.

    Cost: 2/3 N^3 per latent and call.
    """

    def posterior(nu: np.ndarray, tau: np.ndarray) -> SiteMoments | None:
        latents = []
        for latent in range(nu.shape[1]):
            gram = K[min(latent, len(K) - 1)]
            found = dense_sites(gram, nu[:, latent], tau[:, latent])
            if found is None or np.any(found.variance <= 0.0):
                return None
            latents.append(found)
        mean, variance = (
            np.stack([getattr(one, name) for one in latents], axis=1)
            for name in ("mean", "variance")
        )
        divergence = sum(one.divergence(tau[:, latent]) for latent, one in enumerate(latents))
        return SiteMoments(mean, variance, divergence, latents)

    return posterior


def best_sites(
    posterior: Posterior,
    expected: Expectation,
    start: tuple[np.ndarray, np.ndarray],
    tolerance: float,
) -> BestSites | None:
    """Climb the bound over the sites by conjugate computation.

    :param posterior: of sites, say `dense_posterior(K)`.
    :param expected: sum_n E_q log p(y_n | f_n).
    :param start: nu and tau [N, L], replaced by zeros if they have no posterior.
    :param tolerance: the run ends after a step that gained less, in nats.
    :return: None if the bound is not finite at the start, or the prior is indefinite.
    """
    # Full steps, extrapolated from the last six, halved where the bound falls. The optimum has nu =
    # g - 2 h u and tau = -2 h (Khan & Lin 2017).
    now = _at(posterior, expected, *start)
    if now is None:
        zeros = np.zeros_like(start[0])
        now = _at(posterior, expected, zeros, zeros)
    if now is None:
        return None
    past: Past = []
    for _ in range(_MOST):
        then = _step(posterior, expected, now, past)
        if then is None:
            return now
        gain, now = then.elbo - now.elbo, then
        if gain < tolerance:
            return now
    return now


def _step(
    posterior: Posterior, expected: Expectation, now: BestSites, past: Past
) -> BestSites | None:
    """The first of an extrapolated step, a full one and its halves that does not lower the bound;
    None for none.
    """
    sites = np.stack([now.nu, now.tau])
    step = np.stack([now.g - 2.0 * now.h * now.at.mean, -2.0 * now.h]) - sites  # (C13)
    past[:] = [*past, (sites, step)][-_DEPTH:]
    least, share = now.elbo - _ROUND_OFF * abs(now.elbo), 1.0
    if len(past) > 1:
        then = _at(posterior, expected, *_extrapolated(past))
        if then is not None and then.elbo >= least:
            return then
        past.clear()
    for _ in range(_HALVINGS):
        then = _at(posterior, expected, *(sites + share * step))
        if then is not None and then.elbo >= least:
            return then
        share *= 0.5
    return None


def _extrapolated(past: Past) -> np.ndarray:
    """Where steps vanish, to first order in the last of them (Anderson 1965)."""
    # classes that share a row make steps shrink slowly: some 40 of them, and 15 with extrapolation
    sites, steps = map(np.stack, zip(*past))
    moved, changed = (np.diff(part, axis=0).reshape(len(part) - 1, -1) for part in (sites, steps))
    share = np.linalg.lstsq(changed.T, steps[-1].ravel(), rcond=_RANK)[0]
    return sites[-1] + steps[-1] - (share @ (moved + changed)).reshape(steps[-1].shape)


def _at(
    posterior: Posterior, expected: Expectation, nu: np.ndarray, tau: np.ndarray
) -> BestSites | None:
    at = posterior(nu, tau)
    if at is None:
        return None
    value, g, h = expected(at.mean, at.variance)
    elbo = value - at.divergence
    return BestSites(nu, tau, elbo, at, g, h) if np.isfinite(elbo) else None
