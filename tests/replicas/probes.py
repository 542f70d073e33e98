"""What two replicas of one process can show beside whole runs: each probe returns arrays that a
test looks at.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled import replicas
from gpflow_decoupled.models import CVIGP, MonteCarlo
from gpflow_decoupled.optimizers import ConjugateGradients, NaturalGradient, StochasticDualDescent
from gpflow_decoupled.training.evaluation import repair_drift
from tests.replicas.cases import (
    BETA,
    GAMMA,
    ROWS,
    gaussian,
    inputs,
    kernel,
    observations,
    orthogonal,
)
from tests.replicas.on_data import ON_DATA, found_alone, found_on, on_data
from tests.replicas.sweeps import SWEEPS, sweep_alone, sweep_on

Found = dict[str, np.ndarray]


def per_replica(
    strategy: tf.distribute.Strategy, function: Callable[[], Any]
) -> list[list[np.ndarray]]:
    """What a function returns on each replica, in a graph."""
    outputs = tf.function(lambda: strategy.run(function), autograph=False)()
    flat = [strategy.experimental_local_results(part) for part in tf.nest.flatten(outputs)]
    return [
        [np.asarray(part[replica]) for part in flat]
        for replica in range(strategy.num_replicas_in_sync)
    ]


def sums(strategy: tf.distribute.Strategy) -> Found:
    """Totals of tensors that differ by replica, among them symmetric matrices of even and odd
    size.
    """
    rng = np.random.default_rng(3)
    parts = [rng.normal(size=shape) for shape in ((), (3,), (2, 5, 5), (1, 4, 4), (2, 3))]
    parts = [part + np.swapaxes(part, -1, -2) if part.ndim == 3 else part for part in parts]

    def added() -> list[tf.Tensor]:
        factor = 1.0 + 2.0 * replicas.rank()
        tensors = [tf.constant(part) * factor for part in parts]
        numbers = tf.constant([5 + replicas.rank()])
        ok, number = replicas.agreed(tf.constant(replicas.rank() == 0), tf.constant(3))
        shares = replicas.total([replicas.share(tensors[1] / factor)])
        return [
            *replicas.total(tensors, symmetric=[2, 3]),
            *shares,
            replicas.of_first(numbers),
            ok,
            number,
        ]

    with replicas.counted() as messages:
        found = per_replica(strategy, added)
    sizes = [one.size for one in messages if one.replica == 1]
    names = ("scalar", "vector", "five", "four", "matrix", "share", "first", "ok", "number")
    result = {
        f"{name} {replica}": part for replica in (0, 1) for name, part in zip(names, found[replica])
    }
    return {**result, "sizes": np.array(sizes)}


def rows(strategy: tf.distribute.Strategy) -> Found:
    """The rows of a batch of 7 that each replica has."""
    group, X = replicas.Group(strategy), tf.range(7)
    seen: list[tf.Variable] = []
    with strategy.scope():
        seen.append(tf.Variable(tf.zeros([4], tf.int32), trainable=False))

    def note(X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, ...]:
        seen[0].assign(tf.pad(X, [[0, 4 - tf.shape(X)[0]]], constant_values=-1))
        return X, Y, seed

    first, labels, seed = tf.function(group.on_rows(note), autograph=False)(
        X, X + 10, tf.constant([3, 4])
    )
    second = np.asarray(strategy.experimental_local_results(seen[0])[1])
    return {
        "first": first.numpy(),
        "second": second[second >= 0],
        "labels": labels.numpy(),
        "seed": seed.numpy(),
    }


def draws(strategy: tf.distribute.Strategy) -> Found:
    """The random numbers of `MonteCarlo` on both replicas."""
    with strategy.scope():
        generator = MonteCarlo(2000, seed=4)
    first, second = per_replica(strategy, lambda: generator.draw(tf.zeros([3, 1], tf.float64)))
    return {"first": first[0], "second": second[0]}


def minimize(strategy: tf.distribute.Strategy) -> Found:
    """`NaturalGradient.minimize` in the user's own `strategy.run`, with a subsample of the mean
    points.
    """
    data = [tf.constant(inputs()), tf.constant(observations("labels"))]
    found = {}
    for name in ("one", "two"):
        strategy_or_none = strategy if name == "two" else None
        with replicas.Group(strategy_or_none).scope():
            model = orthogonal(gpflow.likelihoods.Bernoulli, mean_subsample=4, num_data=ROWS)()
            rule = NaturalGradient(0.5)
            rule.prepare(model)
        for _ in range(3):
            if name == "one":
                rule.minimize(model, data)
            else:
                per_replica(
                    strategy, lambda rule=rule, model=model: rule.minimize(model, _own(data)).ok
                )
        found[name] = model.basis.q_mu.numpy()
    return found


def _own(data: list[tf.Tensor]) -> list[tf.Tensor]:
    return [array[replicas.rank() :: 2] for array in data]


def drift(strategy: tf.distribute.Strategy) -> Found:
    """A copy that has moved away is noticed, named in a warning, and brought back."""
    group = replicas.Group(strategy)
    with group.scope():
        model = orthogonal()()
        variables = list(model.variables)
        strategy.experimental_local_results(variables[0])[1].assign_add(
            tf.ones_like(variables[0]) * 1e-12
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            repaired = [repair_drift(group, variables) for _ in range(2)]
    copies = [np.asarray(copy) for copy in strategy.experimental_local_results(variables[0])]
    told = sum("no longer the same" in str(warning.message) for warning in caught)
    return {"repaired": np.array(repaired), "copies": np.stack(copies), "warnings": np.array(told)}


def refusals(strategy: tf.distribute.Strategy) -> Found:
    """The messages of all that is refused on two replicas, and whether the model stayed as it
    was.
    """
    X, Y = data = inputs(), observations("sine")
    with strategy.scope():
        model = orthogonal(num_data=ROWS)()
        all_data = on_data()()
        clipped = tf.keras.optimizers.Adam(0.01, clipnorm=1.0)
        schedule = tf.keras.optimizers.Adam(0.01)
    outside, elsewhere = orthogonal()(), gpflow.keras.tf_keras.optimizers.Adam(0.01)
    before = [variable.numpy() for variable in model.trainable_variables]
    actions = {
        "no strategy": lambda: gd.fit(model, data, steps=1),
        "outside": lambda: gd.fit(outside, data, steps=1, strategy=strategy),
        "elsewhere": lambda: gd.fit(model, data, steps=1, strategy=strategy, optimizer=elsewhere),
        "clipping": lambda: gd.fit(model, data, steps=1, strategy=strategy, optimizer=clipped),
        "newton": lambda: gd.fit(model, data, steps=1, strategy=strategy, mean_solver="newton"),
        "data": lambda: gd.fit(all_data, lambda context: None, steps=1, strategy=strategy),
        "descent": lambda: gd.fit(
            all_data, data, steps=1, strategy=strategy, mean_solver=StochasticDualDescent()
        ),
        "descent alone": lambda: StochasticDualDescent().run(all_data, data, strategy=strategy),
        "outside alone": lambda: ConjugateGradients().run(on_data()(), data, strategy=None),
        "batch": lambda: gd.fit(model, data, steps=1, strategy=strategy, batch_size=1),
        "CVIGP": lambda: CVIGP(data, kernel(), gaussian()),
        "bound": lambda: strategy.run(lambda: model.elbo((tf.constant(X), tf.constant(Y)))),
        "newton step": lambda: strategy.run(
            lambda: NaturalGradient(mean="newton").minimize(model, data).ok
        ),
    }
    found = {}
    for name, action in actions.items():
        with strategy.scope():
            try:
                action()
                found[name] = np.array("was not refused")
            except Exception as error:
                found[name] = np.array(f"{type(error).__name__}: {error}")
    after = [variable.numpy() for variable in model.trainable_variables]
    found["unchanged"] = np.array(all(np.array_equal(*pair) for pair in zip(before, after)))
    found["unused"] = np.array(int(tf.convert_to_tensor(schedule.iterations)))
    return found


def _swept(name: str) -> Callable[[tf.distribute.Strategy], Found]:
    """One process and two replicas take the same sweep."""

    def probe(strategy: tf.distribute.Strategy) -> Found:
        found = {f"one/{key}": value for key, value in sweep_alone(name).items()}
        return found | {f"two/{key}": value for key, value in sweep_on(strategy, name).items()}

    return probe


def _on_data(name: str) -> Callable[[tf.distribute.Strategy], Found]:
    """One process and two replicas find the same mean on all data."""

    def probe(strategy: tf.distribute.Strategy) -> Found:
        found = {f"one/{key}": value for key, value in found_alone(name).items()}
        return found | {f"two/{key}": value for key, value in found_on(strategy, name).items()}

    return probe


PROBES: dict[str, Callable[[tf.distribute.Strategy], Found]] = {
    "sums": sums,
    "rows": rows,
    "draws": draws,
    "minimize": minimize,
    "drift": drift,
    "refusals": refusals,
    **{f"sweep {name}": _swept(name) for name in SWEEPS},
    **{f"on data {name}": _on_data(name) for name in ON_DATA},
}
GAMMA_SIZE, BETA_SIZE = len(GAMMA), len(BETA)
