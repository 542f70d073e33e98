"""The shared part of the estimators."""

from __future__ import annotations

__all__ = ["DecoupledGP", "blocks_of", "numbers_in"]

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data

from ..building import build, can_initialize
from ..building.likelihoods import own_number
from ..building.rows import take_rows
from ..errors import DataError
from ..inputs import check_whole
from ..models import FullGP
from ..training import Evaluation, FitResult
from ..training.tables import is_frame
from ..training.tables.table import rows_of
from ..user_warnings import warn_user
from .validation import held_out_rows, how_to_go_on

_BLOCK = 8192
"""Rows predicted at once, so that memory does not grow with the data."""
_EVERY = 100
"""Steps between evaluations of held-out rows: score resolution against time."""


def blocks_of(rows: int) -> list[slice]:
    """Slices of rows that are predicted at once."""
    return [slice(start, start + _BLOCK) for start in range(0, rows, _BLOCK)]


def numbers_in(numbers: Mapping[str, Any], rows: slice) -> dict[str, Any]:
    """The part of some rows of arguments with a number for each; names of columns stay."""
    return {
        name: value if value is None or isinstance(value, str) else np.asarray(value)[rows]
        for name, value in numbers.items()
    }


class DecoupledGP(BaseEstimator):
    """Parameters, training and predictions in blocks of rows; X is [N, D], Y [N, P].

    See `DecoupledGPRegressor` for the parameters.
    """

    def __init__(
        self,
        kernel: Kernel | Callable[[int], Kernel] | None = None,
        *,
        likelihood: Likelihood | str | None = None,
        scale: str | None = None,
        num_inducing: int | None = None,
        num_mean_points: int | str | None = None,
        num_neighbours: int | None = None,
        steps: int | None = 1000,
        seconds: float | None = None,
        validation_fraction: float | None = None,
        n_iter_no_change: int = 10,
        fit_options: dict[str, Any] | None = None,  # the arguments of `fit` are of many types
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.likelihood = likelihood
        self.scale = scale
        self.num_inducing = num_inducing
        self.num_mean_points = num_mean_points
        self.num_neighbours = num_neighbours
        self.steps = steps
        self.seconds = seconds
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.fit_options = fit_options
        self.random_state = random_state
        self.verbose = verbose

    def _train(
        self,
        X: np.ndarray,
        Y: np.ndarray,
        likelihood: Likelihood | str,
        numbers: dict[str, Any],
    ) -> None:
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(2**31 - 1))
        X, Y, evaluation = self._hold_out(X, Y, rng, numbers, likelihood)
        self.standardized_ = build(
            X,
            Y,
            likelihood,
            self.kernel,
            scale=self.scale,
            num_inducing=self.num_inducing,
            num_mean_points=self.num_mean_points,
            num_neighbours=self.num_neighbours,
            seed=seed,
            verbose=bool(self.verbose),
            **numbers,
        )
        self.model_ = self.standardized_.model
        self.X_scaler_, self.y_scaler_ = self.standardized_.inputs, self.standardized_.outputs
        options: dict[str, object] = {
            "steps": self.steps,
            "seconds": self.seconds,
            "progress": bool(self.verbose),
        }
        # nothing in a step of a full GP is random
        options |= {} if isinstance(self.model_, FullGP) else {"seed": seed}
        options |= {} if evaluation is None else {"evaluation": evaluation}
        unchosen = self.kernel is None and not isinstance(self.likelihood, Likelihood)
        options |= {"initialize": "auto"} if unchosen and can_initialize(self.model_) else {}
        self.result_: FitResult = self.standardized_.fit(**(options | (self.fit_options or {})))
        if evaluation is not None and (advice := how_to_go_on(self.result_)):
            warn_user(advice, ConvergenceWarning)

    def _hold_out(
        self,
        X: np.ndarray,
        Y: np.ndarray,
        rng: np.random.RandomState,
        numbers: dict[str, Any],
        likelihood: Likelihood | str,
    ) -> tuple[np.ndarray, np.ndarray, Evaluation | None]:
        if self.validation_fraction is None:
            return X, Y, None
        if "evaluation" in (self.fit_options or {}):
            raise DataError(
                "validation_fraction and fit_options['evaluation'] both hold out rows; pass one of"
                " them."
            )
        check_whole(1, n_iter_no_change=self.n_iter_no_change)
        groups = Y[:, 0] if isinstance(self, ClassifierMixin) else np.zeros(len(Y))
        out = held_out_rows(groups, self.validation_fraction, rng)
        held = Y[out]
        others = [numbers[name] for name in numbers if name != "sample_weight"]
        if any(not (value is None or isinstance(value, str)) for value in others):
            # a frame has its own; each row that is held out counts alike
            alike = None if numbers["sample_weight"] is None else np.ones(len(Y))
            given = numbers | {"sample_weight": alike}
            of_rows = take_rows(X, given, Y, own_number(likelihood))[1]
            assert of_rows is not None, "some numbers are given"
            held = np.hstack([held, of_rows[out]])
        for name, value in numbers.items():
            numbers[name] = value if value is None or isinstance(value, str) else value[~out]
        data = rows_of(X, out), held
        evaluation = Evaluation(data, every=_EVERY, patience=self.n_iter_no_change)
        return rows_of(X, ~out), Y[~out], evaluation

    def _inputs(self, X: npt.ArrayLike) -> Any:
        check_is_fitted(self)
        frame = is_frame(X) and bool(self.standardized_.table.columns)
        return validate_data(self, X, reset=False, skip_check_array=frame)

    def _learned(
        self, X: npt.ArrayLike, y: npt.ArrayLike, **checks: bool
    ) -> tuple[Any, np.ndarray]:
        if not is_frame(X):
            return validate_data(self, X, y, **checks)
        validate_data(self, X, skip_check_array=True)
        # the columns are checked where they are encoded
        rows = np.zeros((np.shape(X)[0], 1))
        return X, check_X_y(rows, y, **checks)[1]

    def _moments(
        self, X: npt.ArrayLike, noise_variance: npt.ArrayLike | str | None = None, **numbers: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        inputs = self._inputs(X)
        noise: float | np.ndarray = 0.0
        if noise_variance is not None:
            noise = self.standardized_.known_noise(noise_variance, inputs)
        blocks = [
            self.standardized_.predict_y(rows_of(inputs, rows), **numbers_in(numbers, rows))
            for rows in blocks_of(len(inputs))
        ]
        mean, variance = zip(*blocks)
        return np.concatenate(mean), np.concatenate(variance) + noise
