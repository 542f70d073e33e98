"""With one replica nothing changes; strategies and models that cannot be trained together are
refused with the way out.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled import replicas
from gpflow_decoupled.errors import DataError, UnknownOptionError
from gpflow_decoupled.models import CVIGP, LCLGP, NNGP, SparseCVIGP
from gpflow_decoupled.optimizers import sweep
from gpflow_decoupled.replicas import Group, check_strategy
from tests.training.problems import BETA, orthogonal, parts, sine, values


def one_device() -> tf.distribute.Strategy:
    """A strategy of the right kind, with one replica."""
    return tf.distribute.MirroredStrategy(["CPU:0"])


def test_one_replica_is_one_process_to_the_last_bit() -> None:
    alone, strategy = orthogonal(), one_device()
    with strategy.scope():
        mirrored = orthogonal()
    traces = [
        gd.fit(
            model, sine(), steps=4, batch_size=20, progress=False, compile=False, strategy=chosen
        ).history["elbo"]
        for model, chosen in ((alone, None), (mirrored, strategy))
    ]
    assert np.array_equal(*traces)
    before, after = values(alone), values(mirrored)
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.exhaustive
def test_what_is_not_to_be_trained_stays() -> None:
    """Though TensorFlow's mirrored variables do not read the flag that GPflow sets; and it can be
    set back.
    """
    strategy = one_device()
    with strategy.scope():
        model = orthogonal()
    gpflow.set_trainable(model.kernel, False)
    before = values(model)

    def fit() -> set[str]:
        gd.fit(
            model, sine(), steps=2, batch_size=20, progress=False, compile=False, strategy=strategy
        )
        return {
            name for name, value in values(model).items() if not np.array_equal(value, before[name])
        }

    assert not {".kernel.variance", ".kernel.lengthscales"} & fit()
    gpflow.set_trainable(model.kernel, True)
    assert {".kernel.variance", ".kernel.lengthscales", ".likelihood.variance"} <= fit()


def test_outside_of_a_run_there_is_one_replica() -> None:
    x = tf.constant([[1.0, 2.0], [2.0, 5.0]])
    seed, ok = tf.constant([1, 2]), tf.constant(True)
    assert (replicas.count(), replicas.rank()) == (1, 0)
    assert (
        replicas.total([x], symmetric=[0])[0] is x
        and replicas.share(x) is x
        and replicas.fold_in_rank(seed) is seed
    )
    assert replicas.agreed(ok, seed) == (ok, seed) and replicas.of_first(x) is x
    with replicas.counted() as messages:
        replicas.total([x])
    assert messages == []


def test_a_group_of_one() -> None:
    for group in (Group(), Group(one_device())):
        assert (group.replicas, group.workers, group.number, group.is_first) == (1, 1, 0, True)
        assert (
            group.gather(3.5).tolist() == [3.5]
            and group.first(2.5) == 2.5
            and group.unlike_first(1.0) == []
        )
        assert group.together(lambda: "value") == "value"
        (doubled,) = group.over_rows(lambda X: [2.0 * X], np.eye(2))
        assert np.array_equal(doubled, 2.0 * np.eye(2))
        with pytest.raises(KeyError, match="as it is"):
            group.together(lambda: {}["as it is"])
        with pytest.raises(tf.errors.UnavailableError), group.naming_lost_workers():
            raise tf.errors.UnavailableError(None, None, "of something else")


KINDS: dict[str, tuple[Any, str]] = {
    "parameter server": (SimpleNamespace(), "do not wait for each other"),
    "TPU": (SimpleNamespace(), "TPUs compute in float32"),
    "one device": (
        tf.distribute.OneDeviceStrategy("CPU:0"),
        "a OneDeviceStrategy, .* leave strategy out",
    ),
    "default": (
        tf.distribute.get_strategy(),
        "TensorFlow's default, with one replica: leave strategy out",
    ),
    "a name": ("mirrored", "strategy is a str, .* none of the two that are known"),
}


@pytest.mark.parametrize("name", KINDS)
def test_other_strategies_are_refused(name: str) -> None:
    strategy, message = KINDS[name]
    classes = {"parameter server": "ParameterServerStrategyV2", "TPU": "TPUStrategyV2"}
    if name in classes:  # neither can be built without a cluster
        strategy = type(classes[name], (), {})()
    with pytest.raises(DataError, match=message) as caught:
        gd.fit(orthogonal(), sine(), steps=1, strategy=strategy)
    assert "Pass a tf.distribute.MirroredStrategy" in str(caught.value)


def test_what_was_built_elsewhere_is_refused() -> None:
    strategy, X = one_device(), sine()[0]
    check_strategy(strategy)
    svgp = gpflow.models.SVGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(), X[:5])
    before = values(svgp)
    with pytest.raises(DataError, match="SVGP.kernel.variance was created outside of the scope"):
        gd.fit(svgp, sine(), steps=1, strategy=strategy)
    assert all(np.array_equal(before[name], value) for name, value in values(svgp).items())
    with strategy.scope():
        inside = orthogonal()
    with pytest.raises(
        DataError, match="built in the scope of a tf.distribute strategy, which was not passed"
    ):
        gd.fit(inside, sine(), steps=1)


def test_a_sweep_on_one_replica_is_that_of_one_process_to_the_last_bit() -> None:
    alone, strategy = SparseCVIGP(*parts(), BETA), one_device()
    with strategy.scope():
        mirrored = SparseCVIGP(*parts(), BETA)
    traces = [
        sweep(model, sine(), block=20, passes=3, compile=False, strategy=chosen).history["elbo"]
        for model, chosen in ((alone, None), (mirrored, strategy))
    ]
    assert np.array_equal(*traces)
    before, after = values(alone), values(mirrored)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_sweeps_that_would_be_wrong_are_refused() -> None:
    strategy, data = one_device(), sine()
    outside = SparseCVIGP(*parts(), BETA)
    with strategy.scope():
        inside = SparseCVIGP(*parts(), BETA)
    before = values(inside), values(outside)
    wrong: list[tuple[Any, Any, dict[str, Any], str]] = [
        (
            outside,
            data,
            {"strategy": strategy},
            "SparseCVIGP.kernel.variance was created outside of the scope",
        ),
        (inside, data, {}, "built in the scope of a tf.distribute strategy, which was not passed"),
        (outside, data, {"strategy": "mirrored"}, "strategy is a str"),
        (
            inside,
            lambda context: data,
            {"strategy": strategy},
            "must return the tf.data.Dataset of one worker",
        ),
    ]
    for model, given, options, message in wrong:
        with pytest.raises(DataError, match=message):
            sweep(model, given, **options)
    assert all(
        np.array_equal(was[name], value)
        for was, model in zip(before, (inside, outside))
        for name, value in values(model).items()
    )


@pytest.mark.parametrize("kind", [CVIGP, LCLGP])
def test_models_with_a_part_for_each_observation_are_refused(kind: Any) -> None:
    model = kind(sine(), gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian())
    with pytest.raises(
        UnknownOptionError,
        match=f"does not use strategy for {kind.__name__}. Models on inducing points.* and NNGP",
    ):
        gd.fit(model, steps=1, strategy=one_device())


def test_minibatches_of_neighbours_are_refused() -> None:
    strategy = one_device()
    with strategy.scope():
        model = NNGP(sine(), gpflow.kernels.Matern52(), num_neighbours=5)
    with pytest.raises(UnknownOptionError, match="batch_size asks for minibatches.* leave it out"):
        gd.fit(model, steps=1, batch_size=10, strategy=strategy)
    model = NNGP(sine(), gpflow.kernels.Matern52(), num_neighbours=5)
    with pytest.raises(DataError, match="NNGP.kernel.variance was created outside"):
        gd.fit(model, steps=1, strategy=strategy)
