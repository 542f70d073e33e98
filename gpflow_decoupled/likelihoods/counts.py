"""Counts with a separate probability of zeros."""

from __future__ import annotations

__all__ = [
    "BetaBinomial", "Binomial", "CountFamily", "HurdleNegativeBinomial", "HurdlePoisson",
    "NegativeBinomial", "ZeroInflatedNegativeBinomial", "ZeroInflatedPoisson", "deviation_of",
    "log_choices", "logit_peak",
]  # fmt: skip

import math
from typing import NamedTuple

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import ScalarLikelihood

from ..expectations.log_means import log_mean_exp
from ..expectations.logit_integrals import softplus_mean, softplus_moments
from ..expectations.peaked import peaked_mean, peaked_rule
from ..probability import tfp
from .log_densities import scalar_log_density
from .parameters import NumberedLikelihood, positive_parameter, share_parameter

# ---
# Overdispersed counts.


_LIMIT = 80.0  # exp of more overflows in single precision


class NegativeBinomial(ScalarLikelihood):
    """Counts of mean m = e^f and variance m + m^2 / size.

    Log-concave in f; Poisson as `size` grows. Predictive moments are closed forms, predictive log
    densities accurate to 1e-8, and expected log densities to 1e-12 at every variance.

    :param size: above 0; smaller means more dispersion.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = CVIGP((X, counts), gpflow.kernels.Matern52(), NegativeBinomial(size=2.0))
        ConjugateComputation().run(model)
        mean, variance = model.predict_y(Xnew)
    """

    def __init__(self, size: float = 1.0, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.size: Parameter = positive_parameter(size, "size")

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        # the normaliser has the shape of Y; F has one axis more for many f per label
        size = tf.convert_to_tensor(self.size)
        return tfp.distributions.NegativeBinomial(size, logits=F - tf.math.log(size)).log_prob(Y)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return _exp(F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return _exp(F) + _exp(2.0 * F) / self.size

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return scalar_log_density(self, X, Fmu, Fvar, Y)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        mean, variance = (tf.convert_to_tensor(part) for part in (Fmu, Fvar))
        family = CountFamily(tf.convert_to_tensor(self.size))
        return tf.reduce_sum(family.mean_log_prob(mean, variance, Y), axis=-1)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        # by the law of total variance: E[m + m^2 / size] + Var m, with E m^2 = (E m)^2 e^Fvar
        mean = _exp(Fmu + 0.5 * Fvar)
        return mean, mean + tf.square(mean) * (
            tf.math.expm1(tf.minimum(Fvar, _LIMIT)) + _exp(Fvar) / self.size
        )


def _exp(exponent: tf.Tensor) -> tf.Tensor:
    return tf.exp(tf.minimum(exponent, _LIMIT))


# ---
# Successes in a known number of trials.


_LEAST_VARIANCE = 1e-16  # keeps the derivative of the root finite


class Binomial(NumberedLikelihood):
    """Successes y in t trials of probability 1 / (1 + e^-f); Y [N, P + 1] ends with a column of t.

    Log-concave. Expected log densities are accurate to 1e-12 at every variance, log densities to
    1e-9. `predict_y` is of one trial: the mean is the probability.

    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        data = X, np.hstack([successes, trials])
        model = CVIGP(data, gpflow.kernels.Matern52(), Binomial())
        ConjugateComputation().run(model)
        probability, _ = model.predict_y(Xnew)
    """

    number = "trials"

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        y, trials = self.split(Y)
        F = tf.convert_to_tensor(F)
        # y f - t log(1 + e^f) would cancel for large f
        failures = trials - y
        return log_choices(trials, y) - y * tf.nn.softplus(-F) - failures * tf.nn.softplus(F)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.sigmoid(F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.sigmoid(F) * tf.sigmoid(-F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        # E sigmoid(f) is the derivative of E log(1 + e^f) in the mean of f
        h, sigma = tf.broadcast_to(Fmu, tf.shape(Fvar)), deviation_of(Fvar)
        p = tf.clip_by_value(softplus_moments(h, sigma).d_h, 0.0, 1.0)
        return p, p * (1.0 - p)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        mean = tf.convert_to_tensor(Fmu)
        found = log_mean_exp(
            lambda f: self._scalar_log_prob(X, f, Y), mean, Fvar, *logit_peak(*self.split(Y))
        )
        return tf.reduce_sum(found, axis=-1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        y, trials = self.split(Y)
        sigma = deviation_of(Fvar) + tf.zeros_like(Fmu)
        mean = Fmu + tf.zeros_like(sigma)
        # the rarer outcome takes the exact difference, E log(1 + e^-f) = E log(1 + e^f) - E f
        sign = tf.where(2.0 * y > trials, -tf.ones_like(mean), tf.ones_like(mean))
        less = tf.minimum(y, trials - y)
        loss = trials * softplus_mean(sign * mean, sigma) - less * sign * mean
        return tf.reduce_sum(log_choices(trials, y) - loss, axis=-1)


def deviation_of(variance: tf.Tensor) -> tf.Tensor:
    """The root of a variance [...], with a finite derivative at zero."""
    return tf.sqrt(tf.maximum(variance, _LEAST_VARIANCE))


def log_choices(trials: TensorType, y: TensorType) -> tf.Tensor:
    """Log of the binomial coefficient, y of `trials`, of the broadcast shape [...] of both."""
    trials = tf.convert_to_tensor(trials)
    t, k = tf.cast(trials, tf.float64), tf.cast(y, tf.float64)  # differences of 1e7 for 1e6 trials
    found = tf.math.lgamma(t + 1.0) - tf.math.lgamma(k + 1.0) - tf.math.lgamma(t - k + 1.0)
    return tf.cast(found, trials.dtype)


def logit_peak(y: tf.Tensor, trials: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Place and width [...] of the peak of the likelihood of y successes over the log odds f."""
    up, down = y + 0.5, trials - y + 0.5
    return tf.math.log(up / down), tf.sqrt(1.0 / up + 1.0 / down)


# ---
# Successes of a probability that varies from row to row.


class BetaBinomial(Binomial):
    """Successes y in t trials of a probability that is Beta(c p, c (1 - p)), p = 1 / (1 + e^-f).

    The variance of y is t p (1 - p) (c + t) / (c + 1): overdispersed; `Binomial` as c grows. Y
    [N, P + 1] ends with a column of t. Not log-concave. Expected log densities are accurate to
    1e-8, log densities to 1e-9. `predict_y` is of one trial.

    :param concentration: c, above 0; smaller means more dispersion.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        data = X, np.hstack([successes, trials])
        model = CVIGP(data, gpflow.kernels.Matern52(), BetaBinomial(concentration=5.0))
        fit(model)
    """

    def __init__(self, concentration: float = 10.0, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.concentration: Parameter = positive_parameter(concentration, "concentration")

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        y, trials = self.split(Y)
        F, c = tf.convert_to_tensor(F), tf.convert_to_tensor(self.concentration)
        rising = _log_rising(F, c, y) + _log_rising(-F, c, trials - y)
        return log_choices(trials, y) + rising - _log_rise(c, trials)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        y, trials = self.split(Y)
        c = tf.convert_to_tensor(self.concentration)
        centre, width = logit_peak(y, trials)
        width *= tf.sqrt((c + trials) / (c + 1.0))
        mean = tf.convert_to_tensor(Fmu)
        found = log_mean_exp(lambda f: self._scalar_log_prob(X, f, Y), mean, Fvar, centre, width)
        return tf.reduce_sum(found, axis=-1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        # log (c p)_y bends where c p = i for a number i < y, at f = log(i / (c + i)) +- pi i, and
        # log (c (1 - p))_(t - y) at the mirror images: each part has nodes about its own bends
        y, trials = self.split(Y)
        c = tf.convert_to_tensor(self.concentration)
        bend = -0.5 * tf.math.log1p(c)
        width = tf.constant(math.pi, bend.dtype)
        mean, spread = tf.convert_to_tensor(Fmu), deviation_of(Fvar)
        up = peaked_mean(lambda f: _log_rising(f, c, y), mean, spread, bend, width)
        down = peaked_mean(lambda f: _log_rising(-f, c, trials - y), mean, spread, -bend, width)
        return tf.reduce_sum(log_choices(trials, y) + up + down - _log_rise(c, trials), axis=-1)


def _log_rise(a: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.math.lgamma(a + n) - tf.math.lgamma(a)


def _log_rising(f: tf.Tensor, c: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    """log a (a + 1) ... (a + n - 1), a = c / (1 + e^-f), also where a underflows; 0 for n = 0."""
    a = c * tf.sigmoid(f)
    some = n > 0.0
    rest = tf.math.lgamma(a + tf.where(some, n, tf.ones_like(n))) - tf.math.lgamma(a + 1.0)
    value = rest + tf.math.log(c) - tf.nn.softplus(-f)
    return tf.where(some, value, tf.zeros_like(value))


# ---
# Poisson and negative binomial counts, and their zeros.


_COUNT_FAMILY_LIMIT = 40.0
"""Exponents are clipped there: squares of e^40, of 2e17 counts, are finite in single precision."""
_LEAST = 1e-30
"""Below it L and 1 - e^-L are the same number."""
_FAR = -30.0
"""Where log(1 + e^x) is e^x to all digits."""


class CountFamily(NamedTuple):
    """Counts of mean e^f: Poisson, or negative binomial of variance m + m^2 / size.

    Arguments are tensors [...] that broadcast.
    """

    size: tf.Tensor | None
    """Of the negative binomial; None for Poisson."""

    def rate(self, f: tf.Tensor) -> tf.Tensor:
        """e^f, at most e^40."""
        return tf.exp(tf.minimum(f, _COUNT_FAMILY_LIMIT))

    @property
    def excess(self) -> tf.Tensor | float:
        """1 / size, zero for Poisson: E[y (y - 1)] is (1 + excess) e^2f."""
        return 0.0 if self.size is None else 1.0 / self.size

    def log_prob(self, f: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """log p(y | f) in nats."""
        if self.size is None:
            return y * f - self.rate(f) - tf.math.lgamma(y + 1.0)
        x = f - tf.math.log(self.size)
        return self._constant(y) - y * tf.nn.softplus(-x) - self.size * tf.nn.softplus(x)

    def mean_log_prob(self, mean: tf.Tensor, variance: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """E log p(y | f), f ~ N(mean, variance), in nats; a closed form, or to 1e-12."""
        if self.size is None:
            return y * mean - self.rate(mean + 0.5 * variance) - tf.math.lgamma(y + 1.0)
        sigma = deviation_of(variance) + tf.zeros_like(mean)
        x = mean - tf.math.log(self.size) + tf.zeros_like(sigma)
        return self._constant(y) + y * x - (y + self.size) * softplus_mean(x, sigma)

    def surprise(self, f: tf.Tensor) -> tf.Tensor:
        """L = -log p(0 | f), at least 0."""
        if self.size is None:
            return self.rate(f)
        return self.size * tf.nn.softplus(f - tf.math.log(self.size))

    def log_some(self, f: tf.Tensor) -> tf.Tensor:
        """log p(y > 0 | f) = log(1 - e^-L), linear for small and zero for large f."""
        if self.size is None:
            log_L = tf.minimum(f, _COUNT_FAMILY_LIMIT)
        else:
            x = f - tf.math.log(self.size)
            near = tf.math.log(tf.nn.softplus(tf.maximum(x, _FAR)))
            log_L = tf.math.log(self.size) + tf.where(x < _FAR, x, near)
        L = tf.maximum(self.surprise(f), _LEAST)
        return log_L + tf.math.log(-tf.math.expm1(-L) / L)

    def peak(self, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Place and width of the peak of p(y | f) over f, for y > 0."""
        y = tf.maximum(y, 1.0)
        return tf.math.log(y), tf.sqrt(1.0 / y + self.excess)

    def zero_bend(self, log_odds: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The f, real part and imaginary one, at which e^L = -e^log_odds, the nearest singularity
        of log(1 + e^(log_odds - L)).
        """
        if self.size is None:  # e^f = log_odds + pi i
            return 0.5 * tf.math.log(tf.square(log_odds) + math.pi**2), tf.atan2(
                tf.constant(math.pi, log_odds.dtype), log_odds
            )
        # (1 + e^f / size)^size = -e^log_odds, on the branch of logarithms within pi
        growth = tf.exp(tf.minimum(log_odds / self.size, _COUNT_FAMILY_LIMIT))
        turn = tf.minimum(math.pi / self.size, tf.constant(math.pi, growth.dtype))
        real, imaginary = growth * tf.cos(turn) - 1.0, growth * tf.sin(turn)
        modulus = tf.maximum(tf.square(real) + tf.square(imaginary), _LEAST)
        return (
            tf.math.log(self.size) + 0.5 * tf.math.log(modulus),
            tf.maximum(tf.atan2(tf.abs(imaginary), real), 0.05),
        )

    def some_bend(self) -> tuple[tf.Tensor | float, float]:
        """Place and width of the bend of `log_some`: e^L = 1 at L = 2 pi i."""
        if self.size is None:
            return math.log(2.0 * math.pi), 0.5 * math.pi
        angle = math.pi / tf.maximum(self.size, 2.0)
        return tf.math.log(2.0 * self.size * tf.sin(angle)), 0.5 * math.pi

    def _constant(self, y: tf.Tensor) -> tf.Tensor:
        return tf.math.lgamma(y + self.size) - tf.math.lgamma(self.size) - tf.math.lgamma(y + 1.0)


# ---
# Counts with more zeros than their law.


class ZeroInflatedPoisson(ScalarLikelihood):
    """Counts that are 0 with probability w, else Poisson of mean e^f (Lambert, 1992).

    p(0) = w + (1 - w) exp(-e^f). Not log-concave at y = 0. Expected log densities are closed forms
    for y > 0 and accurate to 1e-8 at y = 0, log densities to 1e-9, moments are closed forms.

    :param zero_share: w, between 0 and 1, learned with the other Parameters.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = CVIGP((X, counts), gpflow.kernels.Matern52(), ZeroInflatedPoisson())
        fit(model)
        mean, variance = model.predict_y(Xnew)
    """

    def __init__(self, zero_share: float = 0.1, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.zero_share: Parameter = share_parameter(zero_share, "zero_share")

    def _family(self) -> CountFamily:
        return CountFamily(None)

    def _logs(self) -> tuple[tf.Tensor, tf.Tensor]:
        share = tf.convert_to_tensor(self.zero_share)
        return tf.math.log(share), tf.math.log1p(-share)

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        F, (_, log_rest) = tf.convert_to_tensor(F), self._logs()
        return tf.where(Y > 0.0, log_rest + self._family().log_prob(F, Y), self._log_zero(F))

    def _log_zero(self, f: tf.Tensor) -> tf.Tensor:
        log_share, log_rest = self._logs()
        return log_share + tf.nn.softplus(log_rest - log_share - self._family().surprise(f))

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return (1.0 - self.zero_share) * self._family().rate(tf.convert_to_tensor(F))

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(tf.convert_to_tensor(F), tf.zeros_like(F))[1]

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return self._moments(tf.convert_to_tensor(Fmu), tf.convert_to_tensor(Fvar))

    def _moments(self, mean: tf.Tensor, variance: tf.Tensor) -> MeanAndVariance:
        # with m = e^f: Var y = (1 - w) [E m + E m^2 / size + Var m] + w (1 - w) (E m)^2
        family, share = self._family(), tf.convert_to_tensor(self.zero_share)
        m = family.rate(mean + 0.5 * variance)
        growth = family.rate(variance)
        spread = tf.square(m) * (tf.math.expm1(tf.math.log(growth)) + growth * family.excess)
        return (1.0 - share) * m, (1.0 - share) * (m + spread + share * tf.square(m))

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        family, (log_share, log_rest) = self._family(), self._logs()
        bend, peak = family.zero_bend(log_rest - log_share), family.peak(Y)
        centre, width = (tf.where(Y > 0.0, *pair) for pair in zip(peak, bend))
        found = log_mean_exp(
            lambda f: self._scalar_log_prob(X, f, Y), tf.convert_to_tensor(Fmu), Fvar, centre, width
        )
        return tf.reduce_sum(found, axis=-1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        mean, variance = (tf.convert_to_tensor(part) for part in (Fmu, Fvar))
        family, (log_share, log_rest) = self._family(), self._logs()
        bend = family.zero_bend(log_rest - log_share)
        none = peaked_mean(self._log_zero, mean, deviation_of(variance), *bend)
        some = log_rest + family.mean_log_prob(mean, variance, Y)
        return tf.reduce_sum(tf.where(Y > 0.0, some, none), axis=-1)


class ZeroInflatedNegativeBinomial(ZeroInflatedPoisson):
    """Counts that are 0 with probability w, else negative binomial of mean m = e^f.

    The variance without the extra zeros is m + m^2 / size. As `ZeroInflatedPoisson` otherwise.

    :param zero_share: w, between 0 and 1.
    :param size: above 0; smaller means more dispersion.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = CVIGP((X, counts), gpflow.kernels.Matern52(), ZeroInflatedNegativeBinomial())
        fit(model)
    """

    def __init__(self, zero_share: float = 0.1, size: float = 1.0, **kwargs: object) -> None:
        super().__init__(zero_share, **kwargs)
        self.size: Parameter = positive_parameter(size, "size")

    def _family(self) -> CountFamily:
        return CountFamily(tf.convert_to_tensor(self.size))


# ---


_HURDLE_LIMIT = 40.0
"""Of logarithms of moments, as in `count_family`."""


class HurdlePoisson(ZeroInflatedPoisson):
    """Counts that are 0 with probability w, else Poisson of rate e^f given that they are above 0.

    Mullahy (1986). Zeros, more or fewer than Poisson, say nothing of f. Log-concave. Expected log
    densities and moments are accurate to 1e-8, log densities to 1e-9.

    :param zero_share: w, between 0 and 1.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = CVIGP((X, counts), gpflow.kernels.Matern52(), HurdlePoisson(0.3))
        fit(model)
    """

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        F, family = tf.convert_to_tensor(F), self._family()
        log_share, log_rest = self._logs()
        some = log_rest + family.log_prob(F, Y) - family.log_some(F)
        return tf.where(Y > 0.0, some, log_share + tf.zeros_like(some))

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        family, F = self._family(), tf.convert_to_tensor(F)
        log_mean = tf.minimum(F - family.log_some(F), _HURDLE_LIMIT)
        return (1.0 - self.zero_share) * tf.exp(log_mean)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        # of counts above zero mean / p and E y^2 / p, p = 1 - p(0); 1 / p - 1 without cancellation
        family, F = self._family(), tf.convert_to_tensor(F)
        log_some, rate, share = family.log_some(F), family.rate(F), self.zero_share
        mean = tf.exp(tf.minimum(F - log_some, _HURDLE_LIMIT))
        more = rate * family.excess - tf.exp(tf.minimum(F - log_some, _HURDLE_LIMIT)) + rate
        exact = rate * family.excess - rate * tf.math.expm1(-log_some)
        spread = mean * (1.0 + tf.where(F < 0.0, more, exact))
        return (1.0 - share) * (tf.maximum(spread, 0.0) + share * tf.square(mean))

    def _moments(self, mean: tf.Tensor, variance: tf.Tensor) -> MeanAndVariance:
        # E[m^k / p] = E m^k times E[1 / p] under the Gaussian whose mean is moved by k variances
        family, share = self._family(), tf.convert_to_tensor(self.zero_share)
        first = mean + 0.5 * variance + self._log_mean_inverse(mean + variance, variance)
        pairs = 2.0 * (mean + variance) + self._log_mean_inverse(mean + 2.0 * variance, variance)
        pairs += tf.math.log(1.0 + family.excess + tf.zeros_like(pairs))
        second = tf.reduce_logsumexp(tf.stack([first, pairs]), axis=0)
        top = tf.exp(tf.minimum(first, _HURDLE_LIMIT))
        spread = tf.square(top) * tf.math.expm1(
            tf.clip_by_value(second - 2.0 * first, 0.0, _HURDLE_LIMIT)
        )
        return (1.0 - share) * top, (1.0 - share) * (spread + share * tf.square(top))

    def _log_mean_inverse(self, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
        family = self._family()
        spread = deviation_of(variance) + tf.zeros_like(mean)
        centre, width = (part + tf.zeros_like(spread) for part in family.some_bend())
        z, w = peaked_rule(mean + tf.zeros_like(spread), spread, centre, width, 40)
        return tf.reduce_logsumexp(tf.math.log(w) - family.log_some(mean + spread * z), axis=0)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        found = log_mean_exp(
            lambda f: self._scalar_log_prob(X, f, Y),
            tf.convert_to_tensor(Fmu),
            Fvar,
            *self._family().peak(Y),
        )
        return tf.reduce_sum(found, axis=-1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        mean, variance = (tf.convert_to_tensor(part) for part in (Fmu, Fvar))
        family, (log_share, log_rest) = self._family(), self._logs()
        log_some = peaked_mean(family.log_some, mean, deviation_of(variance), *family.some_bend())
        some = log_rest + family.mean_log_prob(mean, variance, Y) - log_some
        return tf.reduce_sum(tf.where(Y > 0.0, some, log_share + tf.zeros_like(some)), axis=-1)


class HurdleNegativeBinomial(HurdlePoisson):
    """Counts that are 0 with probability w, else negative binomial given that they are above 0.

    As `HurdlePoisson` otherwise; log-concave only where the size is at least 1.

    :param zero_share: w, between 0 and 1.
    :param size: above 0; smaller means more dispersion.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = CVIGP((X, counts), gpflow.kernels.Matern52(), HurdleNegativeBinomial(0.3))
        fit(model)
    """

    def __init__(self, zero_share: float = 0.1, size: float = 1.0, **kwargs: object) -> None:
        super().__init__(zero_share, **kwargs)
        self.size: Parameter = positive_parameter(size, "size")

    def _family(self) -> CountFamily:
        return CountFamily(tf.convert_to_tensor(self.size))
