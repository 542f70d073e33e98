"""Posterior objects: kinds of cache, what they keep, and their export."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from gpflow.posteriors import PrecomputeCacheType
from numpy.testing import assert_allclose

from gpflow_decoupled.errors import UnknownOptionError
from gpflow_decoupled.posteriors import cache_type
from tests.bounds.registry import variational
from tests.models.builders import MODELS, build

XNEW = np.random.default_rng(7).normal(size=(3, 2))
CACHES = ["tensor", "variable", "nocache", "TENSOR", None, *PrecomputeCacheType]


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", CACHES, ids=str)
def test_each_kind_of_cache_predicts_the_same(kind):
    model, _ = build("ODVGP")
    posterior = model.posterior(kind)
    expected = model.predict_f(XNEW, full_cov=True)
    has_cache = cache_type(kind) is not PrecomputeCacheType.NOCACHE
    assert (posterior.cache is not None) == has_cache
    verbs = (
        [posterior.fused_predict_f, posterior.predict_f]
        if has_cache
        else [posterior.fused_predict_f]
    )
    for verb in verbs:
        for left, right in zip(verb(XNEW, full_cov=True), expected):
            assert_allclose(left, right, rtol=1e-12)
    if not has_cache:
        with pytest.raises(ValueError, match="[Cc]ache"):
            posterior.predict_f(XNEW)


def test_an_unknown_cache_is_refused():
    model, _ = build("ODVGP")
    for wrong in ("tensors", 3):
        with pytest.raises(
            UnknownOptionError, match="precompute_cache=.* is not known; use one of 'tensor'"
        ):
            model.posterior(wrong)
        with pytest.raises(UnknownOptionError, match="is not known"):
            model.posterior().update_cache(wrong)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("kind", ["tensor", "variable"])
@pytest.mark.parametrize("name", MODELS)
def test_a_cache_is_as_old_as_its_last_update(name, kind):
    model, _ = build(name)
    posterior = model.posterior(kind)
    before, variables = posterior.predict_f(XNEW), posterior.cache
    for parameter in variational(model.basis):
        parameter.assign(1.1 * parameter)
    now = model.predict_f(XNEW)
    assert np.abs(now[0] - before[0]).max() > 1e-3
    assert_allclose(posterior.predict_f(XNEW)[0], before[0], rtol=1e-12)
    assert_allclose(posterior.fused_predict_f(XNEW)[0], now[0], rtol=1e-12)
    posterior.update_cache()
    for left, right in zip(posterior.predict_f(XNEW), now):
        assert_allclose(left, right, rtol=1e-10)
    if kind == "variable":
        assert all(left is right for left, right in zip(posterior.cache, variables))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["ODVGP", "DVGP", "SOLVEGP"])
def test_gradients_in_the_inputs(name):
    """Of cached predictions, for design and optimisation over X."""
    posterior = build(name)[0].posterior()
    inputs = tf.Variable(XNEW)
    with tf.GradientTape() as tape:
        mean, variance = posterior.predict_f(inputs)
        value = tf.reduce_sum(mean) + tf.reduce_sum(variance)
    gradient, step, direction = tape.gradient(value, inputs), 1e-6, np.ones((3, 2))
    ends = [
        float(
            sum(tf.reduce_sum(part) for part in posterior.predict_f(XNEW + sign * step * direction))
        )
        for sign in (1, -1)
    ]
    assert_allclose(np.sum(gradient), (ends[0] - ends[1]) / (2 * step), rtol=1e-5)
