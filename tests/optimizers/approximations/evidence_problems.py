"""Small full GPs with likelihoods that the references of EP and Laplace know."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from gpflow import likelihoods as gl

from gpflow_decoupled.likelihoods import BernoulliLogit, BernoulliProbit
from gpflow_decoupled.models import CVIGP
from tests.models.conjugate_problems import NOISE, X, conjugate_model, student
from tests.reference import conjugate as conj
from tests.reference import likelihoods as lik

CASES: dict[str, tuple[Callable[[], gl.Likelihood], lik.Likelihood]] = {
    "Gaussian": (lambda: gl.Gaussian(NOISE), lik.gaussian(NOISE)),
    "probit": (BernoulliProbit, lik.bernoulli_probit()),
    "logit": (BernoulliLogit, lik.bernoulli_logit()),
    "Poisson": (gl.Poisson, lik.poisson()),
    "Student-t": (student, conj.student_t(3.0, 0.3)),
    "exponential": (gl.Exponential, lik.exponential()),
}


def evidence_model(name: str) -> CVIGP:
    """One latent, sites of zero, a linear mean function; one label under Student-t noise is an
    outlier.
    """
    rng, Y = np.random.default_rng(1), None
    if name in ("probit", "logit"):
        Y = rng.integers(0, 2, size=(len(X), 1)).astype(float)
    if name == "exponential":
        Y = rng.exponential(2.0, size=(len(X), 1))
    if name == "Student-t":
        Y = rng.normal(size=(len(X), 1)) + 4.0 * (np.arange(len(X)) == 4)[:, None]
    return conjugate_model(CASES[name][0](), Y=Y)


def labels_of(model: CVIGP) -> np.ndarray:
    """The labels [N] of the only latent."""
    return model.data[1].numpy()[:, 0]


def sites_of(model: CVIGP) -> tuple[np.ndarray, np.ndarray]:
    """Copies of nu and tau."""
    return model.basis.nu.numpy().copy(), model.basis.tau.numpy().copy()
