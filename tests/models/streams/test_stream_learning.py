"""What a stream learns of the kernel is the maximum of its bound; a stream that was saved goes on
as if it had not been.
"""

from __future__ import annotations

import copy
import pickle
import sys

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.bases.optimum import features_in
from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.models.stream_posterior import StreamBelief
from gpflow_decoupled.models.streams import Batch, bound, frame_at
from tests.bounds.registry import numpy_kernel
from tests.models.streams.problems import X, model_of, moments_of, observations
from tests.optimizers.problems import BETA, GAMMA, JITTER, NOISE
from tests.reference import streams as st
from tests.reference.grams import matern32

FIRST, LAST = slice(0, 10), slice(10, 24)


@pytest.fixture(autouse=True)
def _jitter():
    gpflow.config.set_default_jitter(JITTER)


def _profile(model, factor, variance, lengthscale):
    """The best bound of the second batch under a kernel, by the reference, where the first batch
    said `factor`.
    """

    def kernel(left, right):
        return matern32(left, right, variance, lengthscale)

    K, x = kernel(BETA, BETA) + JITTER * np.eye(len(BETA)), X[LAST]
    y = (observations()[LAST] - model.mean_function(x).numpy())[:, 0]
    held = st.projected(K, K, K, factor)
    total = st.absorbed(K, kernel(BETA, x), np.full(len(x), variance), y, NOISE, held)
    return st.bound(K, *st.best(K, total), total)


@pytest.mark.exhaustive
def test_kernel_is_learned_at_the_maximum_of_the_streaming_bound():
    model, Y = model_of(), observations()
    gpflow.set_trainable(model.likelihood, False)
    model.update((X[FIRST], Y[FIRST]))
    chol = np.linalg.inv(model.memory.chol[0].numpy())
    theta, Lambda = model.memory.theta.numpy()[:, 0], model.memory.precision[0].numpy()
    factor = st.Factor(chol.T @ theta, chol.T @ Lambda @ chol, float(model.memory.constant))
    before = _profile(model, factor, 1.3, 0.8)
    points = model.basis.beta.Z.numpy()
    record = model.update((X[LAST], Y[LAST]), learn=1)
    variance, lengthscale = (
        float(model.kernel.variance.numpy()),
        float(model.kernel.lengthscales.numpy()),
    )
    assert_allclose(record.bound, _profile(model, factor, variance, lengthscale), rtol=1e-9)
    assert record.bound > before + 0.1
    for change in ((1.05, 1.0), (0.95, 1.0), (1.0, 1.05), (1.0, 0.95)):
        moved = _profile(model, factor, change[0] * variance, change[1] * lengthscale)
        assert moved < record.bound
    assert np.array_equal(points, model.basis.beta.Z.numpy())
    # what was said is now held at the learned kernel, and an empty batch leaves all as it is
    assert_allclose(model.update((X[:0], Y[:0])).bound, record.bound, rtol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("basis", ["orthogonal", "solve"])
def test_learning_raises_the_bound_and_ends(basis):
    Y, models = observations(), [model_of(basis) for _ in range(2)]
    bounds = []
    for model, learn in zip(models, (0, 5)):
        model.update((X[FIRST], Y[FIRST]))
        bounds.append(model.update((X[LAST], Y[LAST]), learn=learn).bound)
    assert bounds[1] > bounds[0] + 0.1


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("basis", ["coupled", "solve"])
def test_streaming_bound_is_below_its_evidence_at_any_q_and_kernel(basis, rng):
    """log int p(f) l(u) p(y | f) df of the factor that the first batch left, at points that have
    moved.
    """
    model, Y = model_of(basis), observations()
    model.update((X[FIRST], Y[FIRST]))
    memory, points = model.memory, [part.Z.numpy() for part in model.basis.frame_points]
    new = [tf.constant(part + 0.2 * (k == 0)) for k, part in enumerate(points)]
    model.kernel.lengthscales.assign(1.1)
    basis = model.basis.moved_to(*(gpflow.inducing_variables.InducingPoints(part) for part in new))
    frame = frame_at(model, basis)
    old = memory.projected(frame, model.kernel, memory.links(frame))
    data = model.as_tensors((X[LAST], Y[LAST]))
    batch = Batch(*data, features_in(frame, model.kernel, data[0]))
    chol, joint, M = (
        np.linalg.inv(memory.chol[0].numpy()),
        np.concatenate([*points, X[LAST]]),
        memory.theta.shape[0],
    )
    factor = st.Factor(
        chol.T @ memory.theta.numpy()[:, 0],
        chol.T @ memory.precision[0].numpy() @ chol,
        float(memory.constant),
    )
    kept = np.concatenate([np.full(len(part), k != 0) for k, part in enumerate(points)])
    noise = np.where(kept, frame.noise[0, :M], memory.noise[0])
    K = numpy_kernel(model.kernel, 0)(joint, joint)
    K[:M, :M] += np.diag(noise)
    y = (Y[LAST] - model.mean_function(X[LAST]).numpy())[:, 0]
    exact = st.evidence(K, M, y, NOISE, factor)
    values = []
    for spread in (0.05, 0.3, 1.0):
        roots = tuple(
            tf.constant(np.tril(spread * rng.normal(size=(1, size, size)) + np.eye(size)))
            for size in frame.sizes
        )
        belief = StreamBelief(
            tf.constant(spread * rng.normal(size=(M, 1))), roots, tf.constant(True)
        )
        values.append(float(bound(model, frame, batch, old, belief)))
    assert max(values) < exact, (values, exact)


@pytest.mark.exhaustive
def test_a_stream_that_was_saved_goes_on(tmp_path):
    Y, model, fresh = observations(), model_of("orthogonal"), model_of("orthogonal")
    model.update((X[FIRST], Y[FIRST]), gamma=GAMMA[1:])
    gd.save(model, tmp_path / "model.zip")
    prefix = tf.train.Checkpoint(model=model).write(str(tmp_path / "state"))
    fresh.update((X[:0], Y[:0]), gamma=GAMMA[1:])
    tf.train.Checkpoint(model=fresh).read(prefix).assert_consumed()
    copies = [
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        gd.load(tmp_path / "model.zip"),
        fresh,
    ]
    record = model.update((X[LAST], Y[LAST]))
    for twin in copies:
        assert twin.update((X[LAST], Y[LAST])).bound == pytest.approx(record.bound, rel=1e-12)
        assert_allclose(moments_of(twin), moments_of(model), rtol=1e-12)
    assert repr(model.memory) == "StreamMemory(points=8, latents=1)"
    assert not model.memory.trainable_variables


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "error", [NumericalError("K_beta cannot be factorised", "K_beta"), KeyboardInterrupt()]
)
def test_an_update_that_fails_after_learning_changes_nothing(error, monkeypatch):
    def fails(*_):
        raise error

    model, Y = model_of(), observations()
    model.update((X[FIRST], Y[FIRST]))
    memory, before = model.memory, [variable.numpy() for variable in model.variables]
    monkeypatch.setattr(
        sys.modules["gpflow_decoupled.models.streams"], "write", fails
    )  # `update` is a function, too
    with pytest.raises(type(error)):
        model.update((X[LAST], Y[LAST]), learn=1)
    assert model.memory is memory
    assert all(np.array_equal(value, variable) for value, variable in zip(before, model.variables))


@pytest.mark.exhaustive
def test_flags_of_q_stay_on_other_points():
    model, Y = model_of(), observations()
    gpflow.set_trainable(model.basis.q_mu, False)
    gpflow.set_trainable(model.basis.q_sqrt, False)
    model.update((X[FIRST], Y[FIRST]), beta=BETA + 0.01)
    assert not model.basis.q_mu.trainable and not model.basis.q_sqrt.trainable


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("basis", ["coupled", "orthogonal", "solve"])
def test_priors_of_q_stay_on_other_points(basis):
    model, Y = model_of(basis), observations()
    names = [name for name in ("q_mu", "v_mu", "a_gamma") if hasattr(model.basis, name)]
    prior = tfp.distributions.Normal(np.float64(0.0), np.float64(1.0))
    for name in names:
        getattr(model.basis, name).prior = prior
    before = model.basis
    model.update((X[FIRST], Y[FIRST]), beta=BETA + 0.01)
    assert model.basis is not before and all(
        getattr(model.basis, name).prior is prior for name in names
    )
