"""Generalised linear models, and the posterior of their weights."""

from __future__ import annotations

__all__ = [
    "AffineIndependentGLM", "CVIGLM", "LCLGLM", "LaplacePriorLCLGP", "WeightsPosterior",
    "weight_labels", "weights_posterior",
]  # fmt: skip

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.config import default_float
from gpflow.functions import Linear as LinearFunction
from gpflow.functions import Zero
from gpflow.kernels import Constant, Linear
from gpflow.likelihoods import Likelihood
from gpflow.utilities import set_trainable
from scipy.stats import norm

from ..bases import DualBasis
from ..distributions import BaseLike
from ..errors import DataError, ModelError, check_option
from ..inducing import Weights
from ..inducing.weights import weight_parts
from ..inputs import as_pair, as_values, is_number
from ..likelihoods import Laplace
from ..likelihoods.laplace import LaplaceLoss
from ..likelihoods.prior_sites import LossWithPriors
from ..likelihoods.registry import index_columns
from ..linalg.triangular import lower_gram, lower_product
from ..linalg.whitening import apply_per_latent
from ..probability import tfp
from ..summaries import html_table, one_line, short_repr
from .affine_independent import AffineIndependentGP
from .basis_gp import BasisGP
from .checks import (
    check_likelihood,
    check_num_data,
    check_shapes_of_data,
    check_values,
    infer_num_latent_gps,
)
from .decoupled import SparseCVIGP
from .full_gp import CVIGP, LCLGP, FullGP
from .linear_parts import (
    linear_mean,
    linear_prior,
    location_and_scale,
    scalar_prior,
    split_prior,
    with_intercept,
)

# ---
# The posterior of a linear model's weights.


if TYPE_CHECKING:
    import pandas as pd


class WeightsPosterior(NamedTuple):
    """Mean and covariance of a linear model's q(w), the intercept last.

    Example::

        mean, covariance = weights_posterior(model)
        deviations = np.sqrt(np.diag(covariance))
    """

    mean: tf.Tensor
    """[p], or [p, L] for several latents."""
    covariance: tf.Tensor
    """[p, p], or [L, p, p]."""

    def __repr__(self) -> str:
        return one_line(self, **self._asdict())

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self._asdict())

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations [L, p] of the weights."""
        means = np.asarray(self.mean).reshape(len(self.mean), -1).T
        variances = np.diagonal(np.asarray(self.covariance), axis1=-2, axis2=-1)
        return means, np.sqrt(np.atleast_2d(variances))

    def summary(self, names: Iterable[object] | None = None, level: float = 0.95) -> pd.DataFrame:
        """A table with a row per weight: "mean", "sd", and an interval from "lower" to "upper".

        :param names: of the weights, say a data frame's columns; None is w0, w1, ... The intercept
            may be omitted.
        :param level: probability of the interval mean -+ z sd, approximate for an
            `AffineIndependentGLM`.
        :return: a pandas data frame [p, 4]; for several latents [L p, 4], latent first.
        :raises ImportError: with the fix, if pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "summary makes a table of pandas, which is not installed: pip install pandas. The"
                " numbers are in mean and covariance."
            ) from error
        if not (is_number(level) and 0.0 < level < 1.0):
            raise DataError(
                f"level={short_repr(level)} must be a number between 0 and 1, for example 0.95."
            )
        means, deviations = self.moments
        labels = weight_labels(names, means.shape[1])
        several = np.ndim(self.mean) == 2
        index = (
            pd.MultiIndex.from_product([range(len(means)), labels], names=["latent", "weight"])
            if several
            else labels
        )
        mean, sd, z = means.ravel(), deviations.ravel(), float(norm.ppf(0.5 + 0.5 * level))
        return pd.DataFrame(
            {"mean": mean, "sd": sd, "lower": mean - z * sd, "upper": mean + z * sd}, index=index
        )


def weight_labels(names: Iterable[object] | None, count: int) -> list[object]:
    """A name for each weight; `DataError` for too few or too many."""
    if names is None:
        return [f"w{number}" for number in range(count)]
    if isinstance(names, str):
        raise DataError(f"names={short_repr(names)} is a string; pass a list of {count} names.")
    given = list(getattr(names, "columns", names))
    if len(given) == count - 1:
        given.append("intercept")
    if len(given) != count:
        raise DataError(
            f"There are {count} weights and {len(given)} names; pass one for each, or one less"
            " where the last weight is the intercept."
        )
    return given


# ---
# Linear models by conjugate computation, (C29) to (C31).


def _checked(
    data: RegressionData, likelihood: Likelihood, latents: int | None, intercept: bool
) -> tuple[np.ndarray, np.ndarray, int]:
    """X [N, p], Y [N, P] and L, if they fit together."""
    check_likelihood(likelihood)
    X, Y = (as_values(array, name) for array, name in zip(as_pair(data), "XY"))
    if latents is None and likelihood.latent_dim is None and Y.ndim == 2:
        latents = Y.shape[1] - index_columns(likelihood)
    latents = infer_num_latent_gps(Linear(), likelihood, latents)
    check_shapes_of_data(X, Y, likelihood, latents, None)
    check_values(X, Y, likelihood)
    empty = np.flatnonzero(~np.any(X != 0, axis=1))
    if not intercept and len(empty):
        raise DataError(
            f"{len(empty)} rows of X are all zero, row {empty[0]} first: without an intercept they"
            " say nothing of the weights; remove them, or use intercept=True."
        )
    return X, Y, latents


_MAX_ROWS = 10_000
"""Most rows of X that decide the start of q."""


def CVIGLM(
    data: RegressionData,
    likelihood: Likelihood,
    *,
    prior: tfp.distributions.Distribution | None = None,
    intercept: bool = True,
    intercept_variance: float = 1e4,
    num_latent_gps: int | None = None,
    num_data: int | None = None,
    form: str = "auto",
) -> SparseCVIGP | CVIGP:
    """Return a Bayesian generalised linear model p(y | x^T w + b), ready to be trained.

    "weight" has the weights as inducing variables with tied sites; "function" is a GP with kernel
    x^T S x'. The prior is not trained. Cost per step: N p^2 + p^3 for "weight"; N^3 for "function",
    and N^2 p once.

    :param data: X [N, p], Y [N, P]; the form "weight" does not keep them.
    :param likelihood: any GPflow likelihood, such as `Bernoulli(invlink=tf.sigmoid)`.
    :param prior: a TFP `MultivariateNormalDiag`, `...TriL` or `...FullCovariance` over the weights
        [p], or a `Normal` of batch shape [] or [p], for every latent; by default N(0, I).
    :param intercept: add a weight b.
    :param intercept_variance: its prior is N(0, intercept_variance).
    :param num_latent_gps: L; by default the likelihood's, else the columns of Y.
    :param num_data: N, if `data` are the first rows.
    :param form: "weight" (p x p matrices), "function" (N x N), or "auto", the smaller.
    :return: for "weight" a `SparseCVIGP` on `inducing.Weights`, for "function" a `CVIGP`. See
        `weights_posterior`.

    Example::

        model = CVIGLM((X, Y), gpflow.likelihoods.Poisson())
        result = sweep(model, (X, Y))
        mean, covariance = weights_posterior(model)
    """
    check_option("form", form, ("auto", "weight", "function"))
    check_num_data(num_data)
    X, Y, latents = _checked(data, likelihood, num_latent_gps, intercept)
    if num_data is not None and num_data < len(X):
        raise DataError(
            f"num_data={num_data} is less than the {len(X)} rows of the data, which are a part"
            " of N."
        )
    mean, kernel = linear_prior(prior, X.shape[1])
    kernel = with_intercept(kernel, intercept_variance if intercept else None)
    mean_function = linear_mean(mean, latents)
    weights, total = X.shape[1] + int(intercept), len(X) if num_data is None else num_data
    if form == "weight" or (form == "auto" and weights <= total):
        model = SparseCVIGP(
            kernel,
            likelihood,
            Weights(weights),
            mean_function=mean_function,
            num_latent_gps=latents,
            num_data=total,
        )
        _narrow(model, X[:: -(-len(X) // _MAX_ROWS)])
        return model
    if total != len(X):
        raise DataError(
            f"num_data={num_data} and the data have {len(X)} rows: in function space, which is"
            f" chosen for {weights} weights, the model owns all data. Pass all rows, or"
            ' form="weight".'
        )
    full = CVIGP((X, Y), kernel, likelihood, mean_function=mean_function, num_latent_gps=latents)
    full.basis.tau.assign(np.ones(full.basis.tau.shape))  # then no variance of eta is above 1
    return full


def weights_posterior(model: BasisGP | FullGP) -> WeightsPosterior:
    """Return mean and covariance of the weights of a linear model.

    Cost p^3 in the form "weight" of `CVIGLM`, else N p^2.

    :param model: of `CVIGLM`, `LCLGLM` or `AffineIndependentGLM`, or with a linear kernel on all
        data or on `inducing.Weights`.
    :return: mean [p] and covariance [p, p], or [p, L] and [L, p, p] for L latents; the intercept
        last.

    Example::

        model = CVIGLM((X, Y), gpflow.likelihoods.Poisson(), intercept=False)
        sweep(model, (X, Y))
        weights_posterior(model).summary(frame.columns)  # mean, deviation and interval of each
    """
    if not isinstance(model, (BasisGP, FullGP)):
        raise ModelError(
            "weights_posterior reads the weights off a linear model of this package, and got"
            f" {type(model).__name__}: make the model by CVIGLM, LCLGLM or AffineIndependentGLM."
        )
    kernel, mean_function = model.kernel, model.mean_function
    try:
        has_intercept = isinstance(weight_parts(kernel)[-1], Constant)
    except NotImplementedError as error:
        raise ModelError(f"This is no linear model. {error}") from error
    if not isinstance(mean_function, (Zero, LinearFunction)):
        raise ModelError(
            f"The mean function is a {type(mean_function).__name__}, not linear: the weights have"
            " no mean. Use gpflow.functions.Linear, or none."
        )
    if isinstance(model, FullGP):
        mean, covariance = _weights_of_function(model, has_intercept)
    elif model.basis.ties_sites and isinstance(model.basis.beta, Weights):
        mean, covariance = _inducing_weights(model, has_intercept)
    else:
        raise ModelError(
            f"The weights of a {type(model).__name__} are known only with inducing.Weights; use"
            " CVIGLM or LCLGLM."
        )
    if model.num_latent_gps == 1:
        return WeightsPosterior(mean[:, 0], covariance[0])
    return WeightsPosterior(mean, covariance)


def _inducing_weights(model: BasisGP, has_intercept: bool) -> tuple[tf.Tensor, tf.Tensor]:
    state = model.basis.factor(model.kernel, with_kl=False)
    (part,), (frame,) = model.basis.gaussians(state), model.basis.whiteners(state)
    mean = apply_per_latent(frame.chol, part.mean)
    if isinstance(model.mean_function, LinearFunction):
        constant = tf.broadcast_to(model.mean_function.b, [1, model.num_latent_gps])
        parts = [model.mean_function.A, constant] if has_intercept else [model.mean_function.A]
        mean += tf.concat([tf.convert_to_tensor(part) for part in parts], axis=0)
    return mean, lower_gram(lower_product(frame.chol, part.root))


def _weights_of_function(model: FullGP, has_intercept: bool) -> tuple[tf.Tensor, tf.Tensor]:
    columns = int(model.data[0].shape[1])
    units = np.eye(columns + 1, columns, dtype=default_float())
    eta, cov = model.predict_f(units, full_cov=True)
    mean = eta[:-1] - eta[-1:]
    rows = cov[:, :-1] - cov[:, -1:]
    covariance = rows[..., :-1] - rows[..., -1:]
    if not has_intercept:
        return mean, covariance
    cross = rows[..., -1:]  # of w and b
    upper = tf.concat([covariance, cross], axis=-1)
    lower = tf.concat([tf.linalg.matrix_transpose(cross), cov[:, -1:, -1:]], axis=-1)
    return tf.concat([mean, eta[-1:]], axis=0), tf.concat([upper, lower], axis=-2)


def _narrow(model: SparseCVIGP, X: np.ndarray) -> None:
    basis, kernel = model.basis, model.kernel
    (A,) = basis.features(basis.factor(kernel), kernel, tf.convert_to_tensor(X)).minus
    power = tf.reduce_mean(tf.square(A[0]), axis=1)
    deviations = tf.math.rsqrt(1.0 + tf.cast(tf.size(power), power.dtype) * power)
    basis.q_sqrt.assign(tf.broadcast_to(tf.linalg.diag(deviations), basis.q_sqrt.shape))


# ---
# Linear models by the Lagrangian, with Gaussian or Laplace priors.


_WIDTH = 10.0
"""tau / b: larger needs fewer outer iterations, and loses digits of the weights' multipliers."""


class LaplacePriorLCLGP(LCLGP):
    """A linear model p(y | x^T w + b) with Laplace priors of the weights, made by `LCLGLM`.

    The kernel has N(mu_d, (10 b_d)^2) and the site the quotient of the priors, with loss (V30). A
    bound costs (N + p) p^2 + p^3 / 3 per latent.

    :param data: X [N, p], Y [N, L].
    :param location: of the priors [p].
    :param scale: of the priors, above 0: [p], or [] if shared.
    :param intercept_variance: of the Gaussian prior of b; None for no intercept.
    """

    def __init__(
        self,
        data: RegressionData,
        likelihood: Likelihood,
        location: np.ndarray,
        scale: np.ndarray,
        *,
        intercept_variance: float | None,
        num_latent_gps: int,
    ) -> None:
        self.location = np.tile(np.asarray(location, default_float())[:, None], num_latent_gps)
        """mu [p, L]."""
        scale = np.asarray(scale, default_float())
        self.weight_prior = Laplace(scale[:, None] if scale.ndim else scale)
        set_trainable(self.weight_prior, False)
        tau = np.broadcast_to(_WIDTH * scale, [len(location)])
        kernel = with_intercept(Linear(variance=np.square(tau)), intercept_variance)
        mean_function = linear_mean(location, num_latent_gps)
        super().__init__(
            data,
            kernel,
            likelihood,
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            form="weight",
        )

    def _make_basis(self, form: str) -> DualBasis:
        return DualBasis(
            self.data[0].numpy(), self.num_latent_gps, form, weight_sites=len(self.location)
        )

    def site_loss(self) -> LossWithPriors:
        """Losses of the observations, then of the weights minus the Gaussians': [N + p, L]."""
        priors = LaplaceLoss(self.weight_prior, self.location)
        return LossWithPriors(self.observation_loss(), priors, self._precision)

    def prior_mean(self) -> tf.Tensor:
        return tf.concat(
            [super().prior_mean(), tf.constant(self.location, self.data[0].dtype)], axis=0
        )

    def prior_kl(self) -> tf.Tensor:
        """KL[q(w, b) || p(w, b)] in nats, a scalar, with the Laplace priors."""
        state = self.basis.factor(self.kernel)
        count = self.basis.num_data
        of_weights = self.site_loss().value(
            self.prior_mean() + state.mean, tf.sqrt(state.variance)
        )[count:]
        return self.basis.prior_kl(state) + tf.reduce_sum(of_weights)  # (V30)

    def _precision(self) -> tf.Tensor:
        return 1.0 / tf.convert_to_tensor(weight_parts(self.kernel)[0].variance)


def LCLGLM(
    data: RegressionData,
    likelihood: Likelihood,
    *,
    prior: tfp.distributions.Distribution | None = None,
    intercept: bool = True,
    intercept_variance: float = 1e4,
    num_latent_gps: int | None = None,
    form: str = "auto",
) -> LCLGP:
    """Return a Bayesian generalised linear model p(y | x^T w + b) as an `LCLGP`.

    The posterior is Gaussian under a Laplace prior too, whose `model.weight_prior.scale` is trained
    only after `gpflow.set_trainable`. Arguments and errors as `CVIGLM`. An evaluation costs N p^2 +
    p^3 / 3, with Laplace priors (N + p) p^2 + p^3 / 3, or 2/3 N^3.

    :param likelihood: one with a site loss, see `likelihoods.site_loss`.
    :param prior: also a `Laplace` of batch shape [] or [p], for each latent.
    :param form: Laplace priors need "weight".

    Example::

        model = LCLGLM(
            (X, Y), gpflow.likelihoods.Poisson(), prior=tfp.distributions.Laplace(0.0, 0.5)
        )
        LinearlyConstrainedLagrangian().run(model)
        mean, covariance = weights_posterior(model)
    """
    X, Y, latents = _checked(data, likelihood, num_latent_gps, intercept)
    variance = intercept_variance if intercept else None
    scalar = scalar_prior(prior, X.shape[1])
    if isinstance(scalar, tfp.distributions.Laplace):
        check_option("form", form, ("auto", "weight", "function"))
        if form == "function":
            raise DataError(
                'Laplace priors need form="weight", or "auto": each weight is one more site, and'
                ' the form "function" would need matrices with N + p rows, more than the p weights.'
            )
        location, scale = location_and_scale(scalar)
        return LaplacePriorLCLGP(
            (X, Y),
            likelihood,
            np.broadcast_to(location, [X.shape[1]]),
            np.broadcast_to(scale, [X.shape[1]]) if scale.size > 1 else scale.reshape([]),
            intercept_variance=variance,
            num_latent_gps=latents,
        )
    if scalar is not None and not isinstance(scalar, tfp.distributions.Normal):
        raise DataError(
            f"prior is a {type(scalar).__name__}; LCLGLM takes a Laplace, a Normal or a"
            " multivariate normal of tensorflow_probability.distributions. AffineIndependentGLM"
            " takes other scalar distributions too."
        )
    mean, kernel = linear_prior(prior, X.shape[1])
    options = {"mean_function": linear_mean(mean, latents), "num_latent_gps": latents}
    return LCLGP((X, Y), with_intercept(kernel, variance), likelihood, form=form, **options)


# ---
# Linear models with a non-Gaussian posterior.


def AffineIndependentGLM(
    data: RegressionData,
    likelihood: Likelihood,
    *,
    prior: tfp.distributions.Distribution | None = None,
    intercept: bool = True,
    intercept_variance: float = 1e4,
    base: BaseLike = "skew_normal",
    structure: str = "full",
    non_normal: int | None = None,
    route: str = "auto",
    frequencies: int | None = None,
    points: int | None = None,
    memory: float = 2.0**29,
) -> AffineIndependentGP:
    """Return a linear model p(y | x^T w + b) with a non-Gaussian posterior q(w, b).

    An `AffineIndependentGP` on the weights, whose moments `weights_posterior` has. Other arguments
    as for that class and for `CVIGLM`. A bound costs p^3 + N p^2 + N p T for T frequencies.

    :param data: X [N, p], Y [N, 1].
    :param prior: also a scalar distribution such as `Laplace`, of batch shape [] or [p], whose
        priors are sites.

    Example::

        model = AffineIndependentGLM((X, Y), BernoulliLogit(), prior=tfd.Laplace(0.0, 0.5))
        result = AffineIndependentAscent().run(model)
        weights = gd.models.weights_posterior(model)
    """
    X, Y, _ = _checked(data, likelihood, 1, intercept)
    mean, kernel, weight_priors = split_prior(prior, X.shape[1], intercept)
    return AffineIndependentGP(
        (X, Y),
        with_intercept(kernel, intercept_variance if intercept else None),
        likelihood,
        mean_function=linear_mean(mean, 1),
        inducing_variable=Weights(X.shape[1] + int(intercept)),
        base=base,
        structure=structure,
        non_normal=non_normal,
        route=route,
        frequencies=frequencies,
        points=points,
        memory=memory,
        weight_priors=weight_priors,
    )
