"""Topic models, slowly: phi is stored, sums are loops, expectations are products of one-dimensional
quadratures.

Shapes: counts n [D, V], gamma [D, K], topic parameters lam [K, V], phi [D, V, K].
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy import optimize
from scipy.special import digamma, gammaln, logsumexp, polygamma

from .grams import Array

__all__ = [
    "best_gaussian", "best_logistic_dirichlet", "bound", "document_bound_dirichlet",
    "document_bound_gaussian", "dirichlet_log_density_of_posterior", "expected_lse", "gammas",
    "lambdas", "log_evidence", "mean_log", "phis", "stochastic_topics", "tilted_lse",
]  # fmt: skip


def mean_log(c: Array) -> Array:
    """E log of each component of Dir(c), one row at a time."""
    return np.array(
        [[digamma(value) - digamma(row.sum()) for value in row] for row in np.atleast_2d(c)]
    )  # (T1)


def phis(n: Array, gamma: Array, lam: Array) -> Array:
    """The best phi [D, V, K]."""
    theta, beta = mean_log(gamma), mean_log(lam)
    phi = np.zeros((*n.shape, len(lam)))
    for d, w in itertools.product(*map(range, n.shape)):
        logits = theta[d] + beta[:, w]
        phi[d, w] = np.exp(logits - logsumexp(logits))  # (T2)
    return phi


def gammas(n: Array, phi: Array, alpha: Array) -> Array:
    return np.array(
        [alpha + sum(n[d, w] * phi[d, w] for w in range(n.shape[1])) for d in range(len(n))]
    )  # (T2)


def lambdas(n: Array, phi: Array, eta: float) -> Array:
    D, V, K = phi.shape
    return np.array(
        [[eta + sum(n[d, w] * phi[d, w, k] for d in range(D)) for w in range(V)] for k in range(K)]
    )  # (T2)


def stochastic_topics(
    n: Array, phi: Array, lam: Array, eta: float, batch: list[int], rho: float
) -> Array:
    """lambda after one step on the documents `batch`."""
    estimate = eta + len(n) / len(batch) * (lambdas(n[batch], phi[batch], 0.0))  # (T4)
    return (1.0 - rho) * lam + rho * estimate  # (T4)


def _log_beta(c: Array) -> float:
    return float(sum(gammaln(c)) - gammaln(sum(c)))


def _minus_kl(a: Array, c: Array) -> float:
    return _log_beta(c) - _log_beta(a) + float(((a - c) * mean_log(c)[0]).sum())


def bound(n: Array, phi: Array, gamma: Array, lam: Array, alpha: Array, eta: float) -> float:
    """F at any phi, gamma and lambda, term by term."""
    theta, beta = mean_log(gamma), mean_log(lam)
    total = sum(_minus_kl(alpha, row) for row in gamma) + sum(
        _minus_kl(np.full(len(row), eta), row) for row in lam
    )
    for d, w, k in itertools.product(*map(range, phi.shape)):
        if phi[d, w, k] > 0.0:
            total += (
                n[d, w] * phi[d, w, k] * (theta[d, k] + beta[k, w] - np.log(phi[d, w, k]))
            )  # (T3)
    return total


def log_evidence(n: Array, alpha: Array, eta: float) -> float:
    """log p(words) by enumerating every assignment of every word: only for a handful of words."""
    words = [
        (d, w) for d, w in itertools.product(*map(range, n.shape)) for _ in range(int(n[d, w]))
    ]
    K, terms = len(alpha), []
    for z in itertools.product(range(K), repeat=len(words)):
        in_document, in_topic = np.zeros((len(n), K)), np.zeros((K, n.shape[1]))
        for (d, w), k in zip(words, z):
            in_document[d, k] += 1
            in_topic[k, w] += 1
        prior = np.full(n.shape[1], eta)
        terms.append(
            sum(_log_beta(alpha + row) - _log_beta(alpha) for row in in_document)
            + sum(_log_beta(prior + row) - _log_beta(prior) for row in in_topic)
        )
    return float(logsumexp(terms))


# correlated topics, one document: counts n [V], topics by beta = E log beta [K, V]


def expected_lse(m: Array, V: Array, order: int = 16) -> float:
    """E log-sum-exp under N(m, V) by a product of Gauss-Hermite rules."""
    x, weight = np.polynomial.hermite_e.hermegauss(order)
    points = np.array(list(itertools.product(x, repeat=len(m))))
    chances = np.prod(
        np.array(list(itertools.product(weight / weight.sum(), repeat=len(m)))), axis=1
    )
    return float(chances @ logsumexp(m + points @ np.linalg.cholesky(V).T, axis=1))


def tilted_lse(m: Array, V: Array, a: Array) -> float:
    """A bound on it: a^T m + log of the mean of sum_k exp(eta_k - a^T eta), each of which is
    log-normal.
    """
    terms = []
    for k in range(len(m)):
        direction = np.eye(len(m))[k] - a
        terms.append(direction @ m + 0.5 * direction @ V @ direction)
    return float(a @ m + logsumexp(terms))


def document_bound_gaussian(
    n: Array, m: Array, V: Array, lse: float, beta: Array, mu: Array, Sigma: Array
) -> float:
    """(T5) of q(eta) = N(m, V) at the best phi, given E lse or a bound on it."""
    words = sum(n[w] * logsumexp(m + beta[:, w]) for w in range(len(n)))
    Q, r = np.linalg.inv(Sigma), m - mu
    kl = 0.5 * (np.trace(Q @ V) + r @ Q @ r - len(m) - np.linalg.slogdet(Q @ V)[1])
    return float(words - n.sum() * lse - kl)  # (T5)


def best_gaussian(
    n: Array, beta: Array, mu: Array, Sigma: Array, diagonal: bool = False
) -> tuple[Array, Array, float]:
    """m, V and the bound at the optimum of (T5) with the tilted E lse, by BFGS over m, a root of V,
    and a.
    """
    K = len(mu)
    lower = np.diag_indices(K) if diagonal else np.tril_indices(K)

    def bound_at(x: Array) -> tuple[Array, Array, float]:
        root = np.zeros((K, K))
        root[lower] = x[K:-K]
        m, V, a = x[:K], root @ root.T, np.exp(x[-K:] - logsumexp(x[-K:]))
        return m, V, document_bound_gaussian(n, m, V, tilted_lse(m, V, a), beta, mu, Sigma)

    start = np.concatenate([mu, 0.5 * np.eye(K)[lower], np.zeros(K)])
    found = optimize.minimize(lambda x: -bound_at(x)[2], start, tol=1e-9)
    return bound_at(found.x)


def dirichlet_log_density_of_posterior(c: Array, mu: Array, Sigma: Array) -> float:
    """(T8): E_Dir(c) of the log density of a logistic normal on the simplex, additive log-ratios to
    the last component.
    """
    Q, K = np.linalg.inv(Sigma), len(c)
    e = digamma(c[:-1]) - digamma(c[-1]) - mu
    C = np.diag(polygamma(1, c[:-1])) + polygamma(1, c[-1]) * np.ones((K - 1, K - 1))
    log_det = np.linalg.slogdet(2.0 * np.pi * Sigma)[1]
    return float(
        -0.5 * (e @ Q @ e + np.trace(Q @ C)) - 0.5 * log_det - mean_log(c)[0].sum()
    )  # (T8)


def document_bound_dirichlet(n: Array, c: Array, beta: Array, mu: Array, Sigma: Array) -> float:
    """The bound of one document with q(theta) = Dir(c) and a logistic-normal prior, at the best
    phi.
    """
    theta = mean_log(c)[0]
    words = sum(n[w] * logsumexp(theta + beta[:, w]) for w in range(len(n)))
    entropy = _log_beta(c) - float(((c - 1.0) * theta).sum())
    return words + dirichlet_log_density_of_posterior(c, mu, Sigma) + entropy


def best_logistic_dirichlet(n: Array, beta: Array, mu: Array, Sigma: Array) -> tuple[Array, float]:
    """c and the bound at the optimum, by BFGS over log c."""
    start = np.zeros(len(mu) + 1) + np.log(1.0 + n.sum() / (len(mu) + 1))
    found = optimize.minimize(
        lambda x: -document_bound_dirichlet(n, np.exp(x), beta, mu, Sigma), start, tol=1e-11
    )
    return np.exp(found.x), -found.fun
