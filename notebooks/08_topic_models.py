# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Topic models
#
# Latent Dirichlet allocation says that a document is a mixture of topics, and a topic a distribution over words: word $n$ of
# document $d$ has a topic $z_{dn}$, drawn with the document's proportions $\theta_d$, and is drawn with that topic's
# probabilities,
#
# $$\theta_d \sim \operatorname{Dirichlet}(\alpha), \qquad z_{dn} \sim \theta_d, \qquad w_{dn} \sim \beta_{z_{dn}}.$$
#
# In the correlated topic model (Blei & Lafferty 2007) topics come together: proportions are a softmax of a Gaussian
# ([the mathematics](../mathematics/topics.md)).
#
# The `NUM` = 1,000 documents here are generated from six topics that come in pairs. (Run as a script, the notebook takes the
# Associated Press articles in `text_ap.npz`, if the variable `GPFLOW_DECOUPLED_DATA` names a folder that has them; `REAL`
# is true then.)

# %%
import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

from gpflow_decoupled.topics import (
    CorrelatedTopicModel,
    LatentDirichletAllocation,
    split_words,
)

# %% tags=["remove-cell"]
import os
from pathlib import Path

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"  # the tests run a smaller one
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)
articles = Path(os.environ.get("GPFLOW_DECOUPLED_DATA", "")) / "text_ap.npz"
REAL = articles.is_file() and not FAST
NUM = 500 if FAST else 1000

# %%
rng = np.random.default_rng(0)


def invent(num: int, words: int = 300, topics: int = 6) -> sp.csr_matrix:
    """Documents of six topics: 0 and 1 come together, 2 and 3, 4 and 5."""
    beta = rng.dirichlet(np.full(words, 0.05), topics)
    shared = rng.standard_normal((num, topics // 2)).repeat(2, axis=1)
    eta = 1.2 * shared + 1.0 * rng.standard_normal((num, topics))
    theta = np.exp(eta) / np.exp(eta).sum(1, keepdims=True)
    documents = [rng.multinomial(80, row @ beta) for row in theta]
    return sp.csr_matrix(np.array(documents).astype(float))


counts = invent(NUM)
vocabulary = np.array([f"word{place}" for place in range(counts.shape[1])])
K = 6
print(f"{counts.shape[0]} documents, {counts.shape[1]} words")

# %% tags=["remove-cell"]
if REAL:
    K = 20
    with np.load(articles) as file:
        counts = sp.csr_matrix(
            (file["count"].astype(float), (file["doc"], file["word"])),
            shape=tuple(file["shape"]),
        )
        vocabulary = file["vocab"]

# %% [markdown]
# A tenth of the documents is kept for tests; of each of them one half of the words is observed, the other half predicted.

# %%
order = rng.permutation(counts.shape[0])
test = len(order) // 10
train, (observed, held_out) = counts[order[test:]], split_words(counts[order[:test]])
print(f"{train.shape[0]} documents, {train.shape[1]} words, {train.nnz} cells")

# %% [markdown]
# ## All documents, and minibatches
#
# A batch fit raises the bound in every pass. Minibatches of documents need a few passes; their bound is an estimate, so both
# are scored at the end on the same documents.

# %%
priors = {"doc_prior": 0.1, "topic_prior": 0.1}
batch = LatentDirichletAllocation(K, **priors).fit(train)
stochastic = LatentDirichletAllocation(
    K, **priors, method="stochastic", batch_size=64, delay=4.0, max_passes=5
).fit(train)
gap = 1.0 - batch.score(train) / stochastic.score(train)
print(f"batch: {len(batch.history_['bound'])} passes")
print(f"stochastic: 5 passes, {100 * gap:.2f} % short of its bound")


# %% [markdown]
# Both bounds against passes:


# %% tags=["remove-input"]
figure, axis = plt.subplots(figsize=(8, 3.2), layout="constrained")
for name, model in (("batch", batch), ("stochastic, estimates", stochastic)):
    bound = model.history_["bound"] / train.sum()
    axis.plot(model.history_["pass"], bound, "o-", markersize=3, label=name)
axis.set(xlabel="passes through the documents", ylabel="bound, nats per word")
axis.legend(frameon=False)

# %% [markdown]
# The words of the largest topics:

# %%
shares = batch.transform(train).mean(0)
for k in np.argsort(-shares)[:8]:
    words = vocabulary[np.argsort(-batch.topics_[k])[:6]]
    print(f"{100 * shares[k]:4.1f} %  {' '.join(words)}")

# %% [markdown]
# ## Topics that come together
#
# Three posteriors of the proportions: a Gaussian, a Gaussian with diagonal covariance, and a Dirichlet, whose prior becomes a
# pseudo-prior of LDA. A test document shows half of its words; the other half is scored, whatever the model.

# %%
learned = LatentDirichletAllocation(K, topic_prior=0.1, learn_doc_prior="vector")
learned.fit(train)
models = {"LDA": batch, "LDA, alpha learned": learned}
passes = 10 if REAL else 40
for posterior in ("gaussian", "diagonal", "dirichlet"):
    models[f"correlated, {posterior}"] = CorrelatedTopicModel(
        K, topic_prior=0.1, posterior=posterior, max_passes=passes, fresh_passes=5
    ).fit(train)

# %%
perplexity = {
    name: model.perplexity(observed, held_out) for name, model in models.items()
}
for name, value in perplexity.items():
    print(f"{name:24s} held-out perplexity {value:7.1f}")

# %% [markdown]
# The prior's correlations, topics ordered by their leading eigenvectors, so that those that come together stand together:

# %% tags=["thumbnail", "remove-input"]
correlated = models["correlated, dirichlet"]
correlations = correlated.correlations_
vectors = np.linalg.eigh(correlations)[1]
places = np.argsort(np.arctan2(vectors[:, -2], vectors[:, -1]))
figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
image = axis.imshow(
    correlations[np.ix_(places, places)], cmap="RdBu_r", vmin=-1.0, vmax=1.0
)
largest = [np.argsort(-correlated.topics_[k])[:3] for k in places]
names = [" ".join(vocabulary[words]) for words in largest]
axis.set_xticks([])
axis.set_yticks(range(K), names, fontsize=8)
figure.colorbar(image, label="correlation")

# %% tags=["remove-cell"]
assert all(
    np.all(np.diff(m.history_["bound"]) >= -1e-6)
    for m in (batch, learned, *list(models.values())[2:])
)
assert gap < 0.02
assert (
    min(value for name, value in perplexity.items() if "correlated" in name)
    < perplexity["LDA"]
)
if (
    not REAL
):  # the three pairs are found: each topic goes with one other, and with no more
    together = (correlations - 2.0 * np.eye(K)).argmax(1)
    assert np.array_equal(together[together], np.arange(K))
for number in plt.get_fignums():  # of a script; a notebook has shown and closed them
    plt.figure(number).savefig(OUTPUT / f"08_{number}.png", bbox_inches="tight")
