"""Checks of labels."""

from __future__ import annotations

__all__ = ["check_labels", "index_columns", "observation_columns"]

import numpy as np
from gpflow import likelihoods as gl

from ..errors import DataError
from .categorical_logit import CategoricalLogit
from .numbered import NumberedLikelihood
from .row_likelihood import RowLikelihood
from .sites.registry import site_description
from .support import BINARY, classes


def check_labels(likelihood: gl.Likelihood, Y: np.ndarray) -> None:
    """Refuse labels outside of the support of a likelihood.

    :param Y: labels [N, P]; for a `SwitchedLikelihood` the last column selects the likelihood.
    :raises DataError: for any entry outside, with the first one and the count.

    Example::

        # this passes; with a 2 in the array it raises
        check_labels(gpflow.likelihoods.Bernoulli(), np.array([[0.0], [1.0]]))
    """
    if isinstance(likelihood, gl.SwitchedLikelihood):
        tasks = len(likelihood.likelihoods)
        if not np.all(classes(tasks).accepts(Y[:, -1])):
            raise DataError(
                "The last column of Y says which likelihood a row belongs to; it must consist of"
                f" whole numbers 0 to {tasks - 1}."
            )
        for task, part in enumerate(likelihood.likelihoods):
            check_labels(part, Y[Y[:, -1] == task, :-1])
        return
    if isinstance(likelihood, RowLikelihood):
        _check_rows(likelihood, Y)
        return
    support = site_description(likelihood).support
    if support is None:
        return
    outside = ~support.accepts(Y)
    if np.any(outside):
        row, column = np.argwhere(outside)[0]
        signs = support is BINARY and np.all(np.abs(Y) == 1)
        fix = "recode Y by (Y > 0).astype(float)" if signs else support.fix
        raise DataError(
            f"Y[{row}, {column}] = {Y[row, column]:g} is outside the support of"
            f" {type(likelihood).__name__}, which takes {support.words}; {fix}"
            f" ({int(outside.sum())} entries are outside)."
        )


def _check_rows(likelihood: RowLikelihood, Y: np.ndarray) -> None:
    y, numbers = likelihood.split(Y)
    empty = np.flatnonzero(np.isnan(y).all(axis=1))
    if len(empty):
        raise DataError(
            f"Y[{empty[0]}] is NaN in all columns, like {len(empty)} rows in all: they say nothing."
            " Drop them: keep = ~np.isnan(Y).all(axis=1); X, Y = X[keep], Y[keep]."
        )
    for name, values in numbers.items():
        least = {"weight": 0.0, "noise": 0.0, "trials": 1.0}.get(name, -np.inf)
        bad = ~(np.isfinite(values) & (values >= least))
        if np.any(bad):
            row = int(np.argwhere(bad)[0][0])
            raise DataError(
                f"{name} of row {row} is {values[row, 0]:g}; pass a finite number"
                + ("." if least == -np.inf else f" of at least {least:g}.")
            )
    base = likelihood.likelihood
    if isinstance(base, NumberedLikelihood):
        check_labels(base, np.hstack([_filled(y), numbers[base.number]]))
        return
    if "trials" in numbers:
        outside = ~np.isnan(y) & ~((y >= 0) & (y <= numbers["trials"]) & (y == np.round(y)))
        if np.any(outside):
            row, column = np.argwhere(outside)[0]
            raise DataError(
                f"Y[{row}, {column}] = {y[row, column]:g} is no number of successes in"
                f" {numbers['trials'][row, 0]:g} trials."
            )
        return
    check_labels(base, _filled(y))


def _filled(y: np.ndarray) -> np.ndarray:
    """Gaps take an entry of their row, which is checked in any case."""
    columns = np.argmax(~np.isnan(y), axis=1)
    return np.where(np.isnan(y), y[np.arange(len(y)), columns][:, None], y)


def index_columns(likelihood: gl.Likelihood) -> int:
    """Count the columns at the end of Y that are no outputs: one for a `SwitchedLikelihood` and a
    `NumberedLikelihood`, the numbers of rows for a `RowLikelihood`.
    """
    if isinstance(likelihood, RowLikelihood):
        return len(likelihood.numbers)
    return int(isinstance(likelihood, (gl.SwitchedLikelihood, NumberedLikelihood)))


def observation_columns(likelihood: gl.Likelihood, num_outputs: int) -> int | None:
    """Return the number of columns of Y for P = `num_outputs`, or None if undetermined.

    Example::

        likelihood = gpflow.likelihoods.Softmax(3)  # of three latents
        observation_columns(likelihood, num_outputs=3)  # 1, the class
    """
    if isinstance(likelihood, RowLikelihood):
        base = likelihood.likelihood
        own = observation_columns(base, num_outputs)
        return None if own is None else own - index_columns(base) + len(likelihood.numbers)
    if isinstance(likelihood, (gl.SwitchedLikelihood, NumberedLikelihood)):
        return num_outputs + index_columns(likelihood)
    if likelihood.observation_dim is not None:
        return int(likelihood.observation_dim)
    if isinstance(likelihood, gl.ScalarLikelihood):
        return num_outputs
    one = (CategoricalLogit, gl.MultiClass, gl.Softmax, gl.HeteroskedasticTFPConditional)
    return 1 if isinstance(likelihood, one) else None
