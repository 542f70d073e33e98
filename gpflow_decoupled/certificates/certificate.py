"""A bound, from the training data alone, of the error rate that a GP classifier will have on new data."""

from __future__ import annotations

__all__ = ["PacBayesCertificate", "pac_bayes_certificate"]

from dataclasses import dataclass
from typing import Any

from gpflow.base import RegressionData

from .bounds import maurer, mcallester, pinsker, seeger
from .classifiers import checked_data, classifier_errors
from .conditions import ORIGINS, check_level, prior_origin
from .divergence import divergence


@dataclass(frozen=True)
class PacBayesCertificate:
    """Error rates on the sample, KL[Q || P], and bounds of the risk of the Gibbs classifier on new data.

    Each bound holds with probability 1 - delta over samples, if the prior did not depend on the sample. Seeger's, Maurer's and
    Pinsker's hold at once.
    """

    gibbs_error: float
    """on the sample, the expectation over draws"""
    bayes_error: float
    voting_error: float
    kl: float
    """KL[Q || P], nats"""
    n: int
    delta: float
    settings: int
    """J: among how many settings this one may have been chosen; each bound is at delta / J"""
    seeger: float
    maurer: float
    pinsker: float
    mcallester: float
    hyperparameters: str
    """where those of the prior come from: "fixed", "split", "unknown" or "same-data" """

    @property
    def bound(self) -> float:
        """The bound to quote for the Gibbs classifier, the least of the first three."""
        return min(self.seeger, self.maurer, self.pinsker)

    @property
    def bayes_bound(self) -> float:
        """Of the Bayes and the voting classifier: where they err, a draw errs with probability 1/2 or more."""
        return min(1.0, 2.0 * self.bound)

    @property
    def holds(self) -> bool | None:
        """Whether the prior was independent of the sample, so that the bounds hold; None where that is not known."""
        return {"unknown": None, "same-data": False}.get(self.hyperparameters, True)

    def __str__(self) -> str:
        """A table, and what it assumes."""
        level = f"delta = {self.delta:g}" + (f" / {self.settings} settings" if self.settings > 1 else "")
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
    model: Any,
    data: RegressionData,
    delta: float = 0.05,
    *,
    hyperparameters: str | None = None,
    learned_on: RegressionData | None = None,
    settings: int = 1,
) -> PacBayesCertificate:
    """Bounds of the error rate of a binary classifier on new data, from its training data alone.

    :param model: any model of this package with a Gaussian posterior, or `gpflow.models.VGP` or `SVGP`, with a symmetric
        likelihood of two classes. Its posterior, inducing inputs included, may have been learned on the same data.
    :param data: independent draws, X [N, D] and labels Y [N, 1] of 0 and 1, none of them picked by what the model makes of it.
    :param delta: the probability with which the sample may mislead, in (0, 1).
    :param hyperparameters: those of kernel and mean function: "fixed" before the sample was seen, learned on another "split",
        or learned on the "same-data", for which there is no bound. If None, a prior without trainable Parameters is taken
        as fixed, and for any other a warning says that it is not known.
    :param learned_on: the other data X [N', D], Y [N', 1]; rows in common are looked for.
    :param settings: J, among how many settings of the hyperparameters, named beforehand, this one is chosen by its result.

    A mean function other than zero is part of the prior, and the classifier is the sign of all of f. The bounds say nothing of
    data from elsewhere, and little while KL[Q || P] is not small against N.

    Raises `DataError` for unusable data, a delta outside (0, 1) and models that are no binary classifiers, `TypeError` where
    KL[Q || P] is not known, and `UnknownOptionError`. Cost: of predicting N marginals, and of `prior_kl`. Example::

        model = CVIGP((X, Y), gpflow.kernels.SquaredExponential(), BernoulliLogit())
        ConjugateComputation().run(model)
        print(pac_bayes_certificate(model, (X, Y), delta=0.05, hyperparameters="fixed"))
    """
    check_level(delta, settings)
    errors = classifier_errors(model, data)
    X, Y = checked_data(model, data)
    origin = prior_origin(model, (X, Y), hyperparameters, learned_on)
    kl, n = divergence(model), len(X)
    known = (errors.gibbs, kl, n, delta / settings)
    bounds = {rule.__name__: float(rule(*known)) for rule in (seeger, maurer, pinsker, mcallester)}
    return PacBayesCertificate(
        errors.gibbs, errors.bayes, errors.voting, kl, n, float(delta), settings, **bounds, hyperparameters=origin
    )
