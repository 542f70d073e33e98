"""The posterior of a linear model's weights."""

from __future__ import annotations

__all__ = ["WeightsPosterior", "weight_labels"]

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf
from scipy.stats import norm

from ...errors import DataError
from ...inputs import is_number
from ...summaries import html_table, one_line, short_repr

if TYPE_CHECKING:
    import pandas as pd


class WeightsPosterior(NamedTuple):
    """Mean and covariance of a linear model's q(w), the intercept last.

    Example::

        mean, covariance = weights_posterior(model)
        deviations = np.sqrt(np.diag(covariance))
    """

    mean: tf.Tensor
    """[p], or [p, L] for several latents."""
    covariance: tf.Tensor
    """[p, p], or [L, p, p]."""

    def __repr__(self) -> str:
        return one_line(self, **self._asdict())

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self._asdict())

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations [L, p] of the weights."""
        means = np.asarray(self.mean).reshape(len(self.mean), -1).T
        variances = np.diagonal(np.asarray(self.covariance), axis1=-2, axis2=-1)
        return means, np.sqrt(np.atleast_2d(variances))

    def summary(self, names: Iterable[object] | None = None, level: float = 0.95) -> pd.DataFrame:
        """A table with a row per weight: "mean", "sd", and an interval from "lower" to "upper".

        :param names: of the weights, say a data frame's columns; None is w0, w1, ... The intercept
            may be omitted.
        :param level: probability of the interval mean -+ z sd, approximate for an
            `AffineIndependentGLM`.
        :return: a pandas data frame [p, 4]; for several latents [L p, 4], latent first.
        :raises ImportError: with the fix, if pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "summary makes a table of pandas, which is not installed: pip install pandas. The"
                " numbers are in mean and covariance."
            ) from error
        if not (is_number(level) and 0.0 < level < 1.0):
            raise DataError(
                f"level={short_repr(level)} must be a number between 0 and 1, for example 0.95."
            )
        means, deviations = self.moments
        labels = weight_labels(names, means.shape[1])
        several = np.ndim(self.mean) == 2
        index = (
            pd.MultiIndex.from_product([range(len(means)), labels], names=["latent", "weight"])
            if several
            else labels
        )
        mean, sd, z = means.ravel(), deviations.ravel(), float(norm.ppf(0.5 + 0.5 * level))
        return pd.DataFrame(
            {"mean": mean, "sd": sd, "lower": mean - z * sd, "upper": mean + z * sd}, index=index
        )


def weight_labels(names: Iterable[object] | None, count: int) -> list[object]:
    """A name for each weight; `DataError` for too few or too many."""
    if names is None:
        return [f"w{number}" for number in range(count)]
    if isinstance(names, str):
        raise DataError(f"names={short_repr(names)} is a string; pass a list of {count} names.")
    given = list(getattr(names, "columns", names))
    if len(given) == count - 1:
        given.append("intercept")
    if len(given) != count:
        raise DataError(
            f"There are {count} weights and {len(given)} names; pass one for each, or one less"
            " where the last weight is the intercept."
        )
    return given
