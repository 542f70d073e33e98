"""The model of affine-independent KL inference (Challis & Barber 2012)."""

from __future__ import annotations

__all__ = ["AffineIndependentGP"]

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, RegressionData, TensorType
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables, SharedIndependentInducingVariables
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood
from scipy.interpolate import CubicHermiteSpline

from ..bases.affine_independent import AffineIndependentBasis, AffineState
from ..covariances.latents import prior_variance
from ..distributions import Base, BaseLike
from ..distributions.densities import NormalBase
from ..errors import DataError, check_parameters
from ..expectations.fourier import (
    Integration,
    SiteGroup,
    choose_route,
    frequencies_for,
    integrate,
    points_for,
    reach_of,
    spectral_density,
    transform_of,
    where_decayed,
)
from ..expectations.projections import Projections, Site, rows_of
from ..inducing.variables import fixed_points
from ..inducing.weights import Weights
from ..inputs import (
    as_array,
    as_pair,
    as_values,
    check_finite_entries,
    check_rate,
    check_whole,
    float_type,
    known,
)
from ..likelihoods import likelihood_site
from ..likelihoods.facts import name_of
from ..likelihoods.registry import index_columns
from ..linalg.cholesky import add_jitter, cholesky
from ..posteriors import near_inputs
from ..summaries import short_repr
from ..user_warnings import warn_user
from .checks import Moments, Resolution, check_parts
from .full_gp import FullGP
from .linear_parts import WeightPriors


def _refuse_several_latents(data: RegressionData, kernel: Kernel, likelihood: Likelihood) -> None:
    """Refuse likelihood, kernel or labels Y [N, P] with several latents."""
    check_parts(kernel, likelihood)
    latents, Y = likelihood.latent_dim, as_values(as_pair(data)[1], "Y", float_type(kernel))
    if latents not in (None, 1):
        raise DataError(
            f"{name_of(likelihood)} has {latents} latent functions per observation, and here"
            " log p(y | f) must be a function of one: use CVIGP."
        )
    if isinstance(kernel, MultioutputKernel) or (
        Y.ndim == 2 and Y.shape[1] - index_columns(likelihood) != 1
    ):
        what = (
            type(kernel).__name__
            if isinstance(kernel, MultioutputKernel)
            else f"Y with {Y.shape[1]} columns"
        )
        raise DataError(
            f"{what} has several latent functions, and an AffineIndependentGP has one: fit one"
            " model per column, Y[:, :1]. Independent latent functions share nothing but the"
            " kernel, and their bounds add up."
        )


def _as_matrix(Xnew: tf.Tensor, least: int = 0) -> tf.Tensor:
    """Return inputs [N, D]; `DataError` for batches [..., N, D], and fewer than `least` rows."""
    if Xnew.shape.rank != 2 or (Xnew.shape[0] is not None and Xnew.shape[0] < least):
        rows = ", with a row at least" if least else ""
        raise DataError(f"Xnew has shape {Xnew.shape}; it must be [N, D] here{rows}.")
    return Xnew


# ---
# Non-Gaussian marginals of q(f), by (A10).


# Probabilities below 1e-12 of the peak are rounding errors.


_OfF = Callable[[tf.Tensor], tf.Tensor]


def _blocks(base: Base, y: Projections, points: int, memory: float) -> Iterator[Projections]:
    rows = rows_of(memory, y.alpha.shape[1], points, base.work, y.alpha.dtype)
    if y.alpha.shape[0] is None:
        yield y
        return
    for start in range(0, y.alpha.shape[0], rows):
        noise = None if y.noise is None else y.noise[start : start + rows]
        yield Projections(
            y.alpha[start : start + rows], y.beta[start : start + rows], y.theta, noise
        )


def _expected(base: Base, y: Projections, function: _OfF, points: int, memory: float) -> tf.Tensor:
    """E function(y_n) [..., N] for a function [N, K] -> [..., N, K]; perhaps infinite."""
    # grids around each mean, as wide as the base's tails, [N, points]
    parts = [
        spectral_density(base.characteristic, part, reach_of(base, y.theta), points)
        for part in _blocks(base, y, points // 2 + 1, memory)
    ]
    values, q = (tf.concat(column, axis=0) for column in zip(*parts))
    terms = tf.maximum(q, 0.0) * (values[:, 1:2] - values[:, :1]) * function(values)
    return where_decayed(tf.reduce_sum(terms, axis=-1), terms, math.inf)


def _density_at(
    base: Base, y: Projections, grid: tf.Tensor, points: int, memory: float
) -> tf.Tensor:
    """Densities [N, G] at values [N, G], by the frequency sum; 0 beyond the base's tails."""
    # Unlike an FFT it needs no interpolation; blocks take at most `memory` bytes.
    R, scale, start, rows = reach_of(base, y.theta), y.spread, 0, []
    dims, frequencies = int(y.alpha.shape[1]), points // 2 + 1
    fitting = int(memory // (2 * y.alpha.dtype.size * base.work * frequencies))
    values = max(1, min(int(grid.shape[1]), fitting))
    for part in _blocks(base, y, max(frequencies, values * frequencies // dims), memory):
        count = part.alpha.shape[0]
        width = R * scale[start : start + count, None]
        alpha, _, noise, _ = part.per_site
        omega = math.pi / width * tf.range(points // 2, dtype=width.dtype)
        phi = transform_of(base.characteristic, alpha, noise, omega, y.theta)
        u = grid[start : start + count] - part.beta[:, None]
        columns = [
            _density_of(phi, omega, u[:, first : first + values], width)
            for first in range(0, grid.shape[1], values)
        ]
        rows.append(tf.concat(columns, axis=1))
        start += count
    return tf.concat(rows, axis=0)


def _density_of(phi: tf.Tensor, omega: tf.Tensor, u: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """Density [n, G] at distances u [n, G] from the mean, from phi at omega, [n, T] each."""
    angle = omega[:, :, None] * u[:, None, :]
    waves = tf.math.real(phi)[:, :, None] * tf.cos(angle)
    if phi.dtype.is_complex:
        waves += tf.math.imag(phi)[:, :, None] * tf.sin(angle)
    weights = tf.constant([0.5] + [1.0] * (int(phi.shape[1]) - 1), width.dtype)[:, None]
    q = tf.reduce_sum(weights * waves, axis=1) / width  # (A10)
    return tf.where(tf.abs(u) < width, tf.maximum(q, 0.0), 0.0)


def _quantiles(
    base: Base, y: Projections, probabilities: np.ndarray, points: int, memory: float
) -> np.ndarray:
    """Quantiles [N, Q] for probabilities [Q], by Newton's method on an interpolated cdf."""
    R, rows = reach_of(base, y.theta), []
    for part in _blocks(base, y, points // 2 + 1, memory):
        values, q = (
            array.numpy() for array in spectral_density(base.characteristic, part, R, points)
        )
        averaged = spectral_density(base.characteristic, part, R, points, averaged=True)[1].numpy()
        for row in zip(values, q, averaged):
            rows.append(_quantiles_of(*row, probabilities))
    return np.stack(rows)


def _quantiles_of(
    values: np.ndarray, q: np.ndarray, averaged: np.ndarray, probabilities: np.ndarray
) -> np.ndarray:
    """Quantiles [Q] of a density q [K] at values [K]."""
    # The sum of cell averages `averaged` [K] is the cdf at edges.
    step = values[1] - values[0]
    cdf = np.maximum.accumulate(np.cumsum(averaged) * step)
    edges = values + 0.5 * step
    density = np.maximum(0.5 * (q[:-1] + q[1:]), 0.0)
    spline = CubicHermiteSpline(edges[:-1], cdf[:-1], density)
    slope = spline.derivative()
    keep = np.concatenate([[True], np.diff(cdf[:-1]) > 1e-14])
    x = np.interp(probabilities, cdf[:-1][keep], edges[:-1][keep])
    low, high = x - step, x + step
    for _ in range(5):
        x = np.clip(x - (spline(x) - probabilities) / np.maximum(slope(x), 1e-300), low, high)
    return x


def _density_of_labels(site: Site, f: tf.Tensor) -> tf.Tensor:
    """p(y_n | f) at f [N, K], for a site of N labels."""
    columns = [part[:, None] for part in site.parameters]
    log_p = site.smooth(f, *columns)
    if site.kink is not None:
        place, slope = site.kink(*columns)
        log_p += slope * tf.abs(f - place)
    return tf.exp(log_p)


# ---


_NO_EXPECTATION = (
    "The bound is minus infinity: under this q the expectation of the log density of {} does not"
    " exist, or q is so wide that no grid can tell. Start narrower (scale A down), use a narrower"
    " prior, or a base distribution with lighter tails than '{}', for example 'skew_normal'."
)


class AffineIndependentGP(FullGP):
    """A GP with one latent and an affine-independent posterior; owns its data.

    Inducing values are u = L w, w ~ N(0, I) a priori and w = A v + b a posteriori, with independent
    v_d of a standardised base distribution. `optimizers.AffineIndependentAscent` finds A, b and the
    shapes. A bound costs M^3 + N M^2 + N k T for T frequencies.

    :param data: X [N, D], Y [N, 1].
    :param kernel: any GPflow kernel with one output.
    :param likelihood: any GPflow likelihood with one latent function per observation.
    :param mean_function: m_0(x) [N, 1]; zero if not given.
    :param inducing_variable: points [M, D] or any GPflow inducing variable; by default the data.
    :param base: of the v_d; this, `structure`, `non_normal` as in `bases.AffineIndependentBasis`.
    :param structure: of A: "full" or "lu".
    :param non_normal: k, the number of v_d that are not normal, for "full"; by default M up to 100,
        and 20 of more.
    :param route: of expectations: "frequency_sum" (logit, Laplace, Student-t and Gaussian
        likelihoods), "spectral" or "lattice"; "auto" takes the first possible.
    :param frequencies: their number T for "frequency_sum"; the default depends on the base.
    :param points: grid points for the other routes, a power of two.
    :param memory: bytes for the bound and its gradient, computed in blocks.
    :param weight_priors: for linear models, see `AffineIndependentGLM`.

    Example::

        model = AffineIndependentGP((X, Y), gpflow.kernels.Matern52(), BernoulliLogit())
        result = AffineIndependentAscent().run(model)
        density = model.predict_f_density(Xnew, np.linspace(-5.0, 5.0, 101))  # [N, 101]
        low, median, high = model.predict_f_quantiles(Xnew).T                    # [N] each
    """

    basis: AffineIndependentBasis
    starts_at_prior = True

    route: ClassVar[str] = "affine_independent"
    """The name of the route by which `fit` trains it."""

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        *,
        mean_function: MeanFunction | None = None,
        inducing_variable: InducingVariables | TensorType | None = None,
        base: BaseLike = "skew_normal",
        structure: str = "full",
        non_normal: int | None = None,
        route: str = "auto",
        frequencies: int | None = None,
        points: int | None = None,
        memory: float = 2.0**29,
        weight_priors: WeightPriors | None = None,
    ) -> None:
        _refuse_several_latents(data, kernel, likelihood)
        check_rate(memory=memory)
        numbers = {"frequencies": frequencies, "points": points}
        check_whole(1, **{name: number for name, number in numbers.items() if number is not None})
        super().__init__(data, kernel, likelihood, mean_function=mean_function)
        self._full = inducing_variable is None
        # as data have the same row twice at times, these points are not checked to be distinct
        if self._full:
            points_of_data = fixed_points(np.asarray(known(self.data[0])))
            inducing_variable = SharedIndependentInducingVariables(points_of_data)
        self.weight_priors = weight_priors
        self.basis = AffineIndependentBasis(
            inducing_variable,
            base,
            structure=structure,
            non_normal=non_normal,
            gaussian=None if weight_priors is None else weight_priors.gaussian,
            distinct=not self._full,
        )
        self._asked = Integration(route, frequencies or 0, points or 0, float(memory))
        for group in self.site_groups():
            first, how = group.first(), self.integration.checked()
            integrate(self.basis.base, self.basis.projections(first), first.site, how)

    @property
    def integration(self) -> Integration:
        """Settings of the site integrals with the present base distribution."""
        base, asked = self.basis.base, self._asked
        return asked._replace(
            frequencies=asked.frequencies or frequencies_for(base),
            points=asked.points or points_for(base),
        )

    @property
    def frequencies_given(self) -> bool:
        """True if the caller chose the number of frequencies or points."""
        return bool(self._asked.frequencies or self._asked.points)

    def refine(self) -> None:
        """Double frequencies and points from now on."""
        finer = self.integration.doubled()
        self._asked = self._asked._replace(frequencies=finer.frequencies, points=finer.points)

    def site_groups(self, state: AffineState | None = None) -> list[SiteGroup]:
        """Sites at the present kernel and likelihood, of data and of non-Gaussian priors."""
        state = self.basis.factor(self.kernel, with_kl=False) if state is None else state
        X, Y = self.data
        site = likelihood_site(self.likelihood, Y)
        features, noise = (state.chol[0], None) if self._full else self._features(state, X)
        group, priors = SiteGroup(site, features, self._mean(X), noise), self.weight_priors
        return [group] if priors is None else [group, *priors.groups(self.basis.size)]

    def bound(self, groups: list[SiteGroup], integration: Integration | None = None) -> tf.Tensor:
        """The bound in nats, a scalar.

        :param groups: of `site_groups`, which depend on kernel and likelihood, not on A, b, theta.
        """
        how = self.integration if integration is None else integration
        basis, how = self.basis, how._replace(memory=how.memory / len(groups))
        sites = [
            tf.reduce_sum(integrate(basis.base, basis.projections(group), group.site, how))
            for group in groups
        ]
        volume = 0.0 if self.weight_priors is None else self.weight_priors.log_volume
        return tf.add_n(sites) + volume - basis.divergence()  # (A2)

    def elbo(self) -> tf.Tensor:
        """The ELBO in nats, a scalar; minus infinity, with a warning, where it does not exist."""
        state = self.basis.factor(self.kernel, with_kl=False)
        # (A2)
        bound = self.bound(self.site_groups(state))
        if tf.executing_eagerly() and np.isneginf(bound.numpy()):
            warn_user(_NO_EXPECTATION.format(name_of(self.likelihood), self.basis.base.name))
        return bound

    def _mean(self, X: tf.Tensor) -> tf.Tensor:
        return tf.broadcast_to(tf.cast(self.mean_function(X), X.dtype), [tf.shape(X)[0], 1])[:, 0]

    def _features(self, state: AffineState, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Features phi(X) [N, M] of f = m_0 + phi^T w + r, and Var r [N], None if zero."""
        features = self.basis.whitened_features(state, self.kernel, X)
        if isinstance(self.basis.inducing, Weights):
            return features, None
        rest = prior_variance(self.kernel, X, full_cov=False)[0] - tf.reduce_sum(
            tf.square(features), axis=1
        )
        return features, tf.maximum(rest, 0.0)

    def projections(self, Xnew: InputData) -> Projections:
        """f(x) at Xnew [N, D] as base variables, mean and noise; `DataError` for batches."""
        check_parameters(self, "posterior of f at Xnew")
        X = _as_matrix(self.inputs(Xnew), least=1)
        X = near_inputs(X, self.kernel, self.mean_function, False)
        features, noise = self._features(self.basis.factor(self.kernel, with_kl=False), X)
        return self.basis.projections(
            SiteGroup(Site(tf.zeros_like), features, self._mean(X), noise)
        )

    def moments(self, data: RegressionData | None = None) -> Moments:
        """f under q at X [N, D], or at the model's data: moments [N, 1] and projections."""
        if data is None:
            y = self.basis.projections(self.site_groups()[0])
        else:
            y = self.projections(data[0])
        return Moments(y.beta[:, None], tf.square(y.spread)[:, None], y)

    def expected_log_densities(
        self, moments: Moments, data: RegressionData | None = None, *, doublings: int = 0
    ) -> tf.Tensor:
        """E log p(y_n | f_n) [N] in nats; without projections f is Gaussian, [N, 1]."""
        site = likelihood_site(self.likelihood, self._observations(data)[1])
        how = self.integration
        for _ in range(doublings):
            how = how.doubled()
        if moments.projections is not None:
            return integrate(self.basis.base, moments.projections, site, how)
        m, v = moments.mean, moments.variance
        y = Projections(tf.sqrt(v), m[:, 0], tf.zeros([1, 0], m.dtype))
        return integrate(NormalBase(), y, site, how._replace(route="auto"))

    @property
    def resolution(self) -> Resolution:
        site, how = likelihood_site(self.likelihood, self.data[1]), self.integration
        if choose_route(self.basis.base, site, how.route) == "frequency_sum":
            return Resolution("frequencies", how.frequencies)
        return Resolution("points", how.points)

    def predict_f_density(self, Xnew: InputData, grid: TensorType) -> tf.Tensor:
        """The density [N, G] of f(x) at Xnew [N, D], for values [G], or a row each [N, G]."""
        y = self.projections(Xnew)
        rows, values = y.alpha.shape[0], as_array(grid, "grid", y.alpha.dtype)
        values = tf.convert_to_tensor(values, y.alpha.dtype)
        leading = tuple(values.shape[:-1])
        if values.shape[-1:] in ([], [0]) or leading not in ((), (1,), (rows,)):
            raise DataError(
                f"grid has shape {values.shape}; it must be [G], or [N, G] with a row for each row"
                " of Xnew."
            )
        check_finite_entries(values, "grid")
        values = tf.broadcast_to(values, [rows, values.shape[-1]])
        return _density_at(self.basis.base, y, values, self.integration.points, self._asked.memory)

    def predict_f_quantiles(
        self, Xnew: InputData, probabilities: npt.ArrayLike = (0.025, 0.5, 0.975)
    ) -> np.ndarray:
        """The quantiles of f(x), [N, Q].

        :param Xnew: [N, D].
        :param probabilities: [Q], between 0 and 1.
        """
        levels = np.atleast_1d(np.asarray(probabilities, float))
        if levels.ndim != 1 or not np.all((levels > 0.0) & (levels < 1.0)):
            raise DataError(
                f"probabilities={short_repr(probabilities)}: they must lie between 0 and 1, without"
                " these two."
            )
        points, memory = self.integration.points, self._asked.memory
        return _quantiles(self.basis.base, self.projections(Xnew), levels, points, memory)

    def predict_y(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance of labels at Xnew [N, D], [N, 1] each; P(y = 1) for binary labels."""
        if full_cov or full_output_cov:
            raise NotImplementedError(
                "predict_y gives the marginals of single labels only: leave out full_cov."
            )

        def given(f: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            flat, X = tf.reshape(f, [-1, 1]), tf.zeros([tf.size(f), 1], f.dtype)
            moments = self.likelihood.conditional_mean, self.likelihood.conditional_variance
            return tuple(tf.reshape(moment(X, flat), tf.shape(f)) for moment in moments)

        mean = self._expected(Xnew, lambda f: given(f)[0])[:, None]
        is_finite = tf.math.is_finite(mean)
        centre = tf.where(is_finite, mean, 0.0)

        def squares(f: tf.Tensor) -> tf.Tensor:
            mean, variance = given(f)
            return variance + tf.square(mean - centre)

        variance = self._expected(Xnew, squares)[:, None]
        return mean, tf.where(is_finite, variance, mean)  # beyond the range of floats

    def predict_log_density(
        self, data: RegressionData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """Log densities [N] of labels in nats, X [N, D], Y [N, 1]; inaccurate below log 1e-12."""
        if full_cov or full_output_cov:
            raise NotImplementedError(
                "predict_log_density gives the marginals of single labels only: leave out full_cov."
            )
        X, Y = self.checked(data)
        site = likelihood_site(self.likelihood, Y)
        probability = self._expected(X, partial(_density_of_labels, site))
        return tf.math.log(tf.maximum(probability, np.finfo(probability.dtype.as_numpy_dtype).tiny))

    def _expected(self, Xnew: InputData, function: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        points, memory = self.integration.points, self._asked.memory
        return _expected(self.basis.base, self.projections(Xnew), function, points, memory)

    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """Draw f at Xnew [N, D]: [S, N, 1] for S = `num_samples`, or [N, 1].

        :param full_cov: draw whole functions; otherwise values at different inputs share only w.
        :param full_output_cov: refused: there is one output.
        """
        if full_output_cov:
            raise NotImplementedError("There is one output: leave out full_output_cov.")
        check_parameters(self, "posterior of f at Xnew")
        basis, S = self.basis, 1 if num_samples is None else num_samples
        state = basis.factor(self.kernel, with_kl=False)
        X = _as_matrix(self.inputs(Xnew))
        features, noise = self._features(state, X)
        f = self._mean(X) + tf.matmul(basis.sample(S), features, transpose_b=True)
        if noise is not None:
            z = tf.random.normal(tf.shape(f), dtype=f.dtype)
            if full_cov:
                prior = prior_variance(self.kernel, X, full_cov=True)[0]
                explained = tf.matmul(features, features, transpose_b=True)
                rest = add_jitter(prior - explained, minuend=prior)
                f += tf.matmul(z, cholesky(rest).chol, transpose_b=True)
            else:
                f += tf.sqrt(noise) * z
        return f[0, :, None] if num_samples is None else f[:, :, None]
