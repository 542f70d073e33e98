"""Checks of labels against the support of a likelihood."""

from __future__ import annotations

__all__ = ["check_labels", "index_columns", "observation_columns"]

import numpy as np
from gpflow import likelihoods as gl

from ..errors import DataError
from .categorical_logit import CategoricalLogit
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
    support = site_description(likelihood).support
    if support is None:
        return
    outside = ~support.accepts(Y)
    if np.any(outside):
        row, column = np.argwhere(outside)[0]
        signs = support is BINARY and np.all(np.abs(Y) == 1)
        fix = "recode Y by (Y > 0).astype(float)" if signs else "recode Y"
        raise DataError(
            f"Y[{row}, {column}] = {Y[row, column]:g} is outside the support of"
            f" {type(likelihood).__name__}, which takes {support.words}; {fix}"
            f" ({int(outside.sum())} entries are outside)."
        )


def index_columns(likelihood: gl.Likelihood) -> int:
    """Count the columns at the end of Y that are no outputs: one for a `SwitchedLikelihood`."""
    return int(isinstance(likelihood, gl.SwitchedLikelihood))


def observation_columns(likelihood: gl.Likelihood, num_outputs: int) -> int | None:
    """Return the number of columns of Y for P = `num_outputs`, or None if undetermined.

    Example::

        likelihood = gpflow.likelihoods.Softmax(3)  # of three latents
        observation_columns(likelihood, num_outputs=3)  # 1, the class
    """
    if isinstance(likelihood, gl.SwitchedLikelihood):
        return num_outputs + index_columns(likelihood)
    if likelihood.observation_dim is not None:
        return int(likelihood.observation_dim)
    if isinstance(likelihood, gl.ScalarLikelihood):
        return num_outputs
    one = (CategoricalLogit, gl.MultiClass, gl.Softmax, gl.HeteroskedasticTFPConditional)
    return 1 if isinstance(likelihood, one) else None
