"""PAC-Bayes certificates: bounds of error rates on new data.

Read `certificate` first: it evaluates the `bounds` at the error rates of classifiers and the KL of
a model, checks that the prior does not depend on the data, and chooses hyperparameters by bound.
`gaussian` certifies Gaussian weights.
"""

from .bounds import binary_kl, hoeffding, inverse_binary_kl, maurer, mcallester, pinsker, seeger
from .certificate import (
    CertifiedSelection,
    ClassifierErrors,
    PacBayesCertificate,
    classifier_errors,
    pac_bayes_certificate,
    select_by_certificate,
    split_for_certificate,
)
from .gaussian import certify_gaussian, laplace_weights

__all__ = [
    "CertifiedSelection", "ClassifierErrors", "PacBayesCertificate", "binary_kl",
    "certify_gaussian", "classifier_errors", "hoeffding", "inverse_binary_kl", "laplace_weights",
    "maurer", "mcallester", "pac_bayes_certificate", "pinsker", "seeger",
    "select_by_certificate", "split_for_certificate",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
