"""The best mean on all data, by any solver."""

from __future__ import annotations

__all__ = ["MeanOptimizer"]

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import tensorflow as tf
from gpflow.base import RegressionData
from tqdm.auto import tqdm

from ...bases.parts.data_mean import refuse_streams
from ...diagnostics.accuracy import warn_of_quadrature
from ...errors import UnknownOptionError
from ...models import BasisGP
from ...models.families import data_mean_of
from ...replicas import Group, group_of, refuse_other_workers
from .mean_result import MeanResult
from .mean_run import MeanRun
from .mean_settings import MeanSettings


class MeanOptimizer(MeanSettings):
    """Base class of optimizers for `gamma="data"`: linear solves and updates of the sites in turn.

    Derived classes are frozen dataclasses with the fields of `MeanSettings`, see
    `ConjugateGradients`, and define `solver`.
    """

    def rough(self, tolerance: float) -> MeanOptimizer:
        """Return a copy for solves between hyperparameter steps: `tolerance` nats or more,
        uncertified.
        """
        # the derived classes are dataclasses
        return replace(cast(Any, self), tolerance=max(self.tolerance, tolerance))

    def run(
        self,
        model: BasisGP,
        data: RegressionData,
        *,
        deadline: float = float("inf"),
        strategy: tf.distribute.Strategy | None = None,
    ) -> MeanResult:
        """Find the best q(f) at fixed hyperparameters; leave it in the model, even if interrupted.

        :param model: a model with `gamma="data"`.
        :param data: all data, X [N, D] and Y [N, P]. The mean points become X; if they already are,
            the run starts from their coefficients.
        :param deadline: a value of `time.perf_counter`, after which no product ends but the
            certificate.
        :param strategy: a `tf.distribute` strategy whose replicas share the products; build the
            model in `strategy.scope()`.
        """
        data_mean_of(model, type(self).__name__)
        refuse_streams(data)
        self.check_replicas(strategy)
        group = group_of(model, strategy)
        with group.scope(), group.naming_lost_workers():
            if group.workers > 1:
                arrays = group.together(lambda: [array.numpy() for array in model.checked(data)])
                refuse_other_workers(
                    group, model, arrays, {**self.settings, "deadline": deadline < float("inf")}
                )
            return self.run_on(group, model, data, deadline=deadline)

    def check_replicas(self, strategy: tf.distribute.Strategy | None) -> None:
        """Raise `UnknownOptionError` if several replicas cannot share the work."""
        if self.not_on_replicas and strategy is not None and strategy.num_replicas_in_sync > 1:
            raise UnknownOptionError(self.not_on_replicas)

    def run_on(
        self,
        group: Group,
        model: BasisGP,
        data: RegressionData,
        *,
        deadline: float = float("inf"),
        show: Callable[[str], object] | None = None,
    ) -> MeanResult:
        """`run` on workers already checked to agree, inside `group.scope()`.

        :param show: shows a line of progress; None is a progress bar if `progress` is set.
        """
        mean = data_mean_of(model, type(self).__name__)
        X, Y = model.checked(data)
        model.num_data = int(X.shape[0])
        mean.set_data(X.numpy())
        own_line = show is None and self.progress and group.is_first
        with tqdm(disable=not own_line, bar_format="{desc}") as line:
            run = MeanRun(
                self, model, mean, (X, Y), show or line.set_description_str, deadline, group
            )
            result = run.solve()
        warn_of_quadrature(model, result.elbo, (X, Y))
        return result
