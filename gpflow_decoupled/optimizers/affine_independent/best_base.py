"""The base distribution with the greatest bound, among several."""

from __future__ import annotations

__all__ = ["BaseChoice", "best_base"]

from collections.abc import Sequence
from typing import NamedTuple

from gpflow.utilities import deepcopy

from ...distributions import BaseLike
from ...errors import DataError
from ...models.affine_independent.gp import AffineIndependentGP
from ...models.families import require_model
from ...summaries import html_table, one_line
from .affine_ascent import AffineIndependentAscent
from .affine_result import AffineResult


class BaseChoice(NamedTuple):
    """The model with the greatest bound, and the results of all.

    Example::

        choice = best_base(model, ["skew_normal", "student_t"])
        print(choice.base, choice.results[choice.base].elbo)
        mean, variance = choice.model.predict_f(Xnew)
    """

    base: str
    """The name of the best base distribution."""
    model: AffineIndependentGP
    """The copy of the model that has it, at its optimum."""
    results: dict[str, AffineResult]
    """The result for each candidate, by the name of its base distribution."""

    def __repr__(self) -> str:
        """One line, with arrays by their shape."""
        return one_line(self, **self._asdict())

    def _repr_html_(self) -> str:
        """A table of all fields for notebooks."""
        return html_table(type(self).__name__, self._asdict())


def best_base(
    model: AffineIndependentGP,
    candidates: Sequence[BaseLike] = ("skew_normal", "generalized_normal"),
    ascent: AffineIndependentAscent | None = None,
) -> BaseChoice:
    """Find q with several base distributions, the v_d of w = A v + b, and choose the one with the
    greatest bound.

    Each candidate is run on a copy of the model; the model itself is not changed. Cost: one run per
    candidate.

    :param model: an `AffineIndependentGP`, or the model that `AffineIndependentGLM` returns.
    :param candidates: base distributions: names of `distributions.BASES`, objects of
        `distributions.Base`, or scalar distributions of TensorFlow Probability with finite
        variance.
    :param ascent: the settings of each run; `AffineIndependentAscent()` if not given.
    :return: the best model, and the results of all.
    :raises DataError: if there is no candidate, or one has no finite variance.
    :raises ModelError: for a model of another family.

    Example::

        model = AffineIndependentGLM((X, Y), BernoulliLogit())
        choice = best_base(
            model, candidates=["skew_normal", "generalized_normal", tfd.Gumbel(0.0, 1.0)]
        )
        print(choice.base)
    """
    require_model("best_base", model, AffineIndependentGP)
    if not candidates:
        raise DataError(
            "candidates is empty: name at least one base distribution, for example 'skew_normal'."
        )
    ascent = AffineIndependentAscent() if ascent is None else ascent
    models, results = {}, {}
    for candidate in candidates:
        trial = deepcopy(model)
        trial.basis.assign_base(candidate)
        name = trial.basis.base.name
        results[name] = ascent.run(trial)
        models[name] = trial
    best = max(results, key=lambda name: results[name].elbo)
    return BaseChoice(best, models[best], results)
