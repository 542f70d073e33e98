"""Projections, sites and bases that the tests of the three routes share; each with what the
reference needs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from scipy import stats

from gpflow_decoupled.distributions import Base, base_variable
from gpflow_decoupled.expectations.fourier import cell_masses, convolve, expectation
from gpflow_decoupled.expectations.projections import Projections, Site
from gpflow_decoupled.likelihoods.bernoulli import logistic_site
from gpflow_decoupled.likelihoods.gpflow_sites import gaussian_site, student_t_site
from gpflow_decoupled.likelihoods.laplace import laplace_site
from tests.reference import affine_independent as reference
from tests.reference.grams import Array

N = 5
_RNG = np.random.default_rng(4)
KAPPA = np.array([1.0, -1.0, 2.5, -0.4, 7.0])
Y_0, TAU, NU = (
    _RNG.normal(size=N),
    np.array([0.5, 1.0, 2.0, 0.3, 1.3]),
    np.array([3.0, 5.0, 2.5, 10.0, 4.0]),
)


class SiteCase(NamedTuple):
    """A family of sites, its parameters [N], and the log density of site n in scipy."""

    make: Callable[..., Site]
    parameters: tuple[Array, ...]
    literal: Callable[[int, Array], Array]
    kink: Array

    def site(self, dtype: Any = tf.float64) -> Site:
        return self.make(*(tf.constant(part, dtype) for part in self.parameters))


SITES = {
    "logistic": SiteCase(
        logistic_site, (KAPPA,), lambda n, y: stats.logistic.logcdf(KAPPA[n] * y), np.zeros(N)
    ),
    "laplace": SiteCase(
        laplace_site,
        (Y_0, TAU),
        lambda n, y: -np.abs(y - Y_0[n]) / TAU[n] - np.log(2 * TAU[n]),
        Y_0,
    ),
    "student_t": SiteCase(
        partial(student_t_site, transform=True),
        (Y_0, TAU, NU),
        lambda n, y: stats.t.logpdf(y, NU[n], Y_0[n], TAU[n]),
        Y_0,
    ),
    "gaussian": SiteCase(
        gaussian_site, (Y_0, TAU), lambda n, y: stats.norm.logpdf(y, Y_0[n], TAU[n]), Y_0
    ),
}
SHAPES = {
    "normal": ((), (), ()),
    "laplace": ((), (), ()),
    "logistic": ((), (), ()),
    "skew_normal": ((-3.0,), (1.2,), (6.0,)),
    "generalized_normal": ((1.5,), (2.4,), (1.2,)),
    "student_t": ((8.0,), (12.0,), (20.0,)),
}


def shapes(name: str, D: int, dtype: Any = tf.float64) -> tf.Tensor:
    rows = np.array([SHAPES[name][d % 3] for d in range(D)], float).reshape(D, -1)
    return tf.constant(rows, dtype)


def projections(name: str, D: int, noise: bool = False, dtype: Any = tf.float64) -> Projections:
    rng = np.random.default_rng(D)
    alpha, beta, variance = (
        rng.normal(size=(N, D)),
        rng.normal(size=N),
        rng.uniform(0.1, 1.0, size=N),
    )
    alpha, beta, variance = (tf.constant(part, dtype) for part in (alpha, beta, variance))
    return Projections(alpha, beta, shapes(name, D, dtype), variance if noise else None)


def by_route(
    name: str, y: Projections, site: Site, route: str, size: int, **options: Any
) -> tf.Tensor:
    base = base_variable(name)
    return expectation(base, y, site, tf.reduce_max(base.tail(y.theta)), route, size, **options)


def lattice_masses(base: Base, y: Projections, R: float, K: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Values of y and their masses on the lattice [N, 2 K], before the variance is corrected; noise
    is one more term.
    """
    step = 2.0 * R * y.spread / K
    masses = cell_masses(base.cdf, y.alpha, y.theta, step, K)
    if y.noise is not None:
        normal, none = base_variable("normal"), tf.zeros([1, 0], y.alpha.dtype)
        masses = tf.concat(
            [masses, cell_masses(normal.cdf, tf.sqrt(y.noise)[:, None], none, step, K)], axis=1
        )
    return y.beta[:, None] + step[:, None] * tf.range(-K, K, dtype=y.alpha.dtype), convolve(masses)


def densities(name: str, D: int) -> list[reference.Density]:
    return [
        reference.standardised(reference.DENSITIES[name](SHAPES[name][d % 3])) for d in range(D)
    ]


def by_quadrature(
    name: str, case: SiteCase, y: Projections, count: int = N, **options: Any
) -> Array:
    factors = densities(name, y.alpha.shape[1])
    return np.array(
        [
            reference.expectation(
                lambda values, n=n: case.literal(n, values),
                factors,
                y.alpha[n].numpy(),
                float(y.beta[n]),
                case.kink[n],
                **options,
            )
            for n in range(count)
        ]
    )
