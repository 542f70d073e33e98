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
# Latent Dirichlet allocation says that a document is a mixture of topics, and a topic a distribution over words. Its
# variational posterior is conjugate, so that coordinate ascent has closed forms; on minibatches the same updates are natural
# gradients (Hoffman et al. 2013). In the correlated topic model (Blei & Lafferty 2007) topics come together: proportions are a
# softmax of a Gaussian, which is not conjugate. Conjugate computation (Khan & Lin 2017) turns it back into Gaussian updates,
# or into an LDA in which every document has a prior of its own.
#
# Documents: Associated Press articles if a data folder with `text_ap.npz` is given by GPFLOW_DECOUPLED_DATA, else documents
# generated from topics that come in pairs.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

from gpflow_decoupled.topics import CorrelatedTopicModel, LatentDirichletAllocation, split_words

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)
articles = Path(os.environ.get("GPFLOW_DECOUPLED_DATA", "")) / "text_ap.npz"
REAL = articles.is_file() and not FAST
rng = np.random.default_rng(0)


def invent(num: int, words: int = 300, topics: int = 6) -> sp.csr_matrix:
    """Documents of six topics: 0 and 1 come together, 2 and 3, 4 and 5."""
    beta = rng.dirichlet(np.full(words, 0.05), topics)
    shared = rng.standard_normal((num, topics // 2)).repeat(2, axis=1)
    eta = 1.2 * shared + 1.0 * rng.standard_normal((num, topics))
    theta = np.exp(eta) / np.exp(eta).sum(1, keepdims=True)
    return sp.csr_matrix(np.array([rng.multinomial(80, row @ beta) for row in theta]).astype(float))


if REAL:
    with np.load(articles) as file:
        counts = sp.csr_matrix((file["count"].astype(float), (file["doc"], file["word"])), shape=tuple(file["shape"]))
        vocabulary = file["vocab"]
else:
    counts = invent(500 if FAST else 1000)
    vocabulary = np.array([f"word{place}" for place in range(counts.shape[1])])
K = 20 if REAL else 6
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
batch = LatentDirichletAllocation(K, doc_prior=0.1, topic_prior=0.1).fit(train)
stochastic = LatentDirichletAllocation(
    K, doc_prior=0.1, topic_prior=0.1, method="stochastic", batch_size=64, delay=4.0, max_passes=5
).fit(train)
gap = 1.0 - batch.score(train) / stochastic.score(train)
print(f"batch: {len(batch.history_['bound'])} passes; stochastic: 5 passes, {100 * gap:.2f} % short of its bound")

figure, axis = plt.subplots(figsize=(7, 3))
for name, model in (("batch", batch), ("stochastic, estimates", stochastic)):
    axis.plot(model.history_["pass"], model.history_["bound"] / train.sum(), "o-", markersize=3, label=name)
axis.set(xlabel="passes through the documents", ylabel="bound, nats a word")
axis.legend(frameon=False)
figure.savefig(OUTPUT / "topics_bound.png", dpi=120, bbox_inches="tight")

# %% [markdown]
# The words of the largest topics:

# %%
shares = batch.transform(train).mean(0)
for k in np.argsort(-shares)[:8]:
    print(f"{100 * shares[k]:4.1f} %  {' '.join(vocabulary[np.argsort(-batch.topics_[k])[:8]])}")

# %% [markdown]
# ## Topics that come together
#
# Three posteriors of the proportions: a Gaussian, a Gaussian with diagonal covariance, and a Dirichlet, whose prior becomes a
# pseudo-prior of LDA. A test document shows half of its words; the other half is scored, whatever the model.

# %%
learned = LatentDirichletAllocation(K, topic_prior=0.1, learn_doc_prior="vector").fit(train)
models = {"LDA": batch, "LDA, alpha learned": learned}
for posterior in ("gaussian", "diagonal", "dirichlet"):
    passes = 10 if REAL else 40
    models[f"correlated, {posterior}"] = CorrelatedTopicModel(
        K, topic_prior=0.1, posterior=posterior, max_passes=passes, fresh_passes=5
    ).fit(train)
perplexity = {name: model.perplexity(observed, held_out) for name, model in models.items()}
for name, value in perplexity.items():
    print(f"{name:24s} held-out perplexity {value:7.1f}")

# %% [markdown]
# The prior's correlations, topics ordered by their leading eigenvectors, so that those that come together stand together:

# %%
correlated = models["correlated, dirichlet"]
correlations = correlated.correlations_
vectors = np.linalg.eigh(correlations)[1]
places = np.argsort(np.arctan2(vectors[:, -2], vectors[:, -1]))
figure, axis = plt.subplots(figsize=(7, 5))
image = axis.imshow(correlations[np.ix_(places, places)], cmap="RdBu_r", vmin=-1.0, vmax=1.0)
names = [" ".join(vocabulary[np.argsort(-correlated.topics_[k])[:3]]) for k in places]
axis.set_xticks([])
axis.set_yticks(range(K), names, fontsize=8)
figure.colorbar(image, label="correlation")
figure.savefig(OUTPUT / "topics_correlations.png", dpi=120, bbox_inches="tight")

# %%
assert all(np.all(np.diff(m.history_["bound"]) >= -1e-6) for m in (batch, learned, *list(models.values())[2:]))
assert gap < 0.02
assert min(value for name, value in perplexity.items() if "correlated" in name) < perplexity["LDA"]
if not REAL:  # the three pairs are found: each topic goes with one other, and with no more
    together = (correlations - 2.0 * np.eye(K)).argmax(1)
    assert np.array_equal(together[together], np.arange(K))
