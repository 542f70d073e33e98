"""scikit-learn's interface, without importing scikit-learn."""

from __future__ import annotations

__all__ = ["Estimator"]

import inspect
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UnknownOptionError
from ..summaries import one_line
from .fitting.document_passes import Progress

if TYPE_CHECKING:
    from sklearn.utils import Tags


class Estimator:
    """Constructor parameters as scikit-learn's pipelines, searches and `clone` need them.

    A subclass's constructor only stores its arguments under their names.
    """

    num_topics: int
    _fitted: Progress

    def get_params(
        self, deep: bool = True
    ) -> dict[str, Any]:  # of many types, so that the constructor takes them
        """The constructor's arguments, by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: object) -> Estimator:
        """Change constructor arguments; return the model."""
        unknown = set(params) - set(self.get_params())
        if unknown:
            raise UnknownOptionError(
                f"{sorted(unknown)} are not arguments of {type(self).__name__}; it has"
                f" {', '.join(self.get_params())}."
            )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = {
            name: one.default for name, one in inspect.signature(type(self)).parameters.items()
        }
        changed = {
            name: value
            for name, value in self.get_params().items()
            if not _same(value, defaults[name])
        }
        return one_line(self, **changed)

    @property
    def n_features_in_(self) -> int:
        """V, the size of the fitted vocabulary, by scikit-learn's name."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError(
                f"This {type(self).__name__} has no topics yet; call fit or partial_fit first."
            )
        return int(self._fitted.shared.components.shape[1])

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """The names "topic0", "topic1", ... [K] of `transform`'s columns; the input is ignored."""
        return np.array([f"topic{number}" for number in range(self.num_topics)], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    def __sklearn_tags__(self) -> Tags:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=["float64", "float32"]),
            input_tags=InputTags(sparse=True, positive_only=True),
        )


def _same(value: object, default: object) -> bool:
    return value is default or (isinstance(value, (str, Real)) and value == default)
