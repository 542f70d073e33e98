"""One seed, one trace; arrays, and datasets of every kind."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, NumericalError
from gpflow_decoupled.training import MeanSolver
from gpflow_decoupled.training.batches import ArrayBatches
from tests.training.problems import MODELS, orthogonal, sine, unchanged, values


def _trace(
    data, seed: int = 0, name: str = "ODVGP", num_data: int | None = None, **options
) -> np.ndarray:
    model = MODELS[name](num_data=num_data)
    settings = {"steps": 4, "progress": False, "compile": False, **options}
    return gd.fit(model, data, seed=seed, **settings).history["elbo"]


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", MODELS)
def test_same_seed_same_trace(name: str) -> None:
    one, two, other = (_trace(sine(), seed, name, batch_size=20) for seed in (3, 3, 4))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


@pytest.mark.exhaustive
def test_same_seed_same_trace_when_compiled_and_when_subsampling() -> None:
    traces = []
    for seed in (1, 1, 2):
        model = orthogonal(mean_subsample=3)  # full batches: only the subsample is random
        traces.append(gd.fit(model, sine(), steps=5, seed=seed, progress=False).history["elbo"])
    assert np.array_equal(traces[0], traces[1])
    assert not np.array_equal(traces[0], traces[2])


@pytest.mark.exhaustive
def test_global_generators_are_neither_used_nor_changed() -> None:
    tf.random.set_seed(5)
    expected = tf.random.uniform([3])
    traces = []
    for seed in (5, 6):
        tf.random.set_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        state = np.random.get_state()[1].copy()  # noqa: NPY002
        traces.append(_trace(sine(), batch_size=20))
        assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002
        if seed == 5:
            assert np.array_equal(tf.random.uniform([3]), expected)
    assert np.array_equal(*traces)


def test_batches_of_an_epoch_are_distinct_rows_in_a_new_order() -> None:
    X = np.arange(10.0)[:, None]
    batches = ArrayBatches(tf.constant(X), tf.constant(X), 3, seed=0)
    epochs = [
        np.concatenate([batches(3 * epoch + k)[0] for k in range(3)])[:, 0] for epoch in range(4)
    ]
    assert all(len(set(epoch)) == 9 for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert np.array_equal(
        batches(4)[0], ArrayBatches(tf.constant(X), tf.constant(X), 3, seed=0)(4)[0]
    )


def test_auto_batch_is_all_rows_or_1024_or_256_of_many_latents() -> None:
    for rows, latents, size in (
        (60, 1, 60),
        (60, 4, 60),
        (1024, 3, 1024),
        (3000, 3, 1024),
        (3000, 4, 256),
    ):
        X, Y = map(tf.constant, sine(rows))
        assert ArrayBatches(X, Y, "auto", 0, latents)(0)[0].shape == (size, 1)
    assert ArrayBatches(X, Y, None, 0)(0)[0].shape == (3000, 1)


def _dataset(kind: str) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensor_slices(sine())
    return {
        "batched": lambda: dataset.batch(25),  # 25, 25, and a last batch of 10
        "repeated": lambda: dataset.repeat().batch(25),
        "shuffled": lambda: dataset.shuffle(60, seed=1).batch(25),
        "shuffled and repeated": lambda: dataset.shuffle(60, seed=1).repeat().batch(25).prefetch(2),
        "one batch": lambda: dataset.batch(60),
    }[kind]()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "kind", ["batched", "repeated", "shuffled", "shuffled and repeated", "one batch"]
)
def test_datasets_are_repeatable_and_go_on_when_they_end(kind: str) -> None:
    one, two = (_trace(_dataset(kind), num_data=60, steps=7) for _ in range(2))
    assert len(one) == 7
    assert np.array_equal(one, two)


@pytest.mark.exhaustive
def test_compiled_step_takes_the_partial_batch_of_a_dataset() -> None:
    compiled, eager = (
        _trace(_dataset("batched"), num_data=60, steps=7, compile=c) for c in (True, False)
    )
    np.testing.assert_allclose(compiled, eager, rtol=1e-9)


@pytest.mark.exhaustive
def test_dataset_of_all_rows_is_the_same_as_arrays() -> None:
    np.testing.assert_allclose(
        _trace(_dataset("one batch"), num_data=60), _trace(sine(), batch_size=None), rtol=1e-12
    )


@pytest.mark.exhaustive
def test_partial_batch_is_scaled_by_its_own_size() -> None:
    trace = _trace(
        _dataset("batched"),
        num_data=60,
        steps=3,
        natural_gradient=None,
        learning_rate=1e-12,
        mean_solver=MeanSolver(learning_rate=1e-12),
    )
    X, Y = sine()
    model, expected = orthogonal(num_data=60), []
    for rows in (slice(25), slice(25, 50), slice(50, 60)):
        moments = model.predict_f(X[rows])
        expectations = model.likelihood.variational_expectations(X[rows], *moments, Y[rows])
        expected.append(60 * np.mean(expectations) - model.prior_kl())
    np.testing.assert_allclose(trace, expected, rtol=1e-6)


def _generator(bad: int | None = None, value: float = np.nan) -> tf.data.Dataset:
    """Batches made one at a time, as if there were too many for the memory."""

    def batches() -> Iterator:
        for k in range(5):
            X, Y = sine(20, seed=k)
            if k == bad:
                Y[7] = value
            yield X, Y

    spec = tf.TensorSpec([None, 1], tf.float64)
    return tf.data.Dataset.from_generator(batches, output_signature=(spec, spec))


@pytest.mark.exhaustive
def test_generator_larger_than_memory() -> None:
    trace = _trace(_generator(), num_data=100, steps=60, compile=True)
    assert np.mean(trace[-5:]) > np.mean(trace[:5]) + 50


def test_checkpoint_of_a_generator_is_refused_before_step_1(tmp_path) -> None:
    model = orthogonal(num_data=100)
    before = values(model)
    with pytest.raises(
        DataError, match="place cannot be saved.*from_generator.*leave checkpoint out"
    ):
        gd.fit(
            model, _generator(), steps=5, checkpoint=tmp_path / "run", progress=False, compile=False
        )
    assert unchanged(before, model)


def test_nan_in_the_third_batch_is_found_in_training() -> None:
    model = orthogonal(num_data=100)
    with pytest.raises(
        NumericalError, match=r"Step 2: row 7 of this batch of Y is not finite; remove"
    ) as info:
        gd.fit(model, _generator(bad=2), steps=50, progress=False, compile=False)
    assert info.value.matrix == "Y"
    assert info.value.result.steps == 2 and len(info.value.result.history["elbo"]) == 2
    assert np.isfinite(model.elbo(sine()))


@pytest.mark.exhaustive
def test_label_outside_the_support_in_the_third_batch_is_found_in_training() -> None:
    import gpflow

    model = gd.models.ODVGP(
        gpflow.kernels.Matern32(),
        gpflow.likelihoods.Exponential(),
        [[0.0], [1.0]],
        [[0.5]],
        num_data=100,
    )
    dataset = _generator(bad=2, value=-9.0).map(lambda X, Y: (X, tf.where(Y < -8.0, Y, tf.abs(Y))))
    with pytest.raises(
        DataError, match=r"Y\[7, 0\] = -9 is outside the support of Exponential"
    ) as info:
        gd.fit(model, dataset, steps=50, progress=False, compile=False)
    assert info.value.result.steps == 2
    assert np.all([np.all(np.isfinite(value)) for value in values(model).values()])
