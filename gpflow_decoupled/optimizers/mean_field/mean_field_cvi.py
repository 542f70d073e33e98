"""Mean-field conjugate computation on factor graphs."""

# A step of size rho moves each factor's messages to its variables z_k towards gradients in the
# expectation parameters mu_k of q(z_k), whose natural parameter is the sum of its messages: (C32)
#
#   lambda(f -> z_k) <- (1 - rho) lambda(f -> z_k) + rho grad_mu_k E_q log f

from __future__ import annotations

__all__ = ["MeanFieldCVI"]

import tensorflow as tf
from gpflow.config import default_float

from ...errors import DataError, check_option
from ...inputs import check_whole
from ...models.factor_graph import FactorGraph
from ...models.families import require_model
from ...summaries import settings_line, short_repr
from ..conjugate.conjugate_result import ConjugateResult
from ..steps import StepReport, StepSize, step_size_at
from .message_runs import run_batches, run_whole
from .messages import Moved, diagnose_messages, move_groups


class MeanFieldCVI(tf.Module):
    """Mean-field conjugate-computation VI for `models.FactorGraph`.

    Khan & Lin 2017, section 5; with rho = 1 and conjugate factors variational message passing. Cost
    of a step: each factor's gradient for each of its variables, and a linear solve with each
    variable's Fisher matrix.

    :param step_size: rho in (0, 1], a number or a function of the step 0, 1, ...
    :param schedule: "sequential" moves one variable after the other, in the graph's order;
        "parallel" moves all at once, with a step size below 1.
    :param update: on minibatches, "local" gives each part of the data its own message; "global" is
        stochastic variational inference.
    :param local_step_size: on minibatches, step size of variables with one row per observation.
    :param local_sweeps: on minibatches, moves of these before the others.
    :param seed: of draws and minibatches.

    Example::

        graph = FactorGraph(variables, factors)  # see `models.FactorGraph`
        result = MeanFieldCVI().run(graph)
        print(graph["rate"].distribution.mean())
    """

    def __init__(
        self,
        step_size: StepSize = 1.0,
        *,
        schedule: str = "sequential",
        update: str = "local",
        local_step_size: float = 1.0,
        local_sweeps: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        # update: "local" is (C20), "global" is (C19)
        check_option("schedule", schedule, ("sequential", "parallel"))
        check_option("update", update, ("local", "global"))
        if not 0.0 < local_step_size <= 1.0:
            raise DataError(
                f"local_step_size={short_repr(local_step_size)} must be a number above 0 and at"
                " most 1."
            )
        if local_sweeps < 1:
            raise DataError(f"local_sweeps={short_repr(local_sweeps)} must be at least 1.")
        self.step_size, self.schedule, self.update = step_size, schedule, update
        self.local_step_size, self.local_sweeps, self.seed = local_step_size, local_sweeps, seed
        self.step_size_at(0)

    def __repr__(self) -> str:
        return settings_line(self)

    def step_size_at(self, step: int) -> float:
        """The step size of step 0, 1, ...; raises `DataError` outside (0, 1]."""
        return step_size_at(self.step_size, step)

    def groups(self, names: list[str]) -> list[list[str]]:
        """The groups of variables that move together."""
        return (
            [[name] for name in names]
            if self.schedule == "sequential"
            else [names]
            if names
            else []
        )

    def minimize(self, graph: FactorGraph, step: int = 0) -> StepReport:
        """Take one step of all variables on all data, without the bound, which may fall.

        :param step: number of the step, for step size and draws.
        :return: whether the step was taken, and its halvings; read `ok` in a `tf.function`, which
            cannot raise.
        """
        require_model("MeanFieldCVI.minimize", graph, FactorGraph)
        seed = tf.constant([self.seed, step], tf.int32)
        now = Moved.at(graph.current())
        size = tf.constant(self.step_size_at(step), default_float())
        then = move_groups(graph, now, self.groups(list(graph.families)), size, graph.data, seed)
        if tf.executing_eagerly() and not then.ok:
            raise diagnose_messages(graph, now.messages, graph.data, seed)
        graph.assign(
            tf.nest.map_structure(
                lambda new, old: tf.where(then.ok, new, old), then.messages, now.messages
            )
        )
        return StepReport(then.ok, then.shortened, tf.constant(0))

    def run(
        self,
        graph: FactorGraph,
        *,
        steps: int = 200,
        tolerance: float = 1e-10,
        batch_size: int | None = None,
        progress: bool = False,
    ) -> ConjugateResult:
        """Take steps until the messages have converged; leave the graph at the last accepted ones.

        A step that lowers the bound is undone and halved; with samples or minibatches the bound is
        not watched: use a smaller or decaying step size.

        :param steps: limit of steps, undone ones included.
        :param tolerance: stop when a full step, squared, is below this share of the messages,
            squared.
        :param batch_size: rows per minibatch, for all `steps`; None is all data.
        """
        require_model("MeanFieldCVI.run", graph, FactorGraph)
        check_whole(1, steps=steps)
        if batch_size is None:
            return run_whole(self, graph, steps, tolerance, progress)
        return run_batches(self, graph, steps, batch_size, progress)
