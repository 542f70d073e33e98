"""PAC-Bayes certificates: bounds of a classifier's error rate on new data, from its training data alone."""

from .binary_kl import binary_kl, inverse_binary_kl
from .bounds import maurer, mcallester, pinsker, seeger
from .certificate import PacBayesCertificate, pac_bayes_certificate
from .classifiers import ClassifierErrors, classifier_errors, predict_labels
from .model_selection import CertifiedSelection, select_by_certificate
from .split import split_for_certificate

__all__ = [
    "CertifiedSelection", "ClassifierErrors", "PacBayesCertificate", "binary_kl", "classifier_errors", "inverse_binary_kl",
    "maurer", "mcallester", "pac_bayes_certificate", "pinsker", "predict_labels", "seeger", "select_by_certificate",
    "split_for_certificate",
]  # fmt: skip
