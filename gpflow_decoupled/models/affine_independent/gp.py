"""Gaussian processes with a non-Gaussian posterior: affine-independent KL inference (Challis & Barber 2012)."""

from __future__ import annotations

__all__ = ["AffineIndependentGP"]

import warnings
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood
from gpflow.utilities import set_trainable

from ...bases.affine_independent import AffineIndependentBasis, AffineState
from ...covariances.latents import prior_variance
from ...errors import DataError
from ...expectations.projections import Projections, Site
from ...expectations.site_integrals import Integration, SiteGroup, frequencies_for, integrate, points_for, route_of
from ...inducing.weights import Weights
from ...likelihoods import likelihood_site
from ...linalg.cholesky import add_jitter, cholesky
from ..full_gp import FullGP
from .marginals import density_at, expected, quantiles
from .weight_priors import WeightPriors

_NO_EXPECTATION = (
    "The bound is minus infinity: under this q the expectation of the log density of {} does not exist, or q is so wide that "
    "no grid can tell. Start narrower (scale A down), use a narrower prior, or a base with lighter tails than '{}', for "
    "example 'skew_normal'."
)


class AffineIndependentGP(FullGP):
    """A GP of one latent function with q(u) of w = A v + b, v independent and not normal; the model owns its data.

    :param data: X [N, D], Y [N, 1]. :param kernel: any GPflow kernel of one output.
    :param likelihood: any GPflow likelihood with one latent an observation.
    :param mean_function: m_0(x) [N, 1]; zero if not given.
    :param inducing_variable: points [M, D] or any GPflow inducing variable; the data if not given.
    :param base: the name of one of `distributions.BASES`, a `distributions.Base`, or a scalar TFP distribution.
    :param structure: of A, "full", "lower", "lu" or "low_rank". :param rank: of "low_rank".
    :param non_normal: k, so many of the base variables are of `base` and the others normal; all M if not given.
    :param route: "auto", or "frequency_sum" (logit, Laplace, Student-t and Gaussian likelihoods), "spectral", "lattice".
    :param frequencies: of the first. :param points: of the other two, a power of two; both have defaults for the base.
    :param memory: bytes that the bound and its gradient may take: observations are worked through in blocks.
    :param weight_priors: of linear models, see `AffineIndependentGLM`.

    `optimizers.AffineIndependentAscent` finds A, b and the shapes. `training_loss` is the negative bound (A2). Raises
    `DataError` for unusable data, a base without finite variance or a memory limit that one observation is too large for.
    Cost of a bound: M^3 + N M^2 + N k T, for T frequencies. Example::

        model = AffineIndependentGP((X, Y), gpflow.kernels.Matern52(), BernoulliLogit())
        result = AffineIndependentAscent().run(model)
        density = model.predict_f_density(Xnew, grid)
    """

    basis: AffineIndependentBasis

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        *,
        mean_function: MeanFunction | None = None,
        inducing_variable: Any | None = None,
        base: Any = "skew_normal",
        structure: str = "full",
        rank: int = 5,
        non_normal: int | None = None,
        route: str = "auto",
        frequencies: int | None = None,
        points: int | None = None,
        memory: float = 2.0**29,
        weight_priors: WeightPriors | None = None,
    ) -> None:
        _refuse_several_latents(data, kernel, likelihood)
        super().__init__(data, kernel, likelihood, mean_function=mean_function)
        self._full = inducing_variable is None
        if self._full:  # data may have rows twice, which inducing points must not
            inducing_variable = SharedIndependentInducingVariables(InducingPoints(self.data[0].numpy()))
            set_trainable(inducing_variable, False)
        self.weight_priors = weight_priors
        gaussian = None if weight_priors is None else weight_priors.gaussian
        self.basis = AffineIndependentBasis(
            inducing_variable,
            base,
            structure=structure,
            rank=rank,
            non_normal=non_normal,
            gaussian=gaussian,
            distinct=not self._full,
        )
        self._asked = Integration(route, frequencies or 0, points or 0, float(memory))
        self.integration.checked(self.basis.base)
        self._check_sites()

    @property
    def integration(self) -> Integration:
        """How sites are integrated with the base as it is."""
        base, asked = self.basis.base, self._asked
        return asked._replace(
            frequencies=asked.frequencies or frequencies_for(base), points=asked.points or points_for(base)
        )

    @property
    def frequencies_given(self) -> bool:
        """Whether the caller chose frequencies or points."""
        return bool(self._asked.frequencies or self._asked.points)

    def refine(self) -> None:
        """Integrate sites with twice the frequencies and points from now on."""
        finer = self.integration.doubled()
        self._asked = self._asked._replace(frequencies=finer.frequencies, points=finer.points)

    def _check_sites(self) -> None:
        """Refuse what could not be computed: one site of each kind, in value."""
        for group in self.site_groups():
            route_of(self.basis.base, group.site, self.integration.route)
            first = group._replace(
                site=group.site._replace(parameters=tuple(part[:1] for part in group.site.parameters)),
                features=group.features[:1],
                offset=group.offset[:1],
                noise=None if group.noise is None else group.noise[:1],
            )
            integrate(self.basis.base, self.basis.projections(first), first.site, self.integration)

    def site_groups(self, state: AffineState | None = None) -> list[SiteGroup]:
        """The sites of the data and of weights with priors of their own, as they follow from kernel and likelihood."""
        state = self.basis.factor(self.kernel, with_kl=False) if state is None else state
        X, Y = self.data
        site = likelihood_site(self.likelihood, Y[:, 0])
        if self._full:
            group = SiteGroup(site, state.chol[0], self._mean(X))
        else:
            features, noise = self._features(state, X)
            group = SiteGroup(site, features, self._mean(X), noise)
        return [group] if self.weight_priors is None else [group, *self.weight_priors.groups(self.basis.size)]

    def bound(self, groups: list[SiteGroup], integration: Integration | None = None) -> tf.Tensor:
        """The bound (A2) in nats, a scalar, for sites that do not change while A, b and theta do."""
        how = self.integration if integration is None else integration
        basis, how = self.basis, how._replace(memory=how.memory / len(groups))
        sites = [tf.reduce_sum(integrate(basis.base, basis.projections(group), group.site, how)) for group in groups]
        volume = 0.0 if self.weight_priors is None else self.weight_priors.log_volume
        return tf.add_n(sites) + volume - basis.divergence()  # (A2)

    def elbo(self) -> tf.Tensor:
        """The evidence lower bound in nats, a scalar: (A2); minus infinity, and a warning, where it does not exist."""
        state = self.basis.factor(self.kernel, with_kl=False)
        bound = self.bound(self.site_groups(state))
        if tf.executing_eagerly() and np.isneginf(bound.numpy()):
            warnings.warn(_NO_EXPECTATION.format(type(self.likelihood).__name__, self.basis.base.name), stacklevel=2)
        return bound

    def _mean(self, X: tf.Tensor) -> tf.Tensor:
        """m_0(X) [N]."""
        return tf.broadcast_to(tf.cast(self.mean_function(X), X.dtype), [tf.shape(X)[0], 1])[:, 0]

    def _features(self, state: AffineState, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """phi(X) [N, M] and the variance [N] of what f has beside it; None where that is zero."""
        features = self.basis.whitened_features(state, self.kernel, X)
        if isinstance(self.basis.inducing, Weights):
            return features, None
        rest = prior_variance(self.kernel, X, full_cov=False)[0] - tf.reduce_sum(tf.square(features), axis=1)
        return features, tf.maximum(rest, 0.0)

    def projections(self, Xnew: InputData) -> Projections:
        """f(x) at Xnew [N, D] as a sum of base variables and noise, mean function included."""
        X = tf.convert_to_tensor(Xnew)
        features, noise = self._features(self.basis.factor(self.kernel, with_kl=False), X)
        return self.basis.projections(SiteGroup(Site(tf.zeros_like), features, self._mean(X), noise))

    def predict_f_density(self, Xnew: InputData, grid: Any) -> tf.Tensor:
        """The density of f(x) at Xnew [N, D] for values `grid` [G], or [N, G]: [N, G]."""
        y = self.projections(Xnew)
        grid = tf.convert_to_tensor(grid, y.alpha.dtype)
        if grid.shape.rank not in (1, 2):
            raise DataError(f"grid has shape {grid.shape}; it must be [G], or [N, G] with a row for each of Xnew.")
        grid = tf.broadcast_to(grid, [y.alpha.shape[0], grid.shape[-1]])
        return density_at(self.basis.base, y, grid, self.integration.points, self._asked.memory)

    def predict_f_quantiles(self, Xnew: InputData, probabilities: Any = (0.025, 0.5, 0.975)) -> np.ndarray:
        """The quantiles of f(x) at Xnew [N, D] for probabilities [Q]: [N, Q]."""
        levels = np.atleast_1d(np.asarray(probabilities, float))
        if levels.ndim != 1 or not np.all((levels > 0.0) & (levels < 1.0)):
            raise DataError(f"probabilities={probabilities!r}: they must lie between 0 and 1, both excluded.")
        return quantiles(self.basis.base, self.projections(Xnew), levels, self.integration.points, self._asked.memory)

    @inherit_check_shapes
    def predict_y(self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False) -> MeanAndVariance:
        """Mean and variance of a label at Xnew [N, D], [N, 1] each; of binary labels the mean is the class probability."""
        if full_cov or full_output_cov:
            raise NotImplementedError("predict_y gives the marginals of single labels: leave out full_cov.")

        def moments(f: tf.Tensor) -> tf.Tensor:
            flat, X = tf.reshape(f, [-1, 1]), tf.zeros([tf.size(f), 1], f.dtype)
            mean = tf.reshape(self.likelihood.conditional_mean(X, flat), tf.shape(f))
            variance = tf.reshape(self.likelihood.conditional_variance(X, flat), tf.shape(f))
            return tf.stack([mean, variance + tf.square(mean)])

        mean, square = tf.unstack(self._expected(Xnew, moments))
        return mean[:, None], (square - tf.square(mean))[:, None]

    @inherit_check_shapes
    def predict_log_density(
        self, data: RegressionData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """The log density of labels [N] in nats at X [N, D], Y [N, 1]; probabilities below 1e-12 or so are rounding."""
        if full_cov or full_output_cov:
            raise NotImplementedError("predict_log_density gives the marginals of single labels: leave out full_cov.")
        X, Y = (tf.convert_to_tensor(array) for array in data)
        site = likelihood_site(self.likelihood, tf.cast(Y[:, 0], X.dtype))
        columns = [part[:, None] for part in site.parameters]

        def density(f: tf.Tensor) -> tf.Tensor:
            log_p = site.smooth(f, *columns)
            if site.kink is not None:
                place, slope = site.kink(*columns)
                log_p += slope * tf.abs(f - place)
            return tf.exp(log_p)

        probability = self._expected(X, density)
        return tf.math.log(tf.maximum(probability, np.finfo(probability.dtype.as_numpy_dtype).tiny))

    def _expected(self, Xnew: InputData, function: Any) -> tf.Tensor:
        return expected(self.basis.base, self.projections(Xnew), function, self.integration.points, self._asked.memory)

    @inherit_check_shapes
    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """Draws of f at Xnew [N, D]: [S, N, 1], or [N, 1] without `num_samples`; functions if `full_cov`, else marginals."""
        if full_output_cov:
            raise NotImplementedError("There is one output: leave out full_output_cov.")
        basis, S = self.basis, 1 if num_samples is None else num_samples
        state = basis.factor(self.kernel, with_kl=False)
        X = tf.convert_to_tensor(Xnew)
        features, noise = self._features(state, X)
        f = self._mean(X) + tf.matmul(basis.sample(S), features, transpose_b=True)
        if noise is not None:
            z = tf.random.normal(tf.shape(f), dtype=f.dtype)
            if full_cov:
                rest = prior_variance(self.kernel, X, full_cov=True)[0] - tf.matmul(
                    features, features, transpose_b=True
                )
                f += tf.matmul(z, cholesky(add_jitter(rest)).chol, transpose_b=True)
            else:
                f += tf.sqrt(noise) * z
        return f[0, :, None] if num_samples is None else f[:, :, None]


def _refuse_several_latents(data: RegressionData, kernel: Kernel, likelihood: Likelihood) -> None:
    """Independent columns are as good in a model each; a likelihood of several latents has no site of one number."""
    latents, Y = likelihood.latent_dim, np.asarray(data[1])
    if latents not in (None, 1):
        raise DataError(
            f"{type(likelihood).__name__} has {latents} latent functions an observation, and here log p(y | f) must be a "
            "function of one: use CVIGP or LCLGP."
        )
    if isinstance(kernel, MultioutputKernel) or (Y.ndim == 2 and Y.shape[1] != 1):
        what = type(kernel).__name__ if isinstance(kernel, MultioutputKernel) else f"Y with {Y.shape[1]} columns"
        raise DataError(
            f"{what} has several latent functions, and a model has one: fit one model a column, Y[:, :1]. Independent "
            "latents have nothing in common but the kernel, and the bounds add up."
        )
