"""Site losses from an accurate expected log density."""

# Sites whose second derivative has a closed Fourier transform (docs/mathematics/affine.md), all
# normalised log densities, differentiable in their parameters:
#
# | site | log g(y) | parameters [N] |
# |---|---|---|
# | `bernoulli.logistic_site` | log sigma(kappa y) | kappa, of either sign |
# | `laplace.laplace_site` | -abs(y - y_0) / tau - log 2 tau | y_0, tau |
# | `gpflow_sites.student_t_site` | Student-t density of (y - y_0) / s, nu degrees | y_0, s, nu |
# | `gpflow_sites.gaussian_site` | normal density of y - y_0, deviation s | y_0, s |

from __future__ import annotations

__all__ = [
    "DensityBuilder", "Expansion", "ExpectedLoss", "Maximiser", "QuadratureLoss", "Reference",
    "SiteDescription", "SiteLoss", "SiteLossBuilder", "Slopes", "check_one_latent",
    "dual_objective", "log_normaliser", "site_by_density", "site_labels",
]  # fmt: skip

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow import likelihoods as gl
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.likelihoods import ScalarLikelihood
from gpflow.likelihoods.base import DEFAULT_NUM_GAUSS_HERMITE_POINTS
from numpy.polynomial.hermite_e import hermegauss

from ..errors import DataError
from ..expectations.peaked import peaked_rule
from ..expectations.projections import Site
from .parameters import NumberedLikelihood, Support, extreme_parameters

# ---
# The expected loss of one observation.


# | symbol | code | shape |
# |---|---|---|
# | f(h, sigma) = -E log p(y given eta), eta ~ N(h, sigma^2) | `SiteLoss.value` | [N, L] |
# | its first and second derivatives | `SiteLoss.expand` | [N, L] each |
# | S, the interval of the derivatives f_h | `SiteLoss.lower`, `SiteLoss.upper` | [N, L] each |
# | c, the least number with (-log p)'' >= -c | `SiteLoss.curvature` | [N, L] |
# | the maximum of (V15) and its place | `SiteLoss.maximiser` | [N, L] each |
#
# The Lagrangian dual maximises (V15), `dual_objective`, over (h, sigma) per site:
#
#   -f(h, sigma) + alpha h + lambda sigma_k (sigma - sigma_k / 2) - rho / 2 (sigma - sigma_k)^2
#
# with multipliers alpha, lambda, the deviation sigma_k where the dual was linearised, and a penalty
# rho. f is even in sigma, and jointly convex in (h, sigma) for log-concave likelihoods (Khan 2014,
# section 4).


def site_labels(Y: TensorType) -> tf.Tensor:
    """Y [N, L] in the default precision."""
    labels = tf.cast(tf.convert_to_tensor(Y), default_float())
    if labels.shape.rank != 2:
        raise DataError(
            f"Y has shape {labels.shape}; it must be [N, L], with one column per latent function:"
            " use Y[:, None]."
        )
    return labels


class Expansion(NamedTuple):
    """A site loss and its derivatives at one (h, sigma) per observation.

    Derivatives are of the value as computed, so that line searches and Newton steps agree.

    Example::

        at = site_loss(likelihood, Y).expand(h, sigma)
        newton_step = -at.d_h / at.d_hh
    """

    value: tf.Tensor
    """f [N, L], nats."""
    d_h: tf.Tensor
    """[N, L]; even in sigma, like `value`, `d_hh` and `d_ss`."""
    d_s: tf.Tensor
    """[N, L]; odd in sigma, like `d_hs`."""
    d_hh: tf.Tensor
    """[N, L]"""
    d_hs: tf.Tensor
    """[N, L]"""
    d_ss: tf.Tensor
    """[N, L]"""


class Maximiser(NamedTuple):
    """The maximum of `dual_objective`, its place, and the place's slopes in the multipliers.

    Example::

        best = site_loss(gpflow.likelihoods.Gaussian(), Y).maximiser(alpha, lam, sigma_k, rho)
        dual_value = tf.reduce_sum(best.value)
    """

    h: tf.Tensor
    """h* [N, L]"""
    sigma: tf.Tensor
    """sigma* [N, L]"""
    value: tf.Tensor
    """f^k* [N, L], nats."""
    d_h_d_alpha: tf.Tensor
    """[N, L]"""
    d_h_d_lam: tf.Tensor
    """[N, L]; sigma_k times the derivative of sigma* in alpha."""
    d_s_d_lam: tf.Tensor
    """[N, L]"""


class Reference(NamedTuple):
    """Gaussians N(centre, 1 / precision) whose expected losses are subtracted, (V30)."""

    loss: SiteLoss
    """The loss without them."""
    precision: tf.Tensor
    """[N, L]; zero where nothing is subtracted."""
    centre: tf.Tensor
    """[N, L]"""

    def expected_loss(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        """-E log N(x; centre, 1 / precision), x ~ N(h, sigma^2), nats [N, L]; 0 at precision 0."""
        squares = tf.square(h - self.centre) + tf.square(sigma)
        return 0.5 * self.precision * squares - log_normaliser(self.precision)


def log_normaliser(precision: tf.Tensor) -> tf.Tensor:
    """1/2 log(c / (2 pi)) of normal densities with precision c [...]; zero at c = 0."""
    known = precision > 0.0
    return tf.where(
        known, 0.5 * tf.math.log(tf.where(known, precision, 1.0) / (2.0 * math.pi)), 0.0
    )


class SiteLoss(ABC):
    """Expected losses f(h, sigma) = -E log p(y | eta), eta ~ N(h, sigma^2), of labels Y [N, L].

    Differentiable in h, sigma and the likelihood's Parameters.

    :param Y: labels [N, L].

    A subclass has `lower`, `upper`, `value` and `expand`; a `QuadratureLoss` needs less. Example::

        loss = site_loss(gpflow.likelihoods.Poisson(), Y)
        at = loss.expand(h, sigma)
        at.value, at.d_h, at.d_s  # [N, L] each
    """

    needs_penalty: bool = False
    """The dual objective has no maximum with rho = 0."""
    no_dual: str | None = None
    """Why the dual objective cannot be maximised, and the alternative; None if it can."""
    couples: bool = False
    """The loss of an observation is one function of all its latents, and the entries of `value` are
    shares of it; the dual does not fall apart into sites.
    """
    parts: tuple[SiteLoss, ...] = ()
    """The losses stacked in this one, if any."""
    reference: Reference | None = None
    """The Gaussians that the loss subtracts, as for a weight's prior, if any."""

    def __init__(self, Y: TensorType) -> None:
        self.Y = site_labels(Y)

    @property
    @abstractmethod
    def lower(self) -> tf.Tensor:
        """Lower end of S [N, L], or -inf."""

    @property
    @abstractmethod
    def upper(self) -> tf.Tensor:
        """Upper end of S [N, L], or inf."""

    @property
    def curvature(self) -> tf.Tensor:
        """The least c [N, L] >= 0 with (-log p)'' >= -c; zero if log-concave."""
        return tf.zeros_like(self.Y)  # (V20)

    @property
    def log_concave(self) -> bool:
        """True if `curvature` is zero for all Parameters."""
        return type(self).curvature is SiteLoss.curvature

    @property
    def penalised(self) -> tf.Tensor:
        """True where the dual objective has no maximum with rho = 0, [N, L]."""
        # also where S is one point: the row says nothing of eta
        return tf.convert_to_tensor(self.needs_penalty) | (self.lower == self.upper)

    @abstractmethod
    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        """The loss f [N, L] in nats at means h and standard deviations sigma [N, L], of any
        sign.
        """

    @abstractmethod
    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        """The loss and its derivatives in h and sigma, [N, L] each; arguments as `value`."""

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        """A start of Newton's method: h [N, L] with f_h about alpha [N, L] for small sigma."""
        return tf.zeros_like(alpha)

    def maximiser(
        self, alpha: tf.Tensor, lam: tf.Tensor, sigma_k: tf.Tensor, rho: tf.Tensor
    ) -> Maximiser | None:
        """Return the maximum of `dual_objective` in closed form, or None if there is none.

        :param alpha: multipliers of the means [N, L], inside S; `lam` of the variances [N, L].
        :param sigma_k: standard deviations where the dual was linearised [N, L].
        :param rho: weights of the penalty [N, L], at least 0; above 0 if `needs_penalty`.
        """
        return None

    def _constant(self, number: float) -> tf.Tensor:
        return tf.fill(tf.shape(self.Y), np.array(number, self.Y.dtype.as_numpy_dtype))


def dual_objective(
    value: tf.Tensor,
    h: tf.Tensor,
    sigma: tf.Tensor,
    alpha: tf.Tensor,
    lam: tf.Tensor,
    sigma_k: tf.Tensor,
    rho: tf.Tensor,
    kappa: tf.Tensor | None = None,
    h_k: tf.Tensor | None = None,
) -> tf.Tensor:
    """(V15) with a proximal term in h, at one (h, sigma) per observation; all [N, L].

    `kappa` weighs -1/2 (h - h_k)^2; for other symbols see the module.
    """
    linear = alpha * h + lam * sigma_k * (sigma - 0.5 * sigma_k)
    objective = linear - value - 0.5 * rho * tf.square(sigma - sigma_k)
    if kappa is not None:
        objective -= 0.5 * kappa * tf.square(h - h_k)
    return objective  # (V15)


# ---
# The description of a likelihood's sites.


# The likelihood is of the class for which the builder is declared, which no annotation can say.
SiteLossBuilder = Callable[[Any, TensorType], SiteLoss]
"""(likelihood, Y [N, L]) -> its loss."""
DensityBuilder = Callable[[Any, tf.Tensor], Site]
"""(likelihood, Y [N] of one latent function, or [N, 2] with a number) -> its log density."""


def check_one_latent(likelihood: gl.Likelihood) -> None:
    """Refuse likelihoods that are not a product of sites."""
    if not isinstance(likelihood, gl.ScalarLikelihood) or isinstance(
        likelihood, gl.SwitchedLikelihood
    ):
        raise DataError(
            f"{type(likelihood).__name__} has no sites: a site needs one latent function per"
            " observation and one density for all of them. Use a model that needs expected log"
            " densities alone, for example BasisGP or CVIGP."
        )


def site_by_density(likelihood: gl.ScalarLikelihood, Y: tf.Tensor) -> Site:
    """Return the site of any likelihood at labels Y [N], from its log density.

    Y of a `NumberedLikelihood` is [N, 2]. Without a Fourier transform.
    """
    found = {
        name: value for name, value in vars(likelihood).items() if isinstance(value, Parameter)
    }
    scalars = {name: value for name, value in found.items() if int(np.prod(value.shape)) == 1}

    labels = (Y,) if len(Y.shape) == 1 else tuple(tf.unstack(Y, num=2, axis=1))

    def smooth(f: tf.Tensor, *columns: tf.Tensor) -> tf.Tensor:
        substituted = copy.copy(likelihood)
        for name, column in zip(scalars, columns[len(labels) :]):
            object.__setattr__(substituted, name, column)  # past the tracking of tf.Module
        label = columns[0] if len(labels) == 1 else tf.concat(columns[:2], axis=-1)
        return substituted._scalar_log_prob(None, f, label)

    rows = tuple(
        tf.reshape(tf.convert_to_tensor(value), [-1]) + tf.zeros_like(labels[0])
        for value in scalars.values()
    )
    return Site(smooth=smooth, parameters=(*labels, *rows))


class SiteDescription(NamedTuple):
    """The sites of a likelihood; declared once, found by `registry.site_description`."""

    loss: SiteLossBuilder | None = None
    """Builds the expected loss under a Gaussian; None if its slopes' range is unknown."""
    density: DensityBuilder = site_by_density
    """Builds the log density as a function of f, with a Fourier transform if there is one."""
    support: Support | None = None
    """Valid labels; None is all numbers."""


# ---
# The site loss of any scalar likelihood.


End: TypeAlias = TensorType | Callable[[], TensorType]
"""A number or an array that broadcasts to [N, L], or a function that computes it."""
Slopes: TypeAlias = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""eta [Q, N, L] -> first and second derivative of -log p(y | eta), of the same shape."""


class QuadratureLoss(SiteLoss):
    """The site loss f = sum_q w_q l(h + sigma z_q), l(eta) = -log p(y | eta), by quadrature.

    Nodes and weights are the likelihood's. With `centre` and `width` of the bend of l, nodes follow
    the narrower of Gaussian and likelihood, for errors near 1e-9 nats. Cost: N L Q evaluations of
    l; Q = 128 with a width.

    :param likelihood: with one latent function per observation and constant Parameters.
    :param Y: labels [N, L].
    :param lower: lower end of S, the range of l', [N, L]; this, `upper`, `curvature`, `width` and
        `centre` may be functions of nothing, for what depends on Parameters.
    :param upper: upper end of S.
    :param curvature: c >= 0 with l'' >= -c; 0 if log-concave.
    :param slopes: l' and l'' at eta [Q, N, L]; by default automatic differentiation.
    :param start: alpha [N, L] -> h with l'(h) near alpha; by default zero.
    :param width: distance of l's nearest complex singularity from the real line; by default nodes
        are fixed.
    :param centre: its place on the real line; by default zero.

    Example, p(y | f) = 1 / (pi cosh(y - f)), with slopes tanh(f - y) and a pole at y + i pi/2::

        loss = QuadratureLoss(Sech(), Y, lower=-1.0, upper=1.0, width=np.pi / 2, centre=Y)
        loss.expand(h, sigma).d_h
    """

    def __init__(
        self,
        likelihood: gl.ScalarLikelihood,
        Y: TensorType,
        lower: End,
        upper: End,
        curvature: End = 0.0,
        *,
        slopes: Slopes | None = None,
        start: Callable[[tf.Tensor], tf.Tensor] | None = None,
        width: End | None = None,
        centre: End = 0.0,
    ) -> None:
        super().__init__(Y)
        check_one_latent(likelihood)
        self._points = getattr(likelihood.quadrature, "n_gh", DEFAULT_NUM_GAUSS_HERMITE_POINTS)
        self._ends = (lower, upper, curvature)
        self._width, self._centre = width, centre
        self._likelihood = likelihood
        self._slopes = self._automatic_slopes if slopes is None else slopes
        self._start = start
        if tf.executing_eagerly():
            self._check()

    def _check(self) -> None:
        if not np.all(np.asarray(self.lower) <= np.asarray(self.upper)):
            raise DataError(
                "lower must be below upper: they are the ends of the interval of the derivative of"
                " -log p(y | f) in f."
            )
        if not np.all((np.asarray(self.curvature) >= 0) & np.isfinite(np.asarray(self.curvature))):
            raise DataError(
                "curvature must be 0 or more and finite: the second derivative of -log p(y | f) in"
                " f is at least -curvature. " + extreme_parameters(self._likelihood)
            )
        width = 1.0 if self.width is None else np.asarray(self.width)
        if not np.all((width > 0) & np.isfinite(width)):
            raise DataError(
                "width must be above 0 and finite: the distance over which log p(y | f) bends as a"
                " function of f."
            )

    def _array(self, end: End) -> tf.Tensor:
        return tf.cast(end() if callable(end) else end, self.Y.dtype) * tf.ones_like(self.Y)

    @property
    def lower(self) -> tf.Tensor:
        return self._array(self._ends[0])

    @property
    def upper(self) -> tf.Tensor:
        return self._array(self._ends[1])

    @property
    def curvature(self) -> tf.Tensor:
        return self._array(self._ends[2])

    @property
    def width(self) -> tf.Tensor | None:
        """Distance over which l bends [N, L]; None for fixed nodes."""
        return None if self._width is None else self._array(self._width)

    @property
    def centre(self) -> tf.Tensor:
        """Where l bends [N, L]."""
        return self._array(self._centre)

    def _rule(self, h: tf.Tensor, sigma: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if self.width is not None:
            return peaked_rule(h, sigma, self.centre, self.width, self._points)
        nodes, weights = (
            tf.constant(part, self.Y.dtype)[:, None, None] for part in hermegauss(self._points)
        )
        return nodes, weights / tf.reduce_sum(weights)

    def _pointwise(self, eta: tf.Tensor) -> tf.Tensor:
        return -self._likelihood._scalar_log_prob(tf.zeros([1, 0], self.Y.dtype), eta, self.Y)

    def _automatic_slopes(self, eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as outer:
            outer.watch(eta)
            with tf.GradientTape() as inner:
                inner.watch(eta)
                total = self._pointwise(eta)
            first = inner.gradient(total, eta, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return first, outer.gradient(first, eta, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        z, w = self._rule(h, sigma)
        return tf.reduce_sum(w * self._pointwise(h + sigma * z), axis=0)  # (V2)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        z, w = self._rule(h, sigma)
        eta = h + sigma * z
        first, second = (w * slope for slope in self._slopes(eta))
        # by the chain rule each derivative in sigma multiplies the term of a node by z_q
        terms = (w * self._pointwise(eta), first, z * first, second, z * second, z**2 * second)
        return Expansion(*(tf.reduce_sum(term, axis=0) for term in terms))  # (V2)

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        return super().start(alpha) if self._start is None else self._start(alpha)


# ---


class ExpectedLoss(SiteLoss):
    """The site loss -E log p(y | eta) of a likelihood with accurate `variational_expectations`.

    Derivatives are automatic ones, at four times the cost of a value.

    :param likelihood: its `_variational_expectations` are of any shape, and twice differentiable.
    :param Y: as the likelihood takes it, [N, L] or with a column of numbers.
    :param ends: returns both ends of S [N, L]; a function, since Parameters change. Equal ends, of
        a row that says nothing of eta, leave it out of the dual.
    :param start: alpha [N, L] -> h [N, L] with about this slope.
    :param curvature: returns c [N, L], see `SiteLoss.curvature`; by default log-concave.

    Example::

        ends = lambda: (-np.inf * tf.ones_like(Y), np.inf * tf.ones_like(Y))
        loss = ExpectedLoss(likelihood, Y, ends, lambda alpha: Y + alpha)
        loss.value(h, sigma)  # [N, L], nats
    """

    def __init__(
        self,
        likelihood: ScalarLikelihood,
        Y: TensorType,
        ends: Callable[[], tuple[tf.Tensor, tf.Tensor]],
        start: Callable[[tf.Tensor], tf.Tensor],
        curvature: Callable[[], tf.Tensor] | None = None,
    ) -> None:
        numbered = isinstance(likelihood, NumberedLikelihood)
        y, *number = likelihood.split(Y) if numbered else (Y,)
        super().__init__(y)
        # a row [1] or [2] for each latent
        self._rows = tf.stack([self.Y, *(one + tf.zeros_like(self.Y) for one in number)], axis=-1)
        self._likelihood, self._ends, self._start = likelihood, ends, start
        self._curvature = curvature

    @property
    def lower(self) -> tf.Tensor:
        return self._ends()[0]

    @property
    def upper(self) -> tf.Tensor:
        return self._ends()[1]

    @property
    def curvature(self) -> tf.Tensor:
        return super().curvature if self._curvature is None else self._curvature()

    @property
    def log_concave(self) -> bool:
        return self._curvature is None

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        moments = tf.convert_to_tensor(h)[..., None], tf.square(sigma)[..., None]
        return -self._likelihood._variational_expectations(None, *moments, self._rows)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        zero = tf.UnconnectedGradients.ZERO
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as outer:
            outer.watch([h, sigma])
            with tf.GradientTape(watch_accessed_variables=False) as inner:
                inner.watch([h, sigma])
                value = self.value(h, sigma)
            d_h, d_s = inner.gradient(value, [h, sigma], unconnected_gradients=zero)
        d_hh, d_hs = outer.gradient(d_h, [h, sigma], unconnected_gradients=zero)
        d_ss = outer.gradient(d_s, sigma, unconnected_gradients=zero)
        return Expansion(value, d_h, d_s, d_hh, d_hs, d_ss)

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        return self._start(alpha)
