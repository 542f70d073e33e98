"""Certificates of classifiers, and the choice of hyperparameters by them."""

from __future__ import annotations

__all__ = [
    "CertifiedSelection", "ClassifierErrors", "PacBayesCertificate", "certificate_of",
    "check_level", "classifier_errors", "divergence", "errors_of_marginals",
    "pac_bayes_certificate", "select_by_certificate", "split_for_certificate", "stated_origin",
]  # fmt: skip

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.config import default_float
from gpflow.kullback_leiblers import gauss_kl
from gpflow.models import SVGP, VGP, GPModel, InternalDataTrainingLossMixin
from scipy.special import ndtr

from ..bases import AffineIndependentBasis, InducingBasis
from ..errors import DataError, ModelError, NumericalError, check_option
from ..inducing.variables import input_dims, rows_in
from ..inputs import (
    as_array,
    as_pair,
    as_values,
    check_finite_entries,
    check_same_rows,
    check_whole,
    float_type,
    is_number,
)
from ..likelihoods.facts import label_kind, name_of
from ..models import BasisGP, FullGP
from ..models.checks import check_shapes_of_data, check_values
from ..models.linear import LaplacePriorLCLGP
from ..summaries import described, html_table, one_line, short_repr
from ..user_warnings import warn_user
from .bounds import maurer, mcallester, pinsker, seeger

# ---
# The Gibbs and the Bayes classifier.


# With mean mu(x) and variance v(x) of q(f(x)), label y in {0, 1}, sign t = 2 y - 1, and the normal
# cdf Phi:
#
# | classifier | predicts the sign of | error rate on the sample |
# |---|---|---|
# | Gibbs | a fresh draw f(x) ~ q | mean of Phi(-t mu / sqrt v) |
# | Bayes | the mean mu(x) | share of points with t mu <= 0 |
#
# Voting, the sign of E sgn f(x) = 2 Phi(mu / sqrt v) - 1, is Bayes for Gaussian marginals.


_CERTIFIED = (
    "a model of gpflow_decoupled.models with a Gaussian posterior (ODVGP, SOLVEGP, HDVGP, DVGP,"
    " SparseCVIGP, CVIGP, LCLGP, CVIGLM, LCLGLM, BasisGP), or gpflow.models.VGP or SVGP"
)
_ROWS = 4096  # most inputs predicted at once


class ClassifierErrors(NamedTuple):
    """Error rates of the two classifiers on a sample.

    An undecided point, mu = 0, counts as an error.

    Example::

        errors = classifier_errors(model, (X, Y))
        errors.gibbs, errors.bayes
    """

    gibbs: float
    """The expectation over draws, mean of Phi(-t mu / sqrt v)."""
    bayes: float
    """Share of points with t mu <= 0."""

    def __repr__(self) -> str:
        return one_line(self, **self._asdict())

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self._asdict())


def classifier_errors(model: GPModel, data: RegressionData) -> ClassifierErrors:
    """Return the error rates of the Gibbs and Bayes classifiers of a model.

    :param model: see `pac_bayes_certificate`.
    :param data: X [N, D] and labels Y [N, 1], 0 or 1.

    Example::

        held_out = classifier_errors(model, (X_test, Y_test))
        print(f"{held_out.bayes:.1%} of the predicted labels are wrong")
    """
    _check_classifier(model)
    X, Y = _checked_data(model, data)
    parts = [model.predict_f(X[start : start + _ROWS]) for start in range(0, len(X), _ROWS)]
    mean, variance = (
        np.concatenate([np.asarray(part, float)[:, 0] for part in column]) for column in zip(*parts)
    )
    finite = np.isfinite(mean) & np.isfinite(variance)
    if not np.all(finite):
        raise NumericalError(
            f"q(f) of the {type(model).__name__} is not finite at {int(np.sum(~finite))} of"
            f" {len(X)} inputs: train the model, or increase the jitter by"
            " gpflow.config.set_default_jitter.",
            matrix="q(f)",
        )
    return errors_of_marginals(mean, np.sqrt(np.maximum(variance, 0.0)), Y)


def errors_of_marginals(mean: np.ndarray, deviation: np.ndarray, Y: np.ndarray) -> ClassifierErrors:
    """The error rates from Gaussian marginals of f [N], for labels Y [N, 1], 0 or 1."""
    signed, certain = (2.0 * Y[:, 0] - 1.0) * mean, deviation == 0.0
    ratio = np.where(
        certain, np.where(signed > 0.0, np.inf, -np.inf), signed / np.where(certain, 1.0, deviation)
    )
    return ClassifierErrors(float(np.mean(ndtr(-ratio))), float(np.mean(signed <= 0.0)))


def _check_classifier(model: GPModel) -> None:
    if not isinstance(model, GPModel):
        raise ModelError(
            f"Certificates and classifiers take {_CERTIFIED}, and got {type(model).__name__}, which"
            " has no latent function of the inputs. For inputs X and labels Y use CVIGP((X, Y),"
            " kernel, BernoulliLogit())."
        )
    likelihood, latents = model.likelihood, int(model.num_latent_gps)
    if label_kind(likelihood) != "binary":
        raise DataError(
            f"{name_of(likelihood)} is not a likelihood of two classes: give the model a"
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
    f = np.array([-5.0, -2.0, -1.0, -0.5, -0.1, 0.0, 0.0, 0.1, 0.5, 1.0, 2.0, 5.0])[:, None]
    p = np.asarray(
        likelihood.conditional_mean(tf.zeros_like(f), tf.constant(f, default_float())), float
    )
    # 1e-6 is round-off
    if np.any(np.abs(p + p[::-1] - 1.0) > 1e-6) or np.any(np.diff(p[:, 0]) < 0.0):
        raise DataError(
            f"The link of {name_of(likelihood)} is not symmetric: p(y = 1 | f) + p(y = 1 |"
            " -f) is not 1, so that the sign of f is not the more probable class. Use"
            " BernoulliLogit or BernoulliProbit."
        )


def _checked_data(model: GPModel, data: RegressionData) -> tuple[np.ndarray, np.ndarray]:
    """X [N, D] and Y [N, 1], labels 0 or 1, as arrays of floats."""
    X, Y = (
        as_values(array, name, float_type(model.kernel)) for array, name in zip(as_pair(data), "XY")
    )
    columns: int | None
    if hasattr(model, "data"):
        columns = int(model.data[0].shape[1])
    else:
        columns = input_dims(
            model.basis.beta if hasattr(model, "basis") else model.inducing_variable
        )
    check_shapes_of_data(X, Y, model.likelihood, 1, columns)
    check_values(X, Y, model.likelihood)
    return X, Y.astype(X.dtype)


# ---
# The exact KL[Q || P] of a model.


# Q keeps P's conditional of f given finitely many values, so the KL of the processes is the KL of
# these values, `prior_kl`, with jitter as noise of the inducing values under both.


_DIVERGENCE_ROWS = 2048  # rows of the mean points' Gram matrix computed at a time


def divergence(model: GPModel) -> float:
    """Return the exact KL[Q || P] in nats, also for a model that subsamples its mean's norm.

    Cost: `prior_kl`, and M_gamma^2 if the norm is subsampled.
    """
    basis: Any = getattr(model, "basis", None)
    means: Any = basis.kernel_mean if isinstance(basis, InducingBasis) else None
    if isinstance(model, VGP):
        kl = float(gauss_kl(model.q_mu, model.q_sqrt))
    elif isinstance(model, (SVGP, LaplacePriorLCLGP)):
        kl = float(model.prior_kl())
    elif isinstance(model, (BasisGP, FullGP)) and (means is None or means.subsample is None):
        kl = float(basis.prior_kl(basis.factor(model.kernel)))
    elif isinstance(model, BasisGP):
        starts = range(0, means.size, _DIVERGENCE_ROWS)
        blocks = [tf.range(first, min(first + _DIVERGENCE_ROWS, means.size)) for first in starts]
        estimates = [
            float(basis.prior_kl(basis.factor(model.kernel, rows=rows))) for rows in blocks
        ]
        kl = float(np.average(estimates, weights=[len(rows) for rows in blocks]))
    else:
        raise ModelError(
            f"KL[Q || P] of a {type(model).__name__} is not known: a certificate takes"
            f" {_CERTIFIED}. With the same data, kernel and likelihood use CVIGP or LCLGP, or with"
            " inducing points SparseCVIGP."
        )
    if not np.isfinite(kl):
        raise NumericalError(
            f"KL[Q || P] is {kl}, because a factorisation failed: train the model again.",
            matrix="KL",
        )
    return max(kl, 0.0)


# ---
# The condition: the prior is independent of the sample.


_ORIGINS = {
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
    check_whole(1, settings=settings)


def stated_origin(stated: str, finding: str = "The prior was chosen on these data.") -> str:
    """The caller's statement of where the prior is from, with a warning for "same-data"."""
    check_option("hyperparameters", stated, ("fixed", "split", "same-data"))
    if stated == "same-data":
        warn_user(
            f"{finding} The prior then depends on the sample, and the numbers are not bounds: the"
            " risk may be above them. " + _FIX,
        )
    return stated


def _origin(
    model: GPModel, data: RegressionData, stated: str | None, learned_on: RegressionData | None
) -> str:
    """Where the prior is from: as stated, unless the data contradict it."""
    finding = "The hyperparameters were learned on these data."
    if learned_on is not None:
        shared = _shared_rows(data, learned_on)
        stated = stated or "split"
        if shared:
            finding = f"{shared} of the {len(data[0])} rows are also in learned_on."
            stated = "same-data"
    if stated is not None:
        return stated_origin(stated, finding)
    parts = (("kernel", model.kernel), ("mean_function", model.mean_function))
    trainable = [
        f"{name} ({len(part.trainable_parameters)} Parameters)"
        for name, part in parts
        if part.trainable_parameters
    ]
    if not trainable:
        return "fixed"
    warn_user(
        f"{', '.join(trainable)} can be trained, and it is not known on which data they were: if on"
        ' these, the bounds do not hold. Pass hyperparameters="fixed" or "split" if they were'
        ' not, and otherwise "same-data". ' + _FIX,
    )
    return "unknown"


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
        """Bound on the risk of the Bayes classifier, twice the Gibbs bound.

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
            ("KL[Q || P], nats", self.kl),
            ("Gibbs risk <= (Seeger)", self.seeger),
            ("Gibbs risk <= (Maurer)", self.maurer),
            ("Gibbs risk <= (Pinsker)", self.pinsker),
            ("Gibbs risk <= (McAllester)", self.mcallester),
            ("Bayes risk <=", self.bayes_bound),
        ]
        lines = [f"PAC-Bayes certificate, n = {self.n}, {level}"]
        lines += [f"  {label:<27s}{value:10.4f}" for label, value in rows]
        return "\n".join([*lines, _ORIGINS[self.hyperparameters]])


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
    check_level(delta, settings)
    errors = classifier_errors(model, data)
    X, Y = _checked_data(model, data)
    origin = _origin(model, (X, Y), hyperparameters, learned_on)
    return certificate_of(errors, divergence(model), len(X), delta, settings, origin)


def certificate_of(
    errors: ClassifierErrors, kl: float, n: int, delta: float, settings: int, origin: str
) -> PacBayesCertificate:
    """The certificate of error rates on n observations and KL[Q || P] in nats.

    Each bound is at delta / J, J = `settings`, so that all J hold together.
    """
    known = (errors.gibbs, kl, n, delta / settings)
    bounds = {rule.__name__: float(rule(*known)) for rule in (seeger, maurer, pinsker, mcallester)}
    return PacBayesCertificate(
        errors.gibbs,
        errors.bayes,
        kl,
        n,
        float(delta),
        settings,
        **bounds,
        hyperparameters=origin,
    )


# ---


# A random split of a sample, and a choice among settings named beforehand.


def split_for_certificate(
    data: RegressionData, fraction: float = 0.5, seed: int = 0
) -> tuple[RegressionData, RegressionData]:
    """Split a sample at random into two disjoint parts.

    Learn hyperparameters on the first, posterior and certificate on the second.

    :param data: X [N, D] and Y [N, 1].
    :param fraction: share of the first part, in (0, 1).
    :param seed: of the split.
    :return: the first part (X, Y) and the second part (X, Y).

    Example::

        first, second = split_for_certificate((X, Y), 0.3)
        kernel = gpflow.kernels.SquaredExponential()
        fit(CVIGP(first, kernel, BernoulliLogit()))
        model = CVIGP(second, kernel, BernoulliLogit())
        ConjugateComputation().run(model)
        certificate = pac_bayes_certificate(model, second, learned_on=first)
    """
    if not is_number(fraction) or not 0.0 < fraction < 1.0:
        raise DataError(f"fraction={short_repr(fraction)}; use a number between 0 and 1.")
    check_whole(0, seed=seed)
    X, Y = (as_values(array, name) for array, name in zip(as_pair(data), "XY"))
    for array, name in ((X, "X"), (Y, "Y")):
        check_finite_entries(array, name)
    if Y.ndim == 2 and Y.shape[1] != 1:
        raise DataError(
            f"Y has {Y.shape[1]} columns; certificates are for labels [N, 1]: pass one column, Y[:,"
            " :1]."
        )
    check_same_rows(X, Y)
    first = np.zeros(len(X), bool)
    rows = np.random.default_rng(seed).permutation(len(X))
    first[rows[: round(fraction * len(X))]] = True
    if not 0 < np.sum(first) < len(X):
        raise DataError(
            f"fraction={fraction:g} of {len(X)} rows leaves one part empty; use a fraction closer"
            " to 0.5, or more rows."
        )
    return (X[first], Y[first]), (X[~first], Y[~first])


@dataclass(frozen=True)
class CertifiedSelection:
    """The certificates of all settings of the hyperparameters, and the best model.

    All certificates hold together with probability 1 - delta.

    Example::

        selection = select_by_certificate(build, [0.5, 1.0, 2.0], (X, Y))
        print(selection)  # a table, the best setting marked
        selection.settings[selection.best], selection.certificate.bound
    """

    settings: tuple[Any, ...]
    """As passed."""
    certificates: tuple[PacBayesCertificate, ...]
    """One for each setting."""
    log_evidence: tuple[float, ...]
    """Evidence lower bounds of the models, in nats."""
    test_errors: tuple[ClassifierErrors, ...]
    """Error rates on held-out data, if any."""
    model: GPModel
    """The model of the best setting."""

    @property
    def best(self) -> int:
        """The index in `settings` of the smallest bound."""
        bounds = [one.bound for one in self.certificates]
        return bounds.index(min(bounds))

    @property
    def certificate(self) -> PacBayesCertificate:
        """The certificate of the best setting."""
        return self.certificates[self.best]

    def __repr__(self) -> str:
        return one_line(
            self,
            settings=len(self.settings),
            best=self.settings[self.best],
            bound=self.certificate.bound,
        )

    def _repr_html_(self) -> str:
        bounds = {str(setting): one.bound for setting, one in zip(self.settings, self.certificates)}
        best = described(self.settings[self.best])
        return html_table(f"{type(self).__name__}, best: {best}", bounds)

    def __str__(self) -> str:
        head = f"  {'setting':>12s}{'bound':>9s}{'Gibbs':>9s}{'KL':>10s}{'ELBO':>12s}"
        lines = [head + f"{'held-out Gibbs, Bayes':>24s}" if self.test_errors else head]
        for place, (setting, one, elbo) in enumerate(
            zip(self.settings, self.certificates, self.log_evidence)
        ):
            mark = "*" if place == self.best else " "
            line = (
                f"{mark}"
                f" {setting!s:>12s}{one.bound:9.4f}{one.gibbs_error:9.4f}{one.kl:10.2f}{elbo:12.2f}"
            )
            if self.test_errors:
                line += f"{self.test_errors[place].gibbs:15.4f}{self.test_errors[place].bayes:9.4f}"
            lines.append(line)
        return "\n".join(lines)


def select_by_certificate(
    build: Callable[[Any], GPModel],
    settings: Sequence[Any],
    data: RegressionData,
    delta: float = 0.05,
    *,
    test: RegressionData | None = None,
) -> CertifiedSelection:
    """Train a model for each of J settings of the hyperparameters; choose the smallest bound.

    Each is certified at delta / J (union bound).

    :param build: setting -> a model with this prior, trained on `data` with the prior fixed.
    :param settings: J settings, fixed before the data.
    :param data: X [N, D] and labels Y [N, 1], 0 or 1.
    :param delta: failure probability of all bounds.
    :param test: held-out X [N', D], Y [N', 1], for error rates alone.

    Example::

        def build(lengthscale):
            kernel = gpflow.kernels.SquaredExponential(10.0, lengthscale)
            model = CVIGP(data, kernel, BernoulliLogit())
            ConjugateComputation().run(model)
            return model

        selection = select_by_certificate(build, [0.5, 1.0, 2.0], data)
        print(selection.certificate)
    """
    settings = tuple(settings)
    if not settings:
        raise DataError("settings is empty; name at least one setting of the hyperparameters.")
    certificates: list[PacBayesCertificate] = []
    evidence, errors, best = [], [], None
    for setting in settings:
        model = build(setting)
        one = pac_bayes_certificate(
            model, data, delta, hyperparameters="fixed", settings=len(settings)
        )
        if not certificates or one.bound < min(other.bound for other in certificates):
            best = model
        certificates.append(one)
        owns_data = isinstance(model, InternalDataTrainingLossMixin)
        evidence.append(
            float(model.elbo() if owns_data else model.elbo(_checked_data(model, data)))
        )
        errors += [] if test is None else [classifier_errors(model, test)]
    return CertifiedSelection(settings, tuple(certificates), tuple(evidence), tuple(errors), best)
