"""Latent Dirichlet allocation (Blei, Ng & Jordan 2003) by batch or stochastic variational inference.

    beta_k ~ Dir(eta),   theta_d ~ Dir(alpha),   z_dn ~ theta_d,   w_dn ~ beta_z
    q(beta_k) = Dir(lambda_k),   q(theta_d) = Dir(gamma_d),   q(z_dn = k) = phi_dwk                        (T1)-(T4)

| paper | code | shape |
|---|---|---|
| alpha | `doc_prior` | [K] |
| eta | `topic_prior` | [V] |
| lambda | `components_` | [K, V] |
| gamma | `state_.gamma` | [D, K] |
| tau_0, kappa | `delay`, `forgetting_rate` | [] |
"""

from __future__ import annotations

__all__ = ["LatentDirichletAllocation"]

from typing import Any

import numpy as np

from ..errors import check_option
from .model import TopicModel
from .options import check_prior
from .proportions.dirichlet_proportions import DirichletProportions

LEARNING = ("none", "symmetric", "vector")


class LatentDirichletAllocation(TopicModel):
    """Topics of documents, sklearn-style: `fit`, `partial_fit`, `transform`, `score`, `perplexity`, `components_`.

    :param num_topics: K. :param doc_prior: alpha, a number or an array [K]; 1 / K if None.
    :param topic_prior: eta, a number or an array [V]; 1 / K if None.
    :param learn_doc_prior: "none", "symmetric" or "vector": whether alpha is learned, by Newton's method.
    :param learn_topic_prior: whether a symmetric eta is learned.
    :param method: "batch", where the bound rises in every pass, or "stochastic", (T4): minibatches.
    :param max_passes: passes over all documents.
    :param tolerance: a batch fit stops where a pass gains less than this share of the bound.
    :param fresh_passes: passes in which documents also start anew and take the better of the two; slower, and a better
        optimum.
    :param max_local_steps: steps of a document in a pass.
    :param local_tolerance: they end where gamma changes by less in the mean over topics.
    :param start: topics start at one document each ("documents"), or at "random" as in scikit-learn.
    :param batch_size: documents of a minibatch. :param delay: tau_0 >= 0. :param forgetting_rate: kappa in (1/2, 1].
    :param num_documents: documents of the corpus that `partial_fit` sees parts of.
    :param seed: fixes the start and the minibatches. :param progress: whether a line shows passes and bound.

    Counts may be float32, and then all large arrays are. Cost of a pass: non-zeros of X times K times local steps, and
    memory for D K + K V numbers. Errors: see `fit`.
    """

    def __init__(
        self,
        num_topics: int = 10,
        *,
        doc_prior: Any = None,
        topic_prior: Any = None,
        learn_doc_prior: str = "none",
        learn_topic_prior: bool = False,
        method: str = "batch",
        max_passes: int = 100,
        tolerance: float = 2e-5,
        fresh_passes: int = 10,
        max_local_steps: int = 20,
        local_tolerance: float = 1e-3,
        start: str = "documents",
        batch_size: int = 256,
        delay: float = 64.0,
        forgetting_rate: float = 0.7,
        num_documents: int | None = None,
        seed: int = 0,
        progress: bool = False,
    ) -> None:
        self.num_topics = num_topics
        self.doc_prior = doc_prior
        self.topic_prior = topic_prior
        self.learn_doc_prior = learn_doc_prior
        self.learn_topic_prior = learn_topic_prior
        self.method = method
        self.max_passes = max_passes
        self.tolerance = tolerance
        self.fresh_passes = fresh_passes
        self.max_local_steps = max_local_steps
        self.local_tolerance = local_tolerance
        self.start = start
        self.batch_size = batch_size
        self.delay = delay
        self.forgetting_rate = forgetting_rate
        self.num_documents = num_documents
        self.seed = seed
        self.progress = progress

    @property
    def doc_prior_(self) -> np.ndarray:
        """The concentrations alpha [K], given or learned."""
        return self._shared().proportions.alpha

    def _proportions(self) -> DirichletProportions:
        check_option("learn_doc_prior", self.learn_doc_prior, LEARNING)
        prior = check_prior("doc_prior", self.doc_prior, self.num_topics, 1.0 / self.num_topics)
        if self.learn_doc_prior == "symmetric":
            prior = np.full_like(prior, prior.mean())
        return DirichletProportions(prior, self.learn_doc_prior)
