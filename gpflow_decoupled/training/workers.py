"""Work of several processes between steps."""

from __future__ import annotations

__all__ = ["metrics_of_all", "refuse_other_run", "repair_drift", "run_settings"]

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.models import GPModel
from gpflow.utilities import parameter_dict

from ..models import FactorGraph
from ..replicas import Group
from ..user_warnings import warn_user
from .batches import checksum
from .evaluation import held_out_metrics


def run_settings(
    model: GPModel | FactorGraph, parts: Mapping[str, object], refresh_every: int, group: Group
) -> dict[str, object]:
    """Return the values, by name, that all workers and a checkpoint must share."""
    settings: dict[str, object] = {
        part: type(getattr(model, part)).__name__
        for part in ("basis", "kernel", "likelihood", "mean_function")
        if hasattr(model, part)
    }
    settings |= {**parts, "refresh_every": refresh_every}
    for name, parameter in parameter_dict(model).items():
        flag = "trainable" if parameter.trainable else "fixed"
        settings[f"parameter {name}"] = f"{list(parameter.numpy().shape)} {flag}"
    if group.replicas > 1:
        settings["replicas"] = group.replicas
    return settings


def refuse_other_run(group: Group, settings: Callable[[], Mapping[str, object]]) -> None:
    """Raise on all workers if data, model or options differ from the first one's."""
    if group.workers == 1:
        return
    own = settings()
    # where these differ, the numbers of values may too
    group.refuse_unlike({"the names of the settings": list(own)})
    group.refuse_unlike(own)


def metrics_of_all(
    group: Group,
    model: GPModel,
    data: Sequence[npt.ArrayLike],
    units: np.ndarray | None = None,
) -> dict[str, float]:
    """`held_out_metrics` of X [N, D], Y [N, P], shared by the workers; one message."""
    X, Y = (np.asarray(array) for array in data)
    if group.workers == 1 or len(X) < group.workers:
        return held_out_metrics(model, data, units=units)
    own = X[group.number :: group.workers], Y[group.number :: group.workers]
    found = held_out_metrics(model, own, units=units)
    means = np.array([1.0, found["rmse"] ** 2, found["log_density"]])
    rows, squares, densities = np.sum(group.gather(len(own[0]) * means), axis=0)
    return {"rmse": float(np.sqrt(squares / rows)), "log_density": float(densities / rows)}


def repair_drift(group: Group, variables: Sequence[tf.Variable]) -> bool:
    """Copy the first replica's values to all if they differ by a bit, with a warning.

    :param variables: all that a step writes, of any shapes [...].
    """
    # Different processors, and kernels that add in no fixed order, may drift. One message of one
    # number per replica, and one per variable to repair.
    if group.strategy is None or group.replicas == 1:
        return False
    digests = group.gather(np.array([checksum(copies) for copies in group.copies(variables)]))
    if np.all(digests == digests.flat[0]):
        return False
    for variable in variables:
        variable.assign(tf.cast(group.of_first(variable.read_value()), variable.dtype))
    warn_user(
        "The replicas were no longer the same and have the values of the first one now, as after"
        " each refresh. Processors of different kinds round differently; if all are of one kind, a"
        " callback may have changed the model on one of them."
    )
    return True
