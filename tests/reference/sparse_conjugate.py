"""Conjugate-computation variational inference on inducing variables: all sites tied to q(u).

u has prior N(0, Kuu), and f_n given u has mean p_n^T u, p_n = Kuu^-1 k_un, plus the mean function
`prior_mean` [N]. Unlike in `conjugate`, the sites are centred: they are on p_n^T u, so that g and h
are at the total mean and the target takes p_n^T m alone. Kuu [M, M] includes jitter, Kuf is [M, N],
kdiag [N] the prior variances at the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .conjugate import Expect
from .decoupled import brute_force_kl
from .grams import Array

__all__ = [
    "STORAGES",
    "TiedSites",
    "columns",
    "convert",
    "fixed_point",
    "kl_textbook",
    "kl_unprojected",
    "kl_whitened",
    "marginals",
    "moments",
    "move_whitened",
    "no_sites",
    "per_datum_bound",
    "predict",
    "predict_unprojected",
    "projected_bound",
    "run",
    "step",
    "tie",
    "tied_step",
]

STORAGES = ("projected", "unprojected", "whitened")


class TiedSites(NamedTuple):
    """exp(lambda1^T w - w^T Lambda2 w / 2) with w = u, Kuu^-1 u or L^-1 u for the three
    `STORAGES`.
    """

    lambda1: Array  # [M]
    Lambda2: Array  # [M, M]


def no_sites(M: int) -> TiedSites:
    """Sites at which q(u) is the prior, in any storage."""
    return TiedSites(np.zeros(M), np.zeros((M, M)))


def columns(Kuu: Array, Kuf: Array, storage: str) -> Array:
    """What the sites of the data are multiplied by, [M, N]: P, Kuf or A."""
    if storage == "projected":
        return np.linalg.inv(Kuu) @ Kuf  # (C22)
    if storage == "unprojected":
        return Kuf  # (C23)
    return np.linalg.inv(np.linalg.cholesky(Kuu)) @ Kuf  # (C24)


def tie(cols: Array, nu: Array, tau: Array) -> TiedSites:
    """Tied sites of the data's nu and tau [N], in the storage of `cols` [M, N]."""
    return TiedSites(cols @ nu, (cols * tau) @ cols.T)  # (C22)


def moments(Kuu: Array, sites: TiedSites, storage: str) -> tuple[Array, Array]:
    """m [M] and S [M, M] of q(u)."""
    first, second = sites
    if storage == "projected":
        S = np.linalg.inv(np.linalg.inv(Kuu) + second)  # (C22)
        return S @ first, S  # (C22)
    if storage == "unprojected":
        R_inv = np.linalg.inv(Kuu + second)  # (C23)
        return Kuu @ R_inv @ first, Kuu @ R_inv @ Kuu  # (C23)
    L = np.linalg.cholesky(Kuu)
    S_white = np.linalg.inv(np.eye(len(L)) + second)  # (C24)
    return L @ S_white @ first, L @ S_white @ L.T  # (C24)


def convert(Kuu: Array, sites: TiedSites, source: str, target: str) -> TiedSites:
    """The same sites in another storage."""
    L = np.linalg.cholesky(Kuu)
    roots = {"projected": np.eye(len(L)), "unprojected": Kuu, "whitened": L}
    # w_source = T w_target, hence lambda1 -> T^T lambda1.
    T = np.linalg.inv(roots[source]) @ roots[target]
    return TiedSites(T.T @ sites.lambda1, T.T @ sites.Lambda2 @ T)


def move_whitened(Kuu_old: Array, Kuu: Array, sites: TiedSites) -> TiedSites:
    """Whitened sites at the new Kuu of the same projected sites; `sites` are whitened by the old
    one.
    """
    T = np.linalg.inv(np.linalg.cholesky(Kuu_old)) @ np.linalg.cholesky(Kuu)  # (C28)
    return TiedSites(T.T @ sites.lambda1, T.T @ sites.Lambda2 @ T)  # (C28)


def predict(Kuu: Array, Kus: Array, K_s: Array, m: Array, S: Array) -> tuple[Array, Array]:
    """Mean [T], without the mean function, and covariance [T, T] at points with Kus [M, T] and K_s
    [T, T].
    """
    P = np.linalg.inv(Kuu) @ Kus
    return P.T @ m, K_s - P.T @ (Kuu - S) @ P


def predict_unprojected(
    Kuu: Array, Kus: Array, K_s: Array, sites: TiedSites
) -> tuple[Array, Array]:
    """`predict` from unprojected sites."""
    R_inv = np.linalg.inv(Kuu + sites.Lambda2)
    mean = Kus.T @ R_inv @ sites.lambda1  # (C26)
    return mean, K_s - Kus.T @ np.linalg.inv(Kuu) @ Kus + Kus.T @ R_inv @ Kus  # (C26)


def marginals(Kuu: Array, Kuf: Array, kdiag: Array, m: Array, S: Array) -> tuple[Array, Array]:
    """Means [N], without the mean function, and variances [N] at the data."""
    mean, cov = predict(Kuu, Kuf, np.diag(kdiag), m, S)
    return mean, np.diag(cov)


def kl_textbook(Kuu: Array, m: Array, S: Array) -> float:
    """KL[N(m, S) || N(0, Kuu)]."""
    return brute_force_kl(m, S, np.zeros(len(m)), Kuu)


def kl_unprojected(Kuu: Array, sites: TiedSites) -> float:
    """KL of q(u) from unprojected sites."""
    R = Kuu + sites.Lambda2
    R_inv = np.linalg.inv(R)
    log_ratio = np.linalg.slogdet(R)[1] - np.linalg.slogdet(Kuu)[1]
    quadratic = sites.lambda1 @ R_inv @ Kuu @ R_inv @ sites.lambda1
    return 0.5 * float(log_ratio + np.trace(R_inv @ Kuu) - len(Kuu) + quadratic)  # (C27)


def kl_whitened(sites: TiedSites) -> float:
    """KL of q(u) from whitened sites, which need no Kuu."""
    precision = np.eye(len(sites.lambda1)) + sites.Lambda2
    S_white = np.linalg.inv(precision)
    m_white = S_white @ sites.lambda1
    log_det = np.linalg.slogdet(precision)[1]
    return 0.5 * float(
        log_det + np.trace(S_white) - len(S_white) + m_white @ m_white
    )  # (C27), whitened


def tied_step(
    cols: Array, sites: TiedSites, mean: Array, g: Array, h: Array, rho: float, scale: float = 1.0
) -> TiedSites:
    """A step of size rho from a batch with `cols` [M, B], means p^T m, g and h [B]; scale = N /
    B.
    """
    lambda1 = (1 - rho) * sites.lambda1 + rho * scale * cols @ (g - 2.0 * h * mean)  # (C25)
    return TiedSites(
        lambda1, (1 - rho) * sites.Lambda2 - 2.0 * rho * scale * (cols * h) @ cols.T
    )  # (C25)


def step(
    Kuu: Array,
    Kuf: Array,
    kdiag: Array,
    sites: TiedSites,
    storage: str,
    expect: Expect,
    rho: float,
    prior_mean: Array | float = 0.0,
    scale: float = 1.0,
) -> TiedSites:
    """`tied_step` with Kuf, kdiag, prior_mean and `expect` of the batch."""
    mean, var = marginals(Kuu, Kuf, kdiag, *moments(Kuu, sites, storage))
    _, g, h = expect(mean + prior_mean, var)
    return tied_step(columns(Kuu, Kuf, storage), sites, mean, g, h, rho, scale)


def projected_bound(
    Kuu: Array,
    Kuf: Array,
    kdiag: Array,
    sites: TiedSites,
    expect: Expect,
    prior_mean: Array | float = 0.0,
    scale: float = 1.0,
) -> float:
    """ELBO of projected sites; they stay the same when the kernel or the inducing points move."""
    m, S = moments(Kuu, sites, "projected")
    mean, var = marginals(Kuu, Kuf, kdiag, m, S)
    return scale * float(np.sum(expect(mean + prior_mean, var).value)) - kl_textbook(Kuu, m, S)


def per_datum_bound(
    Kuu: Array,
    Kuf: Array,
    kdiag: Array,
    nu: Array,
    tau: Array,
    expect: Expect,
    prior_mean: Array | float = 0.0,
) -> float:
    """ELBO of the data's own centred nu and tau [N], projected anew by these Kuu and Kuf."""
    sites = tie(columns(Kuu, Kuf, "projected"), nu, tau)
    return projected_bound(Kuu, Kuf, kdiag, sites, expect, prior_mean)


def fixed_point(update: Callable[[TiedSites], TiedSites], M: int) -> TiedSites:
    """Sites, from none, that `update` changes by rounding alone.

    Raises:
        ValueError: no such sites within 2000 updates.
    """
    sites = no_sites(M)
    for _ in range(2000):
        previous, sites = sites, update(sites)
        change = max(np.abs(new - old).max() for new, old in zip(sites, previous, strict=True))
        if change <= 1e-14 * (1.0 + np.abs(sites.Lambda2).max()):
            return sites
    raise ValueError("no fixed point: take smaller or larger steps")


def run(
    Kuu: Array,
    Kuf: Array,
    kdiag: Array,
    expect: Expect,
    prior_mean: Array | float = 0.0,
    rho: float = 0.5,
) -> TiedSites:
    """Projected sites at the fixed point of full steps of size rho, taken in whitened storage."""

    def update(sites: TiedSites) -> TiedSites:
        return step(Kuu, Kuf, kdiag, sites, "whitened", expect, rho, prior_mean)

    return convert(Kuu, fixed_point(update, len(Kuu)), "whitened", "projected")
