"""Conjugate computation by neighbours: the sites of a `SiteNNGP`, in batches of rows."""

from __future__ import annotations

__all__ = ["SiteSweeps", "SweepReport"]

import time
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...compilation import Compiled
from ...errors import DataError, NumericalError
from ...inputs import check_whole
from ...models.families import require_model
from ...models.neighbours import SiteNNGP
from ...replicas import Group
from ...user_warnings import warn_user

_BATCH, _BATCHES = 1000, 4
"""Most rows whose sites move at once, and least batches of a pass: each sees the last one moved."""
_REGROWTH = 1.25
"""Growth of a step size that was halved, after a pass that changed less than the last."""
_SWEEPS = 30
"""Most passes over the rows."""


class SweepReport(NamedTuple):
    """The passes of a run."""

    changes: list[float]
    """Root mean squared change of the means of q(f) in each pass, in units of its deviations and of
    the step size; of the rows that it visited."""
    converged: bool
    """Whether the last change was below the tolerance."""
    seconds: float = 0.0
    """Of the last pass, or of a whole one at its pace if the deadline cut it."""
    search: float = 0.0
    """Seconds of the search for neighbours."""
    visited: float = 1.0
    """Share of the rows that the last pass visited, in a random order."""
    clipped: int = 0
    """Negative precisions that became zero, summed over the passes."""


class SiteSweeps:
    """Conjugate-computation VI in which every conditional is local (Khan & Lin 2017).

    With cavities from the sites of neighbours, and g and h the derivatives of E_q log p(y | f) in
    mean and variance of q(f), the sites of a batch become

        lambda <- (1 - rho) lambda - 2 rho h,   nu <- (1 - rho) nu + rho (g - 2 h mean)     (C13)

    Negative precisions, of likelihoods that are not log-concave, become zero, and are counted.

    :param model: whose sites move. With `expectations` pass k has the step size rho / k, which
        averages the draws of all passes.
    :param step_size: rho in (0, 1], halved after a pass that changed more than the last.
    :param batch_size: rows whose sites move at once; by default a quarter of all, at most 1,000.
    :param seed: of their order.
    :param compile: False runs eagerly.
    :param group: the workers, which share the rows of each batch; one message a batch.

    Cost of a pass: N L (m^3 / 3 + m^2 D); of a run also one search of neighbours. Example::

        SiteSweeps(model).run()
        mean, variance = model.predict_y(Xnew)
    """

    def __init__(
        self,
        model: SiteNNGP,
        step_size: float = 1.0,
        *,
        batch_size: int | None = None,
        seed: int = 0,
        compile: bool = True,
        group: Group | None = None,
    ) -> None:
        require_model("SiteSweeps", model, SiteNNGP)
        if batch_size is None:
            batch_size = min(_BATCH, -(-int(model.data[0].shape[0]) // _BATCHES))
        check_whole(1, batch_size=batch_size)
        check_whole(0, seed=seed)
        if not 0.0 < step_size <= 1.0:
            raise DataError(f"step_size={step_size} must be above 0 and at most 1.")
        self.model, self.step_size, self.batch_size, self.seed = model, step_size, batch_size, seed
        self.group = group or Group()
        step = model.move_sites if self.group.workers == 1 else model.moved_sites
        self._step = Compiled(step, reduce_retracing=True) if compile else step

    def __repr__(self) -> str:
        settings = f"step_size={self.step_size}, batch_size={self.batch_size}, seed={self.seed}"
        return f"{type(self).__name__}({self.model!r}, {settings})"

    def run(
        self,
        sweeps: int = _SWEEPS,
        *,
        rows: np.ndarray | None = None,
        tolerance: float = 1e-3,
        deadline: float = float("inf"),
    ) -> SweepReport:
        """Pass over the rows until the means of q(f) hardly move.

        :param sweeps: most passes.
        :param rows: row numbers [B] whose sites move, for instance new ones; all if not given.
        :param tolerance: of the last change, in deviations of q(f).
        :param deadline: a value of `time.perf_counter`. A pass ends at the first batch that ends
            later, with the remaining sites unchanged.
        :return: the changes. Warns if 30 passes or more, without draws, have not converged.
        :raises NumericalError: if the sites become infinite; the last pass is undone.
        """
        check_whole(1, sweeps=sweeps)
        N = int(self.model.data[0].shape[0])
        rows = np.arange(N) if rows is None else np.asarray(rows)  # checked with the neighbours
        start = time.perf_counter()
        near = self._neighbours(rows)
        search = time.perf_counter() - start
        rng, rho, changes = np.random.default_rng(self.seed), self.step_size, []
        clipped = 0
        for _ in range(sweeps):
            began = time.perf_counter()
            change, visited, negative = self._pass(rows, near, rng, rho, deadline)
            changes.append(change)
            clipped += negative
            seconds = (time.perf_counter() - began) / visited
            if visited < 1.0 or change < tolerance or self.group.is_over(deadline - seconds):
                break
            grew = len(changes) > 1 and changes[-1] > changes[-2]
            if self.model.expectations is not None:
                rho = self.step_size / (1 + len(changes))
            else:
                rho = 0.5 * rho if grew else min(self.step_size, _REGROWTH * rho)
        converged = visited == 1.0 and changes[-1] < tolerance
        exact = self.model.expectations is None  # changes by new draws do not end
        if exact and not converged and len(changes) >= _SWEEPS:
            warn_user(
                f"The sites have not converged in {len(changes)} passes: the last one moved the"
                f" means by {changes[-1]:.2g} standard deviations. Pass a smaller step_size, or"
                " more sweeps."
            )
        return SweepReport(changes, converged, seconds, search, visited, clipped)

    def _pass(
        self,
        rows: np.ndarray,
        near: tf.Tensor,
        rng: np.random.Generator,
        rho: float,
        deadline: float,
    ) -> tuple[float, float, int]:
        """The change of the means, the share of the rows that were visited in time, and how many
        precisions were clipped.
        """
        gaussian = self.model.gaussian
        before = gaussian.data[1].numpy(), gaussian.likelihood.variance.numpy()
        size, total = tf.constant(rho, self.model.float_type), np.zeros(2)
        places, visited = rng.permutation(len(rows)), 0
        while visited < len(rows):
            some = places[visited : visited + self.batch_size]
            total, visited = total + self._moved(rows, near, some, size), visited + len(some)
            if self.group.is_over(deadline):
                break
        if not np.all(np.isfinite(total)):
            gaussian.data[1].assign(before[0])
            gaussian.likelihood.variance.assign(before[1])
            raise NumericalError(
                "The sites became infinite, and the last pass was undone. Likely fixes: a smaller"
                " step_size, double precision, standardised inputs.",
                matrix="k(neighbours, neighbours)",
            )
        # of a full step: a short one changes little, however far the sites are from their goal
        change = float(np.sqrt(total[0] / (visited * self.model.num_latent_gps))) / rho
        return change, visited / len(rows), int(total[1])

    def _moved(
        self, rows: np.ndarray, near: tf.Tensor, some: np.ndarray, size: tf.Tensor
    ) -> np.ndarray:
        """[2]: the sum of the squared changes, and the number of clipped precisions."""

        def step(places: np.ndarray) -> Any:
            batch = tf.constant(rows[places], tf.int32)
            return self._step(batch, tf.gather(near, places, axis=1), size)

        if self.group.workers == 1:
            return np.array([float(part) for part in step(some)])
        nu, precision, *sums = self.group.over_rows(step, some)
        kind = self.model.float_type
        sites = tf.constant(nu, kind), tf.constant(precision, kind)
        self.model.assign_sites(tf.constant(rows[some], tf.int32), *sites)
        return np.array([np.sum(part) for part in sums])

    def _neighbours(self, rows: np.ndarray) -> tf.Tensor:
        """The neighbours of rows [B], [G, B, m]; each worker searches for its share of rows."""
        if self.group.workers == 1:
            return self.model.neighbours_of(rows)

        def found(some: np.ndarray) -> list[tf.Tensor]:
            return [tf.transpose(self.model.neighbours_of(some), [1, 0, 2])]

        (near,) = self.group.over_rows(found, rows)
        return tf.transpose(tf.constant(near, tf.int32), [1, 0, 2])
