"""Ordered classes, such as stars."""

from __future__ import annotations

__all__ = ["Ordinal", "ordinal_sites"]

import gpflow.likelihoods as gl
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow import Parameter, set_trainable
from gpflow.base import MeanAndVariance, TensorType
from gpflow.quadrature import NDiagGHQuadrature

from ..errors import DataError
from ..expectations.projections import Site
from ..probability import tfb
from ..special import log_normal_cdf, normal_cdf
from ..summaries import short_repr
from .log_densities import scalar_expectations
from .parameters import classes, constant_parameter, parameter_per_site, positive_parameter
from .site_loss import QuadratureLoss, SiteDescription, site_labels

_NODES = 40  # of sites in the Lagrangian: to 1e-7 where the deviation of f is 2 sigma


class Ordinal(gl.ScalarLikelihood):
    """Grades 0, 1, ..., K with p(y > k) = Phi((f - e_k) / sigma), bin edges e_0 < ... < e_{K-1}.

    Chu & Ghahramani (2005), log-concave in f and accurate in the tails, where GPflow's `Ordinal`
    gives NaN. Predictions are closed forms, and expected log densities accurate to 1e-8
    where the deviation of f is at most 30 sigma.

    :param bin_edges: e [K], increasing: at f = e_k grades up to k have probability 1/2. They train;
        `gpflow.set_trainable(likelihood.bin_edges, False)` keeps them.
    :param sigma: the standard deviation of the noise on f, above 0; not trained, since the edges
        and the variance of the kernel are learned in its units.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        # grades 0, 1, 2 and 3
        model = CVIGP((X, grades), gpflow.kernels.Matern52(), Ordinal([-1.0, 0.0, 1.0]))
        fit(model)
        mean, variance = model.predict_y(Xnew)  # of the grade
        shares = model.likelihood.probabilities(*model.predict_f(Xnew))  # [N, 4]
    """

    def __init__(
        self, bin_edges: Parameter | npt.ArrayLike, sigma: float = 1.0, **kwargs: object
    ) -> None:
        kwargs.setdefault("quadrature", NDiagGHQuadrature(1, _NODES))
        super().__init__(**kwargs)
        edges = np.asarray(bin_edges, float)
        if (
            edges.ndim != 1
            or not len(edges)
            or not np.all(np.isfinite(edges))
            or np.any(np.diff(edges) <= 0.0)
        ):
            raise DataError(
                f"bin_edges={short_repr(bin_edges)}: pass finite numbers in increasing order, one"
                " fewer than grades."
            )
        given = isinstance(bin_edges, Parameter)
        self.bin_edges = bin_edges if given else Parameter(edges, transform=tfb.Ascending())
        self.num_bins = len(edges) + 1
        self.sigma = positive_parameter(sigma, "sigma")
        if not isinstance(sigma, Parameter):
            set_trainable(self.sigma, False)

    @property
    def middles(self) -> tf.Tensor:
        """Of the grades, [K + 1]: of the outermost ones 1 beyond their edge."""
        e = tf.convert_to_tensor(self.bin_edges)
        return tf.concat([e[:1] - 1.0, 0.5 * (e[1:] + e[:-1]), e[-1:] + 1.0], axis=0)

    def probabilities(self, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
        """The probabilities of the grades [..., K + 1] under f ~ N(Fmu, Fvar), [..., 1] each."""
        grades = tf.range(self.num_bins) + tf.zeros_like(Fmu, tf.int32)
        mean, spread = tf.convert_to_tensor(Fmu), self._total(Fvar)
        return tf.exp(self._grade_log_prob(mean, spread, grades))

    def edges_of(self, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Upper and lower edges of grades Y, of its shape; the only one twice where one is none."""
        grades, edges = tf.cast(Y, tf.int32), tf.convert_to_tensor(self.bin_edges)
        upper = tf.gather(edges, tf.minimum(grades, self.num_bins - 2))
        return upper, tf.gather(edges, tf.maximum(grades - 1, 0))

    def log_prob_between(
        self, f: tf.Tensor, Y: TensorType, deviation: tf.Tensor, upper: tf.Tensor, lower: tf.Tensor
    ) -> tf.Tensor:
        """log p(y | f) in nats for noise of a deviation, and the edges of Y by `edges_of`."""
        above, below = (upper - f) / deviation, (lower - f) / deviation
        first, last = Y == 0, Y == self.num_bins - 1
        # in the upper tail both cdfs round to 1: there the mirror image is used, Phi(b) - Phi(a) =
        # Phi(-a) - Phi(-b)
        mirrored = above + below > 0.0
        high, low = tf.where(mirrored, -below, above), tf.where(mirrored, -above, below)
        # the two outermost grades have one edge; any smaller number keeps the branch that they do
        # not take finite
        low = tf.where(first | last, high - 1.0, low)
        width = tf.where(first | last, tf.ones_like(above), (upper - lower) / deviation)
        # Phi(u) exp(u^2 / 2) grows with u: a ratio that rounds to 1 far from the edges is below it
        most = 0.5 * width * (low + high)
        scores = tf.stack([low, high, tf.where(first, above, -below)])  # in one call: it is long
        left, right, outermost = tf.unstack(log_normal_cdf(scores))
        inner = right + tf.math.log(-tf.math.expm1(tf.minimum(left - right, most)))
        return tf.where(first | last, outermost, inner)

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._grade_log_prob(tf.convert_to_tensor(F), tf.convert_to_tensor(self.sigma), Y)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(F, self.sigma)[0]

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(F, self.sigma)[1]

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return self._moments(Fmu, self._total(Fvar))

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(
            self._grade_log_prob(tf.convert_to_tensor(Fmu), self._total(Fvar), Y), axis=-1
        )

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return scalar_expectations(self, X, Fmu, Fvar, Y)

    def _total(self, Fvar: TensorType) -> tf.Tensor:
        """Standard deviation of f plus noise: E p(y > k) = Phi((m - e_k) / sqrt(sigma^2 + v))."""
        return tf.sqrt(tf.square(self.sigma) + Fvar)

    def _grade_log_prob(self, f: tf.Tensor, deviation: tf.Tensor, Y: TensorType) -> tf.Tensor:
        return self.log_prob_between(f, Y, deviation, *self.edges_of(Y))

    def _moments(self, f: TensorType, deviation: TensorType) -> MeanAndVariance:
        f = tf.convert_to_tensor(f)
        scores = (f[..., None] - tf.convert_to_tensor(self.bin_edges)) / tf.convert_to_tensor(
            deviation
        )[..., None]
        tails, heads = normal_cdf(scores), normal_cdf(-scores)
        # Cov = p(y > k) p(y <= j) for j <= k: all terms are positive, so that nothing cancels
        heads += 2.0 * tf.cumsum(heads, axis=-1, exclusive=True)
        return tf.reduce_sum(tails, axis=-1), tf.reduce_sum(tails * heads, axis=-1)


# ---
# Sites of grades.


def _ordinal_loss(likelihood: Ordinal, Y: TensorType) -> QuadratureLoss:
    """Log-concave loss -log [Phi(b) - Phi(a)], monotone for the first and last grade."""
    y = site_labels(Y)
    constant_parameter(likelihood.sigma, "The noise sigma", positive=True)
    zero, infinite = tf.zeros_like(y), np.inf * tf.ones_like(y)
    first, last = y == 0.0, y == likelihood.num_bins - 1.0

    def start(alpha: tf.Tensor) -> tf.Tensor:
        return tf.gather(likelihood.middles, tf.cast(y, tf.int32))

    return QuadratureLoss(
        likelihood,
        y,
        lower=tf.where(first, zero, -infinite),
        upper=tf.where(last, zero, infinite),
        start=start,
    )


def _ordinal_density(likelihood: Ordinal, Y: tf.Tensor) -> Site:
    """The log density with the deviation and both edges of each grade as its parameters."""
    sigma = parameter_per_site(likelihood.sigma, "The noise sigma", Y)
    return Site(likelihood.log_prob_between, (Y, sigma, *likelihood.edges_of(Y)))


def ordinal_sites(likelihood: Ordinal) -> SiteDescription:
    """The sites of a likelihood with its number of grades."""
    return SiteDescription(_ordinal_loss, _ordinal_density, classes(likelihood.num_bins))
