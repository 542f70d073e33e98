"""Exponential families in natural and expectation parameters, for factor graphs."""

from __future__ import annotations

__all__ = [
    "Belief", "Beta", "Categorical", "Dirichlet", "Family", "Gamma", "Gaussian", "InverseGamma",
    "LogProbFamily", "Natural", "dirichlet_fisher_solve", "dirichlet_log_mean",
    "dirichlet_log_partition",
]  # fmt: skip

import math

import numpy.typing as npt
import tensorflow as tf

from ..errors import DataError
from ..linalg.cholesky import cholesky
from ..linalg.triangular import inverse, lower_gram, lower_root_gram, solve
from ..linalg.whitening import root_from_precision
from ..probability import tfp
from ..special import trigamma, trigamma_defect, trigamma_excess
from .family import Belief, Family, LogProbFamily, Natural, as_float, as_positive

# ---
# Functions of Dirichlet concentrations c [..., K].


def dirichlet_log_partition(c: tf.Tensor) -> tf.Tensor:
    """Log partition function sum_k log Gamma(c_k) - log Gamma(sum_k c_k) of Dirichlet densities.

    For concentrations c [..., K] above 0; [...] in nats.

    Example::

        dirichlet_log_partition(tf.constant([1.0, 1.0, 1.0]))        # -log 2
    """
    return tf.reduce_sum(tf.math.lgamma(c), axis=-1) - tf.math.lgamma(tf.reduce_sum(c, axis=-1))


def dirichlet_log_mean(c: tf.Tensor) -> tf.Tensor:
    """E log theta = psi(c) - psi(sum_k c_k) [..., K] of Dirichlet densities, psi the digamma
    function.

    For concentrations c [..., K] above 0.

    Example::

        dirichlet_log_mean(tf.constant([2.0, 1.0]))                  # [-1/2, -3/2]
    """
    return tf.math.digamma(c) - tf.math.digamma(tf.reduce_sum(c, axis=-1, keepdims=True))


def dirichlet_fisher_solve(c: tf.Tensor, g: tf.Tensor) -> tf.Tensor:
    """Solve I(c) x = g with the Fisher matrix of a Dirichlet, for c and g [..., K].

    I(c) = diag psi'(c) - psi'(c_0), c_0 the sum; the Sherman-Morrison formula, exact for large
    concentrations.

    Example::

        g = tf.constant([1.0, 0.0, 0.0], tf.float64)
        x = dirichlet_fisher_solve(tf.constant([2.0, 3.0, 5.0], tf.float64), g)
    """
    total = tf.reduce_sum(c, axis=-1, keepdims=True)
    scaled = g / trigamma(c)
    room = tf.reduce_sum(trigamma_defect(c), axis=-1, keepdims=True) - trigamma_defect(total)
    return scaled + tf.reduce_sum(scaled, axis=-1, keepdims=True) / (room * trigamma(c))  # (C35)


# ---
# The Beta family.


class Beta(Family):
    """Beta densities with concentrations c_1, c_0: lambda = (c_1 - 1, c_0 - 1).

    The coefficients of log z and log(1 - z); Dirichlet densities of two classes.

    Example::

        natural = Beta().natural(concentration1=2.0, concentration0=5.0)
        log_z, log_rest = Beta().expectation(natural)                # E log z, E log(1 - z)
    """

    statistics = ("log z", "log(1 - z)")
    ranks = (0, 0)

    def natural(self, concentration1: npt.ArrayLike, concentration0: npt.ArrayLike) -> Natural:
        """Natural parameters of two arrays [...] above 0, named as in `tfd.Beta`."""
        c_1 = as_positive("concentration1 of a Beta", concentration1)
        c_0 = as_positive("concentration0 of a Beta", concentration0)
        return c_1 - 1.0 + 0.0 * c_0, c_0 - 1.0 + 0.0 * c_1

    def distribution(self, natural: Natural) -> tfp.distributions.Distribution:
        return tfp.distributions.Beta(natural[0] + 1.0, natural[1] + 1.0)

    def log_partition(self, natural: Natural) -> tf.Tensor:
        return dirichlet_log_partition(_stack(natural) + 1.0)

    def expectation(self, natural: Natural) -> Natural:
        """(E log z, E log(1 - z)), [...] each."""
        return _split(dirichlet_log_mean(_stack(natural) + 1.0))

    def sufficient(self, z: tf.Tensor) -> Natural:
        """(log z, log(1 - z)), of the shape of z."""
        return tf.math.log(z), tf.math.log1p(-z)

    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        return _split(dirichlet_fisher_solve(_stack(natural) + 1.0, _stack(gradient)))  # (C35)

    def in_domain(self, natural: Natural) -> tf.Tensor:
        return (natural[0] > -1.0) & (natural[1] > -1.0)


def _stack(pair: Natural) -> tf.Tensor:
    return tf.stack(pair, axis=-1)


def _split(stacked: tf.Tensor) -> Natural:
    return stacked[..., 0], stacked[..., 1]


# ---
# The categorical family.


class Categorical(Family):
    """One of K classes, as a one-hot vector z [..., K]: lambda = (logits [..., K],).

    mu are the class probabilities. A constant added to the logits changes nothing, so messages may
    be unnormalised log weights. Samples are not differentiable.

    Example::

        natural = Categorical().natural(logits=[0.0, 1.0, -1.0])
        (probabilities,) = Categorical().expectation(natural)        # [3]
    """

    statistics = ("z",)
    ranks = (1,)
    reparameterized = False

    def natural(self, logits: npt.ArrayLike) -> Natural:
        """Natural parameters of `logits` [..., K], K >= 2."""
        tensor = as_float("the logits of a Categorical", logits)
        if tensor.shape.rank == 0 or tensor.shape[-1] == 1:
            raise DataError(
                f"the logits of a Categorical have shape {tuple(tensor.shape)} and need [..., K], K"
                " >= 2."
            )
        return (tensor,)

    def distribution(self, natural: Natural) -> tfp.distributions.Distribution:
        return tfp.distributions.OneHotCategorical(logits=natural[0], dtype=natural[0].dtype)

    def log_partition(self, natural: Natural) -> tf.Tensor:
        return tf.reduce_logsumexp(natural[0], axis=-1)

    def expectation(self, natural: Natural) -> Natural:
        """The class probabilities ([..., K],)."""
        return (tf.nn.softmax(natural[0], axis=-1),)

    def sufficient(self, z: tf.Tensor) -> Natural:
        return (z,)

    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        """Solve (diag p - p p^T) x = g [..., K], g of sum 0: x = g / p."""
        return (tf.math.divide_no_nan(gradient[0], tf.nn.softmax(natural[0], axis=-1)),)

    def in_domain(self, natural: Natural) -> tf.Tensor:
        return tf.reduce_all(tf.math.is_finite(natural[0]), axis=-1)


# ---
# The Dirichlet family.


class Dirichlet(Family):
    """Dirichlet densities with concentrations c [..., K]: lambda = (c - 1,).

    `concentrations` has the same mathematics as functions of c.

    Example::

        natural = Dirichlet().natural(concentration=[1.0, 2.0, 3.0])
        (log_mean,) = Dirichlet().expectation(natural)               # E log theta, [3]
    """

    statistics = ("log theta",)
    ranks = (1,)

    def natural(self, concentration: npt.ArrayLike) -> Natural:
        """Natural parameters of `concentration` [..., K] above 0, K >= 2."""
        c = as_positive("the concentration of a Dirichlet", concentration)
        if c.shape.rank == 0 or c.shape[-1] == 1:
            raise DataError(
                f"the concentration of a Dirichlet has shape {tuple(c.shape)} and needs [..., K], K"
                " >= 2."
            )
        return (c - 1.0,)

    def distribution(self, natural: Natural) -> tfp.distributions.Distribution:
        return tfp.distributions.Dirichlet(natural[0] + 1.0)

    def log_partition(self, natural: Natural) -> tf.Tensor:
        return dirichlet_log_partition(natural[0] + 1.0)

    def expectation(self, natural: Natural) -> Natural:
        """(E log theta [..., K],)."""
        return (dirichlet_log_mean(natural[0] + 1.0),)

    def sufficient(self, z: tf.Tensor) -> Natural:
        """(log z,) for z [..., K] on the simplex."""
        return (tf.math.log(z),)

    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        return (dirichlet_fisher_solve(natural[0] + 1.0, gradient[0]),)  # (C35)

    def in_domain(self, natural: Natural) -> tf.Tensor:
        return tf.reduce_all(natural[0] > -1.0, axis=-1)


# ---
# The Gamma family.


class Gamma(Family):
    """Gamma densities with shape a and rate b: lambda = (a - 1, -b), for log z and z, [...] each.

    Example::

        natural = Gamma().natural(shape=2.0, rate=0.5)
        log_mean, mean = Gamma().expectation(natural)                # psi(2) - log 0.5, and 4
    """

    statistics = ("log z", "z")
    ranks = (0, 0)

    def natural(self, shape: npt.ArrayLike, rate: npt.ArrayLike) -> Natural:
        """Natural parameters of `shape` [...] and `rate` [...], both above 0."""
        a, b = as_positive("the shape of a Gamma", shape), as_positive("the rate of a Gamma", rate)
        return a - 1.0 + 0.0 * b, -b + 0.0 * a

    @staticmethod
    def shape_and_rate(natural: Natural) -> tuple[tf.Tensor, tf.Tensor]:
        """(a, b), [...] each."""
        return natural[0] + 1.0, -natural[1]

    def distribution(self, natural: Natural) -> tfp.distributions.Distribution:
        return tfp.distributions.Gamma(*self.shape_and_rate(natural))

    def log_partition(self, natural: Natural) -> tf.Tensor:
        a, b = self.shape_and_rate(natural)
        return tf.math.lgamma(a) - a * tf.math.log(b)

    def expectation(self, natural: Natural) -> Natural:
        """(E log z, E z), [...] each."""
        a, b = self.shape_and_rate(natural)
        return tf.math.digamma(a) - tf.math.log(b), a / b

    def sufficient(self, z: tf.Tensor) -> Natural:
        """(log z, z), of the shape of z."""
        return tf.math.log(z), z

    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        (a, b), (g_1, g_2) = self.shape_and_rate(natural), gradient
        d = trigamma_excess(a)
        return (a * g_1 - b * g_2) / d, b * (b * trigamma(a) * g_2 - g_1) / d  # (C33)

    def in_domain(self, natural: Natural) -> tf.Tensor:
        a, b = self.shape_and_rate(natural)
        return (a > 0.0) & (b > 0.0)


# ---
# The multivariate Gaussian family.


_ASYMMETRY = 1e-5
"""Relative asymmetry of a covariance that counts as round-off."""


class Gaussian(Family):
    """Normal densities N(m, V) in M dimensions: lambda = (V^-1 m [..., M], -V^-1 / 2 [..., M, M]).

    The expectation parameters are mu = (m, V + m m^T). Methods cost M^3 per member of the batch.

    Example::

        natural = Gaussian().natural(mean=[0.0, 1.0], covariance=[[2.0, 0.5], [0.5, 1.0]])
        m, second_moment = Gaussian().expectation(natural)           # [2] and [2, 2]
    """

    statistics = ("z", "z z^T")
    ranks = (1, 2)

    def natural(self, mean: npt.ArrayLike, covariance: npt.ArrayLike) -> Natural:
        """Natural parameters of `mean` [..., M], positive definite `covariance` [..., M, M]."""
        m, V = (
            as_float("the mean of a Gaussian", mean),
            as_float("the covariance of a Gaussian", covariance),
        )
        if m.shape.rank < 1 or V.shape.rank < 2 or not V.shape[-1] == V.shape[-2] == m.shape[-1]:
            raise DataError(
                "a Gaussian has a mean [..., M] and a covariance [..., M, M]; here they have"
                f" shapes {tuple(m.shape)} and {tuple(V.shape)}. A number is a vector with M = 1."
            )
        gap, size = (
            tf.reduce_max(tf.abs(A), axis=[-2, -1]) for A in (V - tf.linalg.matrix_transpose(V), V)
        )
        if tf.executing_eagerly() and tf.reduce_any(gap > _ASYMMETRY * size):
            raise DataError(
                "the covariance of a Gaussian is not symmetric; pass 0.5 * (V + V.T) if that is"
                " what was meant."
            )
        factor = cholesky(V)
        if tf.executing_eagerly() and not factor.ok:
            raise DataError(
                "the covariance of a Gaussian is not positive definite; add to its diagonal."
            )
        precision = lower_root_gram(inverse(factor.chol))
        return tf.linalg.matvec(precision, m), -0.5 * precision + tf.zeros_like(m)[..., None]

    def mean_and_covariance(self, natural: Natural) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean m [..., M] and covariance V [..., M, M]."""
        mean, root = self._mean_and_root(natural)
        return mean, lower_gram(root)

    def distribution(self, natural: Natural) -> tfp.distributions.Distribution:
        return tfp.distributions.MultivariateNormalTriL(*self._mean_and_root(natural))

    def log_partition(self, natural: Natural) -> tf.Tensor:
        chol = cholesky(-2.0 * natural[1]).chol
        half = solve(chol, natural[0][..., None])[..., 0]
        log_diagonal = tf.math.log(tf.linalg.diag_part(chol))
        return tf.reduce_sum(
            0.5 * tf.square(half) - log_diagonal + 0.5 * math.log(2.0 * math.pi), axis=-1
        )

    def expectation(self, natural: Natural) -> Natural:
        """(m [..., M], V + m m^T [..., M, M])."""
        mean, covariance = self.mean_and_covariance(natural)
        return mean, covariance + mean[..., :, None] * mean[..., None, :]

    def sufficient(self, z: tf.Tensor) -> Natural:
        """(z, z z^T) for z [..., M]."""
        return z, z[..., :, None] * z[..., None, :]

    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        """I(lambda)^-1 g, [..., M] and [..., M, M]: derivative of lambda along mu + t g."""
        precision = -2.0 * natural[1]
        mean = self._mean_and_root(natural)[0]
        g_1, g_2 = self.tangent(gradient)
        cross = g_1[..., :, None] * mean[..., None, :]
        dV = g_2 - cross - tf.linalg.matrix_transpose(cross)
        dP = -tf.matmul(precision, tf.matmul(dV, precision))
        return tf.linalg.matvec(dP, mean) + tf.linalg.matvec(precision, g_1), -0.5 * dP

    def tangent(self, gradient: Natural) -> Natural:
        return gradient[0], 0.5 * (gradient[1] + tf.linalg.matrix_transpose(gradient[1]))

    def in_domain(self, natural: Natural) -> tf.Tensor:
        return tf.reduce_all(
            tf.math.is_finite(tf.linalg.diag_part(cholesky(-2.0 * natural[1]).chol)), axis=-1
        )

    @staticmethod
    def _mean_and_root(natural: Natural) -> tuple[tf.Tensor, tf.Tensor]:
        root = root_from_precision(-2.0 * natural[1]).chol
        return tf.linalg.matvec(root, tf.linalg.matvec(root, natural[0], transpose_a=True)), root


# ---


class InverseGamma(Family):
    """Inverse-Gamma densities with shape a, scale b: lambda = (-a - 1, -b), for log z and 1/z.

    Example::

        natural = InverseGamma().natural(shape=3.0, scale=2.0)
        log_mean, inverse_mean = InverseGamma().expectation(natural)  # E log z, and E 1/z = 3/2
    """

    statistics = ("log z", "1/z")
    ranks = (0, 0)

    def natural(self, shape: npt.ArrayLike, scale: npt.ArrayLike) -> Natural:
        """Natural parameters of `shape` [...] and `scale` [...], both above 0."""
        a = as_positive("the shape of an InverseGamma", shape)
        b = as_positive("the scale of an InverseGamma", scale)
        return -a - 1.0 + 0.0 * b, -b + 0.0 * a

    @staticmethod
    def shape_and_scale(natural: Natural) -> tuple[tf.Tensor, tf.Tensor]:
        """(a, b), [...] each."""
        return -natural[0] - 1.0, -natural[1]

    def distribution(self, natural: Natural) -> tfp.distributions.Distribution:
        return tfp.distributions.InverseGamma(*self.shape_and_scale(natural))

    def log_partition(self, natural: Natural) -> tf.Tensor:
        a, b = self.shape_and_scale(natural)
        return tf.math.lgamma(a) - a * tf.math.log(b)

    def expectation(self, natural: Natural) -> Natural:
        """(E log z, E 1/z), [...] each."""
        a, b = self.shape_and_scale(natural)
        return tf.math.log(b) - tf.math.digamma(a), a / b

    def sufficient(self, z: tf.Tensor) -> Natural:
        """(log z, 1/z), of the shape of z."""
        return tf.math.log(z), 1.0 / z

    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        (a, b), (g_1, g_2) = self.shape_and_scale(natural), gradient
        d = trigamma_excess(a)
        return (a * g_1 + b * g_2) / d, b * (b * trigamma(a) * g_2 + g_1) / d  # (C34)

    def in_domain(self, natural: Natural) -> tf.Tensor:
        a, b = self.shape_and_scale(natural)
        return (a > 0.0) & (b > 0.0)


def __dir__() -> list[str]:
    return sorted(__all__)
