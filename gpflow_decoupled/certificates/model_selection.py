"""Choosing hyperparameters by their certificate, which stays valid: a bound at delta / J for each of J settings."""

from __future__ import annotations

__all__ = ["CertifiedSelection", "select_by_certificate"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpflow.base import RegressionData
from gpflow.models import InternalDataTrainingLossMixin

from ..errors import DataError
from .certificate import PacBayesCertificate, pac_bayes_certificate
from .classifiers import ClassifierErrors, checked_data, classifier_errors


@dataclass(frozen=True)
class CertifiedSelection:
    """What each setting came to; all certificates hold at once with probability 1 - delta, and so does that of the best."""

    settings: tuple
    certificates: tuple[PacBayesCertificate, ...]
    log_evidence: tuple[float, ...]
    """the models' evidence lower bounds, nats"""
    test_errors: tuple[ClassifierErrors, ...]
    """on held-out data; empty if there were none"""
    model: Any
    """of the best setting"""

    @property
    def best(self) -> int:
        """The place of the setting with the least bound."""
        bounds = [one.bound for one in self.certificates]
        return bounds.index(min(bounds))

    @property
    def certificate(self) -> PacBayesCertificate:
        """Of the best setting."""
        return self.certificates[self.best]

    def __str__(self) -> str:
        """A table, the best setting marked."""
        head = f"  {'setting':>12s}{'bound':>9s}{'Gibbs':>9s}{'KL':>10s}{'ELBO':>12s}"
        lines = [head + f"{'held-out Gibbs, Bayes':>24s}" if self.test_errors else head]
        for place, (setting, one, elbo) in enumerate(zip(self.settings, self.certificates, self.log_evidence)):
            mark = "*" if place == self.best else " "
            line = f"{mark} {setting!s:>12s}{one.bound:9.4f}{one.gibbs_error:9.4f}{one.kl:10.2f}{elbo:12.2f}"
            if self.test_errors:
                line += f"{self.test_errors[place].gibbs:15.4f}{self.test_errors[place].bayes:9.4f}"
            lines.append(line)
        return "\n".join(lines)


def select_by_certificate(
    build: Callable[[Any], Any],
    settings: Sequence,
    data: RegressionData,
    delta: float = 0.05,
    *,
    test: RegressionData | None = None,
) -> CertifiedSelection:
    """Train a model for each of J settings and certify it at delta / J; the setting with the least bound is the best.

    :param build: a function of a setting that returns a model with this prior, trained on `data` without learning the prior.
    :param settings: named before the data were seen, for example lengthscales. :param data: X [N, D], labels Y [N, 1].
    :param test: held-out X [N', D], Y [N', 1] for a comparison; nothing is chosen by them.

    Raises `DataError` for no settings, and as `pac_bayes_certificate`. Cost: J trainings. Example::

        def build(lengthscale):
            model = CVIGP(data, gpflow.kernels.SquaredExponential(10.0, lengthscale), BernoulliLogit())
            ConjugateComputation().run(model)
            return model

        selection = select_by_certificate(build, [0.5, 1.0, 2.0], data)
        print(selection.certificate)
    """
    settings = tuple(settings)
    if not settings:
        raise DataError("settings is empty; name at least one.")
    certificates: list[PacBayesCertificate] = []
    evidence, errors, best = [], [], None
    for setting in settings:
        model = build(setting)
        one = pac_bayes_certificate(model, data, delta, hyperparameters="fixed", settings=len(settings))
        if not certificates or one.bound < min(other.bound for other in certificates):
            best = model
        certificates.append(one)
        evidence.append(_elbo(model, data))
        errors += [] if test is None else [classifier_errors(model, test)]
    return CertifiedSelection(settings, tuple(certificates), tuple(evidence), tuple(errors), best)


def _elbo(model: Any, data: RegressionData) -> float:
    owns_data = isinstance(model, InternalDataTrainingLossMixin)
    return float(model.elbo() if owns_data else model.elbo(checked_data(model, data)))
