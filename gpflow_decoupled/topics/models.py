"""The correlated topic model."""

from __future__ import annotations

__all__ = ["CorrelatedTopicModel", "LatentDirichletAllocation"]

from dataclasses import dataclass
from numbers import Real
from typing import cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..errors import DataError, check_option
from ..summaries import short_repr
from .fitting import Progress, check_prior, check_whole
from .proportions import (
    CovariancePrior,
    DirichletProportions,
    GaussianProportions,
    LogisticDirichlet,
)
from .topic_model import TopicModel

# ---
# Latent Dirichlet allocation (Blei, Ng & Jordan 2003).


# Document d has proportions theta_d of K topics, topic k probabilities beta_k of V words, and each
# word w_dn a topic z_dn, (T1)-(T4):
#
#   beta_k ~ Dir(eta),   theta_d ~ Dir(alpha),   z_dn ~ theta_d,   w_dn ~ beta_z
#   q(beta_k) = Dir(lambda_k),   q(theta_d) = Dir(gamma_d),   q(z_dn = k) = phi_dwk
#
# | paper | code | shape |
# |---|---|---|
# | alpha | `doc_prior` | [K] |
# | eta | `topic_prior` | [V] |
# | lambda | `components_` | [K, V] |
# | gamma | `state_.gamma` | [D, K] |
# | tau_0, kappa | `delay`, `forgetting_rate` | [] |


LEARNING = ("none", "symmetric", "vector")


@dataclass(kw_only=True, eq=False, repr=False)
class LatentDirichletAllocation(TopicModel):
    """Latent Dirichlet allocation as a scikit-learn estimator.

    Cost of a pass: the non-zero counts times K times the local steps.

    :param num_topics: K.
    :param doc_prior: alpha, a number or an array [K]; 1 / K if None.
    :param topic_prior: eta, a number or an array [V]; 1 / K if None.
    :param learn_doc_prior: learn alpha by Newton's method: "none", "symmetric" or "vector".
    :param learn_topic_prior: learn a symmetric eta.
    :param method: "batch", whose bound rises in each pass, or "stochastic", with minibatches.
    :param max_passes: most passes over all documents.
    :param tolerance: a batch fit stops when a pass raises the bound by a smaller share.
    :param fresh_passes: passes that also start documents afresh: twice the time, better optima.
    :param max_local_steps: most steps of a document in a pass.
    :param local_tolerance: change of gamma, averaged over topics, at which a document's steps end.
    :param start: topics start at one document each ("documents"), or at draws ("random").
    :param batch_size: documents per minibatch.
    :param delay: tau_0 >= 0 of the step sizes (tau_0 + t)^-kappa.
    :param forgetting_rate: kappa in (1/2, 1].
    :param num_documents: documents with words in the corpus of which `partial_fit` sees parts.
    :param seed: of the start and the minibatches.

    Example::

        # [D, V], dense or sparse
        model = LatentDirichletAllocation(20, learn_doc_prior="vector").fit(counts)
        model.top_words(vectorizer.get_feature_names_out())
        model.transform(new_counts)  # expected proportions [D, K]
    """

    doc_prior: npt.ArrayLike | None = None
    learn_doc_prior: str = "none"

    @property
    def doc_prior_(self) -> np.ndarray:
        """The concentrations alpha [K], given or learned."""
        return cast(DirichletProportions, self._shared().proportions).alpha

    def _proportions(self) -> DirichletProportions:
        check_option("learn_doc_prior", self.learn_doc_prior, LEARNING)
        prior = check_prior("doc_prior", self.doc_prior, self.num_topics, 1.0 / self.num_topics)
        if self.learn_doc_prior == "symmetric":
            prior = np.full_like(prior, prior.mean())
        return DirichletProportions(prior, self.learn_doc_prior)


# ---


# Latent Dirichlet allocation with topic proportions that are a softmax of correlated Gaussians:
#
#   eta_d ~ N(mu_0, Sigma_0),   theta_d = softmax(eta_d)
#
# | paper | code | shape |
# |---|---|---|
# | mu_0, Sigma_0 | `mean_`, `covariance_` | [K], [K, K] |
# | the same for log-ratios to the last topic ("dirichlet") | | [K - 1], [K - 1, K - 1] |
# | m, V^-1 | `state_.mean`, `state_.precision` | [D, K], [D, K, K] or [D, K] |
# | c | `state_.c` | [D, K] |
# | lambda | `components_` | [K, V] |


POSTERIORS = ("gaussian", "diagonal", "dirichlet")


@dataclass(kw_only=True, eq=False, repr=False)
class CorrelatedTopicModel(TopicModel):
    """Topics with correlated proportions; methods and other arguments as
    `LatentDirichletAllocation`.

    A local step of a document with W distinct words costs W K, plus K^3 for a Gaussian or K^2 for a
    Dirichlet posterior; "gaussian" stores D K^2 numbers.

    :param posterior: "gaussian", q(eta_d) = N(m, V); "diagonal", with a diagonal V; or "dirichlet",
        q(theta_d) = Dir(c), in closed form.
    :param learn_prior: learn mu_0 and Sigma_0, which otherwise stay 0 and `prior_variance` times I.
    :param prior_variance: the diagonal of Sigma_0 at the start, and of its prior's mode.
    :param prior_documents: n_0, the weight of Sigma_0's inverse-Wishart prior, in documents; 0 for
        no prior, else above 2 K.
    :param start_passes: passes of `LatentDirichletAllocation` that find the first topics; 0 is
        slower and worse.

    Example::

        # [D, V], dense or sparse
        model = CorrelatedTopicModel(20, posterior="dirichlet").fit(counts)
        model.correlations_  # which topics occur together [K, K]
    """

    posterior: str = "gaussian"
    learn_prior: bool = True
    prior_variance: float = 1.0
    prior_documents: float = 0.0
    start_passes: int = 20
    max_local_steps: int = 5
    local_tolerance: float = 1e-2

    @property
    def mean_(self) -> np.ndarray:
        """The prior mean mu_0, [K], or [K - 1] for "dirichlet"."""
        return self._prior().mu

    @property
    def covariance_(self) -> np.ndarray:
        """The prior covariance Sigma_0, [K, K], or [K - 1, K - 1] for "dirichlet"."""
        return self._prior().Sigma

    @property
    def correlations_(self) -> np.ndarray:
        """Prior correlations [K, K] of the log-proportions, centred over topics."""
        covariance = self.covariance_
        if self.posterior == "dirichlet":  # the last log-ratio is 0
            covariance = np.pad(covariance, (0, 1))
        size = len(covariance)
        centring = np.eye(size) - 1.0 / size
        covariance = centring @ covariance @ centring
        deviations = np.sqrt(np.diagonal(covariance))
        return covariance / np.outer(deviations, deviations)

    def _prior(self) -> GaussianProportions | LogisticDirichlet:
        return cast(GaussianProportions | LogisticDirichlet, self._shared().proportions)

    def _proportions(self) -> GaussianProportions | LogisticDirichlet:
        check_whole("start_passes", self.start_passes, 0)
        check_option("posterior", self.posterior, POSTERIORS)
        K, dirichlet = self.num_topics, self.posterior == "dirichlet"
        check_whole("num_topics", K, 2)
        check_prior("prior_variance", self.prior_variance, 1, 1.0)
        size = K - 1 if dirichlet else K
        mu, Sigma = np.zeros(size), self.prior_variance * np.eye(size)
        prior = self._covariance_prior(Sigma)
        if dirichlet:
            return LogisticDirichlet(mu, Sigma, self.learn_prior, prior)
        return GaussianProportions(mu, Sigma, self.posterior == "diagonal", self.learn_prior, prior)

    def _covariance_prior(self, mode: np.ndarray) -> CovariancePrior | None:
        n, least = self.prior_documents, 2 * len(mode)
        if (
            not isinstance(n, Real)
            or isinstance(n, bool)
            or not np.isfinite(n)
            or not (n == 0.0 or n > least)
        ):
            raise DataError(
                f"prior_documents={short_repr(n)} must be 0, for no prior of the covariance, or"
                f" above {least}, twice its size, for a prior that is proper."
            )
        return CovariancePrior(float(n), mode) if n > 0.0 and self.learn_prior else None

    def _start(self, counts: sp.csr_matrix) -> Progress:
        begun = super()._start(counts)
        if self.start_passes == 0:
            return begun
        first = LatentDirichletAllocation(
            self.num_topics,
            topic_prior=self.topic_prior,
            learn_doc_prior="symmetric",
            learn_topic_prior=self.learn_topic_prior,
            start=self.start,
            seed=self.seed,
            max_passes=self.start_passes,
            fresh_passes=self.start_passes // 2,
        ).fit(counts)
        return begun._replace(shared=begun.shared._replace(components=first.components_))
