"""Held-out scores of a run."""

from __future__ import annotations

__all__ = [
    "Evaluation", "checked", "held_out_metrics", "metrics_of_all", "refuse_other_run",
    "repair_drift", "run_settings",
]  # fmt: skip

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from gpflow.utilities import parameter_dict

from ..errors import DataError, check_option
from ..inputs import as_pair, as_values, check_whole
from ..likelihoods.facts import prediction_errors
from ..likelihoods.log_densities import observation_log_density
from ..linalg.neighbours import log_densities
from ..models import AffineIndependentGP, BasisGP, FactorGraph, FullGP
from ..models.checks import as_observations, check_shapes_of_data, check_values
from ..models.neighbours import GaussianNNGP
from ..replicas import Group
from ..summaries import one_line
from ..user_warnings import warn_user
from .batches import checksum
from .schedules import given

Predictions = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Score held-out data during `fit`, and stop early.

    :param data: held-out (X [N, D], Y [N, P]). Without them `patience` watches the bound.
    :param every: steps between two evaluations; the last one is at the end of the run.
    :param patience: stop after this many evaluations without a better log density (or bound); None
        never stops.
    :param restore_best: where patience stops a run, return to the best evaluation,
        `FitResult.restored_step`.
    :param units: standard deviations [P] of Y, set by a `Standardized` model.

    Example::

        fit(model, (X, Y), evaluation=Evaluation((X_test, Y_test), every=200, patience=3))
    """

    data: Sequence[npt.ArrayLike] | None = None
    every: int = 500
    patience: int | None = None
    restore_best: bool = True
    units: np.ndarray | None = None

    def __post_init__(self) -> None:
        check_whole(1, every=self.every, **given(patience=self.patience))
        check_option("restore_best", self.restore_best, (True, False))
        if self.data is None and self.patience is None:
            raise DataError(
                "Evaluation() has nothing to do: give it held-out data=(X, Y), or patience, or"
                " both."
            )

    def __repr__(self) -> str:
        data = tuple(self.data) if isinstance(self.data, list) else self.data
        return one_line(
            self,
            data=data,
            every=self.every,
            patience=self.patience,
            restore_best=self.restore_best,
        )


def checked(model: BasisGP | FullGP | FactorGraph, evaluation: Evaluation) -> Evaluation:
    """Return the evaluation with X [N, D], Y [N, P] as arrays, checked as training data."""
    if evaluation.data is None:
        return evaluation
    data = evaluation.data
    if not (isinstance(data, (tuple, list)) and len(data) == 2):
        raise DataError(
            f"evaluation is a {type(data).__name__}; pass held-out (X, Y), or an Evaluation."
        )
    try:
        X, Y = (tensor.numpy() for tensor in model.as_tensors(data))
        check_values(X, Y, model.likelihood)
    except DataError as error:
        raise DataError(f"evaluation: {error}") from error
    return replace(evaluation, data=(X, Y))


def held_out_metrics(
    model: GPModel,
    data: Sequence[npt.ArrayLike],
    chunk: int = 4096,
    units: np.ndarray | None = None,
) -> dict[str, float]:
    """Score a model's predictions of held-out data.

    :param model: a GP model of this package, a `Standardized` one, or any GPflow model with a
        `posterior`.
    :param data: (X [N, D], Y [N, P]).
    :param chunk: rows predicted at once, to bound memory.
    :param units: [P], by which Y was divided, for scores in units of Y.
    :return: "rmse" of the predictive mean E[y], for labels the root of the Brier score; and
        "log_density", the mean log predictive density in nats per observation.

    Cost: one factorisation, then N M^2 for M points. Example::

        held_out_metrics(model, (X_test, Y_test))["log_density"]
    """
    X, Y = _observed(model, data)
    factor = 1.0 if units is None else units
    has_posterior = not isinstance(model, AffineIndependentGP) and not hasattr(model, "table")
    has_posterior = has_posterior and hasattr(model, "posterior")
    score = _gaussian_predictions(model) if has_posterior else _own_predictions(model)
    score = _noisy_predictions(model) if isinstance(model, GaussianNNGP) else score
    sizes, densities = [], []
    for start in range(0, len(X), chunk):
        x, y = (
            tf.convert_to_tensor(X[start : start + chunk]),
            tf.convert_to_tensor(Y[start : start + chunk]),
        )
        predicted, density = score(x, y)
        # the density of y in its units: dz = dy / factor
        densities.append(density.numpy() - np.sum(np.log(factor)))
        errors = prediction_errors(_likelihood_of(model), predicted.numpy(), y.numpy())
        sizes.append(np.abs(factor * errors))
    return {
        "rmse": _root_mean_square(np.concatenate(sizes)),
        "log_density": float(np.mean(np.concatenate(densities))),
    }


def _root_mean_square(sizes: np.ndarray) -> float:
    """In units of the largest size, whose square may be beyond the range of floats."""
    largest = np.max(sizes)
    if largest == 0.0 or not np.isfinite(largest):
        return float(largest)
    return float(largest * np.sqrt(np.mean(np.square(sizes / largest))))


def _likelihood_of(model: GPModel) -> Likelihood:
    return model.model.likelihood if hasattr(model, "table") else model.likelihood


def _observed(model: GPModel, data: Sequence[npt.ArrayLike]) -> tuple[np.ndarray, np.ndarray]:
    if hasattr(model, "checked"):
        X, Y = model.checked(data)
        return X.numpy(), Y.numpy()
    pair = model.table.arrays(data) if hasattr(model, "table") else as_pair(data)
    X, Y = (as_values(array, name) for array, name in zip(pair, "XY"))
    likelihood = _likelihood_of(model)
    first = X[:1] if X.ndim == 2 and len(X) else None
    outputs = Y.shape[-1] if first is None else int(model.predict_f(first)[0].shape[-1])
    check_shapes_of_data(X, Y, likelihood, outputs, None, tf.as_dtype(X.dtype))
    check_values(X, Y, likelihood)
    return X, as_observations(Y, likelihood, tf.as_dtype(X.dtype)).numpy()


def _gaussian_predictions(model: GPModel) -> Predictions:
    posterior = model.posterior()

    def score(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        mean, variance = posterior.predict_f(x)
        density = observation_log_density(model.likelihood, x, mean, variance, y)
        return model.likelihood.predict_mean_and_var(x, mean, variance)[0], density

    return score


def _noisy_predictions(model: GaussianNNGP) -> Predictions:
    # its noise is not the likelihood's alone, but scaled by the errors nearby
    def score(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        mean, variance = model.predict_y(x)
        return mean, tf.reduce_sum(log_densities(y, mean, variance), axis=-1)

    return score


def _own_predictions(model: AffineIndependentGP) -> Predictions:
    return lambda x, y: (model.predict_y(x)[0], model.predict_log_density((x, y)))


# ---
# Work of several processes between steps.


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
