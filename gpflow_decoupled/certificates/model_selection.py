"""Choice of hyperparameters by certificate."""

from __future__ import annotations

__all__ = ["CertifiedSelection", "select_by_certificate", "split_for_certificate"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from gpflow.base import RegressionData
from gpflow.models import GPModel, InternalDataTrainingLossMixin

from ..errors import DataError
from ..inputs import (
    as_pair,
    as_values,
    check_finite_entries,
    check_same_rows,
    check_whole,
    is_number,
)
from ..summaries import described, html_table, one_line, short_repr
from .certificate import (
    ClassifierErrors,
    PacBayesCertificate,
    checked_data,
    classifier_errors,
    pac_bayes_certificate,
)

# ---
# A random split of a sample.


def split_for_certificate(
    data: RegressionData, fraction: float = 0.5, seed: int = 0, *, stratify: bool = False
) -> tuple[RegressionData, RegressionData]:
    """Split a sample at random into two disjoint parts.

    Learn hyperparameters on the first, posterior and certificate on the second.

    :param data: X [N, D] and Y [N, 1].
    :param fraction: share of the first part, in (0, 1).
    :param seed: of the split.
    :param stratify: equal class shares; not quite independent samples.
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
    generator = np.random.default_rng(seed)
    classes = (
        [np.flatnonzero(Y.reshape(-1) == label) for label in np.unique(Y)]
        if stratify
        else [np.arange(len(X))]
    )
    first = np.zeros(len(X), bool)
    for rows in classes:
        first[generator.permutation(rows)[: round(fraction * len(rows))]] = True
    if not 0 < np.sum(first) < len(X):
        raise DataError(
            f"fraction={fraction:g} of {len(X)} rows leaves one part empty; use a fraction closer"
            " to 0.5, or more rows."
        )
    return (X[first], Y[first]), (X[~first], Y[~first])


# ---


Setting = TypeVar("Setting")


@dataclass(frozen=True)
class CertifiedSelection(Generic[Setting]):
    """The certificates of all settings of the hyperparameters, and the best model.

    All certificates hold together with probability 1 - delta.

    Example::

        selection = select_by_certificate(build, [0.5, 1.0, 2.0], (X, Y))
        print(selection)  # a table, the best setting marked
        selection.settings[selection.best], selection.certificate.bound
    """

    settings: tuple[Setting, ...]
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
    build: Callable[[Setting], GPModel],
    settings: Sequence[Setting],
    data: RegressionData,
    delta: float = 0.05,
    *,
    test: RegressionData | None = None,
) -> CertifiedSelection[Setting]:
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
        evidence.append(_elbo(model, data))
        errors += [] if test is None else [classifier_errors(model, test)]
    return CertifiedSelection(settings, tuple(certificates), tuple(evidence), tuple(errors), best)


def _elbo(model: GPModel, data: RegressionData) -> float:
    owns_data = isinstance(model, InternalDataTrainingLossMixin)
    return float(model.elbo() if owns_data else model.elbo(checked_data(model, data)))
