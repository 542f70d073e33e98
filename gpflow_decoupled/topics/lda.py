"""Latent Dirichlet allocation (Blei, Ng & Jordan 2003)."""

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

from __future__ import annotations

__all__ = ["LatentDirichletAllocation"]

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from ..errors import check_option
from .proportions.dirichlet_proportions import DirichletProportions
from .topic_model import TopicModel
from .topic_settings import check_prior

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
