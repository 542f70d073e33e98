"""PAC-Bayes certificates: bounds of error rates on new data.

Read `certificate` first: it evaluates the `bounds`, inverses of `binary_kl`, at the error rates of
`classifiers` and the KL of `divergence`. `conditions` checks that the prior does not depend on the
data; `split` and `model_selection` choose such hyperparameters. `gaussian_certificate` certifies
Gaussian weights, say of `laplace_posterior`.
"""

from .binary_kl import binary_kl, inverse_binary_kl
from .bounds import hoeffding, maurer, mcallester, pinsker, seeger
from .certificate import PacBayesCertificate, pac_bayes_certificate
from .classifiers import ClassifierErrors, classifier_errors, predict_labels
from .gaussian_certificate import certify_gaussian
from .laplace_posterior import laplace_weights
from .model_selection import CertifiedSelection, select_by_certificate
from .split import split_for_certificate

__all__ = [
    "CertifiedSelection", "ClassifierErrors", "PacBayesCertificate", "binary_kl",
    "certify_gaussian", "classifier_errors", "hoeffding", "inverse_binary_kl", "laplace_weights",
    "maurer", "mcallester", "pac_bayes_certificate", "pinsker", "predict_labels", "seeger",
    "select_by_certificate", "split_for_certificate",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
