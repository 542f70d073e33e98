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
    """The model with the greatest bound, and all results.

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
    """Results by name of the base distribution."""

    def __repr__(self) -> str:
        """One line, arrays by shape."""
        return one_line(self, **self._asdict())

    def _repr_html_(self) -> str:
        """A table of all fields for notebooks."""
        return html_table(type(self).__name__, self._asdict())


def best_base(
    model: AffineIndependentGP,
    candidates: Sequence[BaseLike] = ("skew_normal", "generalized_normal"),
    ascent: AffineIndependentAscent | None = None,
) -> BaseChoice:
    """Run several base distributions and choose the one with the greatest bound.

    Each runs on a copy; the model itself is unchanged. Cost: one run per candidate.

    :param model: an `AffineIndependentGP`, or the model that `AffineIndependentGLM` returns.
    :param candidates: names of `distributions.BASES`, objects of `distributions.Base`, or scalar
        TFP distributions of finite variance.
    :param ascent: the settings of each run; `AffineIndependentAscent()` if not given.
    :return: the best model, and all results.
    :raises DataError: for no candidate, or one without finite variance.
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
