"""Mean-field conjugate computation on factor graphs: messages between factors and variables.

Khan & Lin 2017 (arXiv:1703.04265), section 5. Every message moves towards the gradient of its factor's expectation:

    lambda(f -> z_k) <- (1 - rho) lambda(f -> z_k) + rho grad_mu_k E_q log f,   lambda_k = sum_f lambda(f -> z_k)   (C32)

With rho = 1, one variable after the other and conjugate factors it is variational message passing, and the bound rises.
"""

from __future__ import annotations

__all__ = ["MeanFieldCVI"]


import tensorflow as tf
from gpflow.config import default_float

from ...errors import DataError, check_option
from ...models.factor_graph.graph import FactorGraph
from ..conjugate.result import ConjugateResult
from ..natural_gradient.optimizer import StepReport
from ..steps import Rho, step_size
from .runs import run_batches, run_whole, start
from .steps import diagnose_messages, sweep


class MeanFieldCVI(tf.Module):
    """Mean-field conjugate-computation VI for `models.FactorGraph`.

    :param rho: step size in (0, 1], a number or a function of the step 0, 1, ...
    :param schedule: "sequential" moves one variable after the other, in the order of the graph; "parallel" all at once, which
        wants rho below 1.
    :param update: on minibatches "local", where each part of the data keeps its own message (C20), or "global", where messages
        shrink and gain the scaled gradient (C19): stochastic variational inference.
    :param local_rho: on minibatches, the step size of variables with a row an observation.
    :param local_sweeps: on minibatches, how often these move before the others do.
    :param seed: of draws and minibatches.

    The posterior does not depend on rho. A step that would leave the domain of a family is halved until it does not. Cost of
    a step: the gradient of each factor for each neighbour, and a Fisher solve of the size of the natural parameter.
    Raises `DataError` for step sizes outside (0, 1], `UnknownOptionError` for unknown options.
    """

    def __init__(
        self,
        rho: Rho = 1.0,
        *,
        schedule: str = "sequential",
        update: str = "local",
        local_rho: float = 1.0,
        local_sweeps: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_option("schedule", schedule, ("sequential", "parallel"))
        check_option("update", update, ("local", "global"))
        if not 0.0 < local_rho <= 1.0:
            raise DataError(f"local_rho={local_rho!r} must be in (0, 1].")
        if local_sweeps < 1:
            raise DataError(f"local_sweeps={local_sweeps!r} must be at least 1.")
        self.rho, self.schedule, self.update = rho, schedule, update
        self.local_rho, self.local_sweeps, self.seed = local_rho, local_sweeps, seed
        self.step_size(0)

    def step_size(self, step: int) -> float:
        """Rho of step 0, 1, ...; raises `DataError` outside (0, 1]."""
        return step_size(self.rho, step)

    def groups(self, names: list[str]) -> list[list[str]]:
        """Which of the variables move together."""
        return [[name] for name in names] if self.schedule == "sequential" else [names] if names else []

    def minimize(self, graph: FactorGraph, step: int = 0) -> StepReport:
        """One step of all variables on all data; `step` sets rho and the draws. The bound is not looked at.

        Raises `NumericalError` that names factor and variable if the step fails, with nothing changed.
        """
        seed = tf.constant([self.seed, step], tf.int32)
        now = start(graph.current())
        rho = tf.constant(self.step_size(step), default_float())
        then = sweep(graph, now, self.groups(list(graph.families)), rho, graph.data, seed)
        if tf.executing_eagerly() and not then.ok:
            raise diagnose_messages(graph, now.messages, graph.data, seed)
        graph.assign(tf.nest.map_structure(lambda new, old: tf.where(then.ok, new, old), then.messages, now.messages))
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
        """Step until the squared change of the messages is below `tolerance` times their squared length, or `steps` times.

        On all data a step after which the bound is lower is halved, and later steps grow back to rho; with sampled factors,
        whose bound is an estimate, and on minibatches it is not: use rho below 1, or let it decay. Minibatches are a fixed
        division of the rows, visited in random order; the bound is computed at the end of each epoch then.
        Raises `DataError` for a batch size that does not fit, and as `minimize`; the messages are the last sound ones then.
        """
        if batch_size is None:
            return run_whole(self, graph, steps, tolerance, progress)
        return run_batches(self, graph, steps, batch_size, progress)
