"""Certificates of GP classifiers."""

from __future__ import annotations

__all__ = [
    "CERTIFIED", "ClassifierErrors", "ORIGINS", "PacBayesCertificate", "certificate_of",
    "check_classifier", "check_level", "checked_data", "classifier_errors", "divergence",
    "errors_of_marginals", "latent_moments", "pac_bayes_certificate", "predict_labels",
    "prior_origin", "stated_origin",
]  # fmt: skip

from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, RegressionData
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.kullback_leiblers import gauss_kl
from gpflow.likelihoods import Bernoulli
from gpflow.models import SVGP, VGP, GPModel
from scipy.special import erf, ndtr

from ..bases import AffineIndependentBasis, Basis, InducingBasis
from ..errors import DataError, ModelError, NumericalError, check_option
from ..inducing.variables import input_dims, rows_in
from ..inputs import as_array, as_inputs, as_pair, as_values, float_type, is_number, is_whole
from ..likelihoods import BernoulliLogit, BernoulliProbit
from ..models import BasisGP, FullGP
from ..models.checks import check_shapes_of_data, check_values
from ..models.lcl_linear import LaplacePriorLCLGP
from ..summaries import html_table, one_line, short_repr
from ..user_warnings import warn_user
from .bounds import maurer, mcallester, pinsker, seeger

# ---
# The Gibbs, Bayes and voting classifiers.


# With mean mu(x) and variance v(x) of q(f(x)), label y in {0, 1}, sign t = 2 y - 1, and the normal
# cdf Phi:
#
# | classifier | predicts the sign of | error rate on the sample |
# |---|---|---|
# | Gibbs | a fresh draw f(x) ~ q | mean of Phi(-t mu / sqrt v) |
# | Bayes | the mean mu(x) | share of points with t mu <= 0 |
# | voting | E sgn f(x) = 2 Phi(mu / sqrt v) - 1 | share of points with t E sgn f <= 0 |
#
# For Gaussian marginals the last two agree.


CERTIFIED = (
    "a model of gpflow_decoupled.models with a Gaussian posterior (ODVGP, SOLVEGP, HDVGP, DVGP,"
    " SparseCVIGP, CVIGP, LCLGP, CVIGLM, LCLGLM, BasisGP), or gpflow.models.VGP or SVGP"
)
"""The models that have certificates, for messages."""
_ROWS = 4096
"""Most inputs predicted at once."""
_PROBES = np.array([0.0, 0.1, 0.5, 1.0, 2.0, 5.0])
"""Values of f at which, with both signs, a likelihood is tested for symmetry."""
_SYMMETRY = 1e-6
"""Deviation of p(1 | f) + p(1 | -f) from 1 that counts as round-off."""


class ClassifierErrors(NamedTuple):
    """Error rates of the three classifiers on a sample.

    An undecided point, mu = 0, counts as an error.

    Example::

        errors = classifier_errors(model, (X, Y))
        errors.gibbs, errors.bayes, errors.voting
    """

    gibbs: float
    """The expectation over draws, mean of Phi(-t mu / sqrt v)."""
    bayes: float
    """Share of points with t mu <= 0."""
    voting: float
    """Share of points with t E sgn f <= 0."""

    def __repr__(self) -> str:
        return one_line(self, **self._asdict())

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self._asdict())


def classifier_errors(model: GPModel, data: RegressionData) -> ClassifierErrors:
    """Return the error rates of the Gibbs, Bayes and voting classifiers of a model.

    :param model: see `pac_bayes_certificate`.
    :param data: X [N, D] and labels Y [N, 1], 0 or 1.

    Example::

        held_out = classifier_errors(model, (X_test, Y_test))
        print(f"{held_out.bayes:.1%} of the predicted labels are wrong")
    """
    check_classifier(model)
    X, Y = checked_data(model, data)
    return errors_of_marginals(*latent_moments(model, X), Y)


def errors_of_marginals(mean: np.ndarray, deviation: np.ndarray, Y: np.ndarray) -> ClassifierErrors:
    """Return the three error rates from Gaussian marginals of f.

    mean and deviation are [N], labels Y [N, 1], 0 or 1.
    """
    signed = (2.0 * Y[:, 0] - 1.0) * mean
    ratio = _ratio(signed, deviation)
    gibbs, votes = ndtr(-ratio), erf(ratio / np.sqrt(2.0))
    return ClassifierErrors(
        float(np.mean(gibbs)), float(np.mean(signed <= 0.0)), float(np.mean(votes <= 0.0))
    )


def predict_labels(
    model: GPModel, Xnew: InputData, rule: str = "bayes", seed: int = 0
) -> np.ndarray:
    """Predict labels by one of the three classifiers.

    :param model: as for `classifier_errors`.
    :param Xnew: inputs [N, D].
    :param rule: "gibbs", with an independent draw per input, "bayes" or "voting".
    :param seed: of the draws.
    :return: labels [N, 1], 0 or 1; 0 where undecided.

    Example::

        labels = predict_labels(model, X_test, rule="bayes")
    """
    check_option("rule", rule, ("gibbs", "bayes", "voting"))
    check_classifier(model)
    inputs = as_inputs(Xnew, "Xnew", _columns(model), float_type(model.kernel))
    mean, deviation = latent_moments(model, np.asarray(inputs))
    if rule == "gibbs":
        score = mean + deviation * np.random.default_rng(seed).standard_normal(len(mean))
    else:
        score = mean if rule == "bayes" else erf(_ratio(mean, deviation) / np.sqrt(2.0))
    return (score > 0.0).astype(int)[:, None]


def latent_moments(model: GPModel, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation [N] of f at X [N, D], with the mean function."""
    parts = [model.predict_f(X[start : start + _ROWS]) for start in range(0, len(X), _ROWS)]
    mean, variance = (
        np.concatenate([np.asarray(part, float)[:, 0] for part in column]) for column in zip(*parts)
    )
    if not np.all(np.isfinite(mean) & np.isfinite(variance)):
        raise NumericalError(
            f"q(f) of the {type(model).__name__} is not finite at"
            f" {int(np.sum(~np.isfinite(mean + variance)))} of {len(X)} inputs: train the model, or"
            " increase the jitter by gpflow.config.set_default_jitter.",
            matrix="q(f)",
        )
    return mean, np.sqrt(np.maximum(variance, 0.0))


def check_classifier(model: GPModel) -> None:
    """Refuse a model without the three classifiers."""
    if not isinstance(model, GPModel):
        raise ModelError(
            f"Certificates and classifiers take {CERTIFIED}, and got {type(model).__name__}, which"
            " has no latent function of the inputs. For inputs X and labels Y use CVIGP((X, Y),"
            " kernel, BernoulliLogit())."
        )
    likelihood, latents = model.likelihood, int(model.num_latent_gps)
    if not isinstance(likelihood, (Bernoulli, BernoulliLogit, BernoulliProbit)):
        raise DataError(
            f"{type(likelihood).__name__} is not a likelihood of two classes: give the model a"
            " Bernoulli, BernoulliLogit or BernoulliProbit likelihood. For several classes,"
            " certify a model of one class against the rest."
        )
    if latents != 1 or getattr(model, "num_outputs", 1) != 1:
        raise DataError(
            f"The model has {latents} latent functions; a binary classifier is the sign of one."
            " Build it with one column of Y."
        )
    if isinstance(getattr(model, "basis", None), AffineIndependentBasis):
        raise ModelError(
            f"The marginals of an {type(model).__name__} are not Gaussian, and the error rates and"
            " KL[Q || P] are computed for Gaussian ones: use CVIGP or LCLGP with the same data,"
            " kernel and likelihood."
        )
    f = np.concatenate([-_PROBES[::-1], _PROBES])[:, None]
    p = np.asarray(
        likelihood.conditional_mean(tf.zeros_like(f), tf.constant(f, default_float())), float
    )
    if np.any(np.abs(p + p[::-1] - 1.0) > _SYMMETRY) or np.any(np.diff(p[:, 0]) < 0.0):
        raise DataError(
            f"The link of {type(likelihood).__name__} is not symmetric: p(y = 1 | f) + p(y = 1 |"
            " -f) is not 1, so that the sign of f is not the more probable class. Use"
            " BernoulliLogit or BernoulliProbit."
        )


def checked_data(model: GPModel, data: RegressionData) -> tuple[np.ndarray, np.ndarray]:
    """Return X [N, D] and Y [N, 1], labels 0 or 1, as arrays of floats."""
    X, Y = (
        as_values(array, name, float_type(model.kernel)) for array, name in zip(as_pair(data), "XY")
    )
    check_shapes_of_data(X, Y, model.likelihood, 1, _columns(model))
    check_values(X, Y, model.likelihood)
    return X, Y.astype(X.dtype)


def _columns(model: GPModel) -> int | None:
    if hasattr(model, "data"):
        return int(model.data[0].shape[1])
    return input_dims(model.basis.beta if hasattr(model, "basis") else model.inducing_variable)


def _ratio(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    certain = deviation == 0.0
    return np.where(
        certain, np.where(mean > 0.0, np.inf, -np.inf), mean / np.where(certain, 1.0, deviation)
    )


# ---
# The exact KL[Q || P] of a model.


# Q keeps P's conditional of f given finitely many values, so the KL of the processes is the KL of
# these values, `prior_kl`, with jitter as noise of the inducing values under both.


_DIVERGENCE_ROWS = 2048
"""Rows of the mean points' Gram matrix computed at a time."""


def divergence(model: GPModel) -> float:
    """Return the exact KL[Q || P] in nats, also for a model that subsamples its mean's norm.

    Cost: `prior_kl`, and M_gamma^2 if the norm is subsampled.
    """
    if isinstance(model, LaplacePriorLCLGP):
        kl = float(model.prior_kl())
    elif isinstance(model, (BasisGP, FullGP)):
        kl = _of_basis(model.basis, model.kernel)
    elif isinstance(model, VGP):
        kl = float(gauss_kl(model.q_mu, model.q_sqrt))
    elif isinstance(model, SVGP):
        kl = float(model.prior_kl())
    else:
        raise ModelError(
            f"KL[Q || P] of a {type(model).__name__} is not known: a certificate takes {CERTIFIED}."
            " With the same data, kernel and likelihood use CVIGP or LCLGP, or with inducing"
            " points SparseCVIGP."
        )
    if not np.isfinite(kl):
        raise NumericalError(
            f"KL[Q || P] is {kl}, because a factorisation failed: train the model again.",
            matrix="KL",
        )
    return max(kl, 0.0)


def _of_basis(basis: Basis, kernel: Kernel) -> float:
    mean = basis.kernel_mean if isinstance(basis, InducingBasis) else None
    if mean is None or mean.subsample is None:
        return float(basis.prior_kl(basis.factor(kernel)))
    blocks = [
        tf.range(start, min(start + _DIVERGENCE_ROWS, mean.size))
        for start in range(0, mean.size, _DIVERGENCE_ROWS)
    ]
    estimates = [float(basis.prior_kl(basis.factor(kernel, rows=rows))) for rows in blocks]
    return float(np.average(estimates, weights=[len(rows) for rows in blocks]))


# ---
# The condition: the prior is independent of the sample.


ORIGINS = {
    "fixed": "The prior did not depend on the data.",
    "split": "The prior was learned on other data.",
    "unknown": (
        "Whether the prior depends on the data is not known; if it does, these numbers are not"
        " bounds."
    ),
    "same-data": (
        "The prior was learned on the same data: these numbers are not bounds on the risk, only a"
        " score of the fit."
    ),
}
"""The origins of the prior's hyperparameters, and the meaning of the certificate."""
_FIX = (
    "Learn them on other rows (certificates.split_for_certificate), fix them before the data are"
    " seen, or choose from settings that were named beforehand"
    " (certificates.select_by_certificate)."
)


def check_level(delta: float, settings: int) -> None:
    """Raise `DataError` unless 0 < delta < 1 and the number of settings is at least 1."""
    if not is_number(delta) or not 0.0 < delta < 1.0:
        raise DataError(
            f"delta={short_repr(delta)}; the bound holds with probability 1 - delta: use a number"
            " between 0 and 1."
        )
    if not is_whole(settings, 1):
        raise DataError(
            f"settings={short_repr(settings)}; use the number of settings that were compared, at"
            " least 1."
        )


def prior_origin(
    model: GPModel, data: RegressionData, stated: str | None, learned_on: RegressionData | None
) -> str:
    """Return the origin of the prior: as stated, unless the data contradict it.

    X is [N, D], Y [N, 1]; other arguments as `pac_bayes_certificate`. Returns a key of `ORIGINS`.
    """
    if stated is not None:
        check_option("hyperparameters", stated, ("fixed", "split", "same-data"))
    if learned_on is not None:
        shared = _shared_rows(data, learned_on)
        stated = stated or "split"
        if shared:
            return _warned(f"{shared} of the {len(data[0])} rows are also in learned_on.")
    if stated == "same-data":
        return _warned("The hyperparameters were learned on these data.")
    if stated is not None:
        return stated
    trainable = _trainable(model)
    if not trainable:
        return "fixed"
    warn_user(
        f"{', '.join(trainable)} can be trained, and it is not known on which data they were: if on"
        ' these, the bounds do not hold. Pass hyperparameters="fixed" or "split" if they were'
        ' not, and otherwise "same-data". ' + _FIX,
    )
    return "unknown"


def stated_origin(stated: str) -> str:
    """Return the statement of `certify_gaussian`'s caller, with a warning for "same-data"."""
    check_option("hyperparameters", stated, ("fixed", "split", "same-data"))
    return _warned("The prior was chosen on these data.") if stated == "same-data" else stated


def _warned(finding: str) -> str:
    warn_user(
        f"{finding} The prior then depends on the sample, and the numbers are not bounds: the risk"
        " may be above them. " + _FIX,
    )
    return "same-data"


def _trainable(model: GPModel) -> list[str]:
    parts = (("kernel", model.kernel), ("mean_function", model.mean_function))
    return [
        f"{name} ({len(part.trainable_parameters)} Parameters)"
        for name, part in parts
        if part.trainable_parameters
    ]


def _shared_rows(data: RegressionData, other: RegressionData) -> int:
    try:
        others = [
            np.asarray(as_array(part, name), float) for part, name in zip(as_pair(other), "XY")
        ]
    except DataError as error:
        raise DataError(f"learned_on: {error}") from error
    here, there = np.hstack([np.asarray(part, float) for part in data]), np.hstack(others)
    if here.shape[1] != there.shape[1]:
        raise DataError(
            f"learned_on has {there.shape[1]} columns in X and Y together, and data has"
            f" {here.shape[1]}: pass the (X, Y) on which the hyperparameters of this model were"
            " learned."
        )
    return int(np.sum(rows_in(here, there)))


# ---


@dataclass(frozen=True)
class PacBayesCertificate:
    """Error rates on the sample, and PAC-Bayes bounds on the risk of the Gibbs classifier.

    Each holds with probability 1 - delta if the prior is independent of the sample; the first three
    hold together.

    Example::

        certificate = pac_bayes_certificate(model, (X, Y), hyperparameters="fixed")
        print(certificate)  # a table
        certificate.bound, certificate.bayes_bound, certificate.holds
    """

    gibbs_error: float
    """Error rate of the Gibbs classifier on the sample, in expectation over its draws."""
    bayes_error: float
    """Error rate of the Bayes classifier on the sample."""
    voting_error: float
    """Error rate of the voting classifier on the sample."""
    kl: float
    """KL[Q || P] in nats."""
    n: int
    """The number of observations."""
    delta: float
    """The probability with which the bounds may fail."""
    settings: int
    """J, the number of candidate settings of the hyperparameters; bounds are at delta / J."""
    seeger: float
    """Bound on the Gibbs risk by `seeger`."""
    maurer: float
    """The same by `maurer`."""
    pinsker: float
    """The same by `pinsker`."""
    mcallester: float
    """The same by `mcallester`; it need not hold together with the others."""
    hyperparameters: str
    """The origin of the prior: "fixed", "split", "unknown" or "same-data"."""

    @property
    def bound(self) -> float:
        """Bound on the risk of the Gibbs classifier: the least of Seeger's, Maurer's, Pinsker's."""
        return min(self.seeger, self.maurer, self.pinsker)

    @property
    def bayes_bound(self) -> float:
        """Bound on the risks of the Bayes and voting classifiers, twice the Gibbs bound.

        Where one errs, a posterior draw errs with probability at least 1/2.
        """
        return min(1.0, 2.0 * self.bound)

    @property
    def holds(self) -> bool | None:
        """True if the prior is independent of the sample (the bounds hold); None if unknown."""
        return {"unknown": None, "same-data": False}.get(self.hyperparameters, True)

    def __repr__(self) -> str:
        return one_line(
            self,
            bound=self.bound,
            kl=self.kl,
            n=self.n,
            delta=self.delta,
            hyperparameters=self.hyperparameters,
        )

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, {"bound": self.bound, **asdict(self)})

    def __str__(self) -> str:
        level = f"delta = {self.delta:g}" + (
            f" / {self.settings} settings" if self.settings > 1 else ""
        )
        rows = [
            ("Gibbs error on the sample", self.gibbs_error),
            ("Bayes error on the sample", self.bayes_error),
            ("voting error on the sample", self.voting_error),
            ("KL[Q || P], nats", self.kl),
            ("Gibbs risk <= (Seeger)", self.seeger),
            ("Gibbs risk <= (Maurer)", self.maurer),
            ("Gibbs risk <= (Pinsker)", self.pinsker),
            ("Gibbs risk <= (McAllester)", self.mcallester),
            ("Bayes risk <=", self.bayes_bound),
        ]
        lines = [f"PAC-Bayes certificate, n = {self.n}, {level}"]
        lines += [f"  {label:<27s}{value:10.4f}" for label, value in rows]
        return "\n".join([*lines, ORIGINS[self.hyperparameters]])


def pac_bayes_certificate(
    model: GPModel,
    data: RegressionData,
    delta: float = 0.05,
    *,
    hyperparameters: str | None = None,
    learned_on: RegressionData | None = None,
    settings: int = 1,
) -> PacBayesCertificate:
    """Bound the error rate of a binary classifier on new data.

    P has the model's kernel and mean function; Q may depend on the sample. Useful if KL[Q || P] is
    far below N. Cost: prediction at N points and one `prior_kl`.

    :param model: a model of this package with a Gaussian posterior, or `gpflow.models.VGP` or
        `SVGP`, with one latent function and a symmetric likelihood of two classes.
    :param data: X [N, D], labels Y [N, 1], 0 or 1: independent draws.
    :param delta: failure probability of the bounds over samples, in (0, 1).
    :param hyperparameters: "fixed" before the sample, learned on another part of a "split", or
        "same-data", without bounds. None: fixed if nothing is trainable, else unknown, with a
        warning.
    :param learned_on: X [N', D], Y [N', 1] of a split, searched for rows of `data`.
    :param settings: J, if these are the best of J settings fixed beforehand.
    :raises DataError: also for other likelihoods.
    :raises ModelError: for a posterior without a known KL.

    Example::

        model = CVIGP((X, Y), gpflow.kernels.SquaredExponential(), BernoulliLogit())
        ConjugateComputation().run(model)
        print(pac_bayes_certificate(model, (X, Y), delta=0.05, hyperparameters="fixed"))
    """
    # 1) what the caller states, the error rates on the sample, and whether the prior may depend on
    # it
    check_level(delta, settings)
    errors = classifier_errors(model, data)
    X, Y = checked_data(model, data)
    origin = prior_origin(model, (X, Y), hyperparameters, learned_on)
    # 2) the divergence, and the bounds
    return certificate_of(errors, divergence(model), len(X), delta, settings, origin)


def certificate_of(
    errors: ClassifierErrors, kl: float, n: int, delta: float, settings: int, origin: str
) -> PacBayesCertificate:
    """Return the certificate of error rates on n observations and KL[Q || P] in nats.

    :param settings: J; each bound is at delta / J, so that all J hold together.
    """
    known = (errors.gibbs, kl, n, delta / settings)
    bounds = {rule.__name__: float(rule(*known)) for rule in (seeger, maurer, pinsker, mcallester)}
    return PacBayesCertificate(
        errors.gibbs,
        errors.bayes,
        errors.voting,
        kl,
        n,
        float(delta),
        settings,
        **bounds,
        hyperparameters=origin,
    )
