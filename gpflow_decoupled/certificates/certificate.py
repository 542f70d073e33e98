"""Certificates of GP classifiers."""

from __future__ import annotations

__all__ = ["PacBayesCertificate", "certificate_of", "pac_bayes_certificate"]

from dataclasses import asdict, dataclass

from gpflow.base import RegressionData
from gpflow.models import GPModel

from ..summaries import html_table, one_line
from .bounds import maurer, mcallester, pinsker, seeger
from .classifiers import ClassifierErrors, checked_data, classifier_errors
from .conditions import ORIGINS, check_level, prior_origin
from .divergence import divergence


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
