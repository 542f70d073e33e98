"""Likelihoods of observations with a known number."""

from __future__ import annotations

__all__ = ["NumberedLikelihood"]

from typing import ClassVar

from gpflow.base import TensorType
from gpflow.likelihoods import ScalarLikelihood


class NumberedLikelihood(ScalarLikelihood):
    """A likelihood of y given one latent each, whose rows have a known number in a last column.

    Y is [N, P + 1]: P observations, and trials (`Binomial`) or a code of censoring
    (`CensoredNormal`). `build` takes it as the argument that `number` names. Predicted moments are
    for one trial, not censored.

    Example::

        class Successes(NumberedLikelihood):
            number = "trials"

            def _scalar_log_prob(self, X, F, Y):
                y, trials = self.split(Y)
                return y * F - trials * tf.nn.softplus(F)
    """

    number: ClassVar[str]
    """The name of the last column, in `row_likelihood.NEUTRAL`."""

    @staticmethod
    def split(Y: TensorType) -> tuple[TensorType, TensorType]:
        """y [..., P] and the numbers [..., 1] of Y [..., P + 1]."""
        return Y[..., :-1], Y[..., -1:]
