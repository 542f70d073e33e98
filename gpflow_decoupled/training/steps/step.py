"""What the loop of `fit` needs of one training step, whatever the family of models."""

from __future__ import annotations

__all__ = ["Several", "Step", "StepOutput", "StepSizes", "Trackable", "all_finite"]

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import tensorflow as tf

Trackable: TypeAlias = "tf.Module | tf.Variable | tf.data.Iterator"
"""What `tf.train.Checkpoint` saves."""


class StepOutput(NamedTuple):
    """What a step reports to the loop: scalars, or arrays [K] of K steps."""

    elbo: tf.Tensor
    """The bound in nats of the whole data set, as the step computed it."""
    ok: tf.Tensor
    """False if anything in the step was not finite or not positive definite: the loop then undoes
    the step and stops.
    """
    shortened: tf.Tensor
    """How often the update of q was shortened."""
    clipped: tf.Tensor
    """How many observations had a negative precision clipped."""

    @classmethod
    def sound(
        cls, elbo: tf.Tensor, ok: tf.Tensor | bool = True, shortened: tf.Tensor | int = 0
    ) -> StepOutput:
        """The report of a step that clips nothing."""
        return cls(elbo, tf.convert_to_tensor(ok), tf.convert_to_tensor(shortened), tf.constant(0))


class StepSizes(NamedTuple):
    """The step sizes of one step, after ramp and annealing; a step reads those that it uses."""

    natural_gradient: float | None
    """Of the update of q; None where q is left to the optimizer."""
    learning_rate: float
    """Of the optimizer of everything else."""
    mean_learning_rate: float
    """Of the coefficients of the mean points."""
    share: float = 0.0
    """How much of the run is done, in [0, 1]."""


class Several(Protocol):
    """Takes many steps in one call. Step sizes come with the call."""

    most: int
    """Steps in one call."""

    def trace(self, X: tf.Tensor, Y: tf.Tensor) -> None:
        """Compile for any number K of batches X [K, B, D], Y [K, B, P] like these; no variable
        changes.
        """
        ...

    def run(
        self,
        X: tf.Tensor,
        Y: tf.Tensor,
        seeds: Sequence[tuple[int, int]],
        sizes: Sequence[StepSizes],
    ) -> StepOutput:
        """Take K steps.

        :param X: the inputs [K, B, D] of the batches.
        :param Y: their observations [K, B, P].
        :param seeds: K pairs, see `Step.run`.
        :param sizes: K step sizes.
        :return: arrays [K]. After a step that is not `ok` no other is taken, and their entries are
        zeros and False.
        """
        ...


class Step(Protocol):
    """One training step of a model. Routes derive from this class and override what does not hold
    for them.

    The order of calls is: `trace` once; then for every step `set_step_sizes`, `refresh` where it is
    due, and `run`; after the last step `finish` and `bound`. The loop copies `variables` before a
    step and writes them back if it fails.
    """

    finished: str = ""
    """Why there is nothing left to do, as soon as a step finds that; empty before."""
    converged: bool = False
    """Whether `finished` means that a tolerance was reached."""

    gap: float | None = None
    """Nats: how far the bound is at most below its maximum over the mean, where a step certifies
    that.
    """
    show: Callable[[str], object] | None = None
    """Shows a line on where a long step is, beside the progress of the run; the loop sets it."""
    before: tuple[float, ...] = ()
    """Nats: the bound before the first step, where steps report the bound after them."""
    end: float = 1.0
    """The share of the run at which step sizes have fallen: less than 1 where other work
    follows.
    """
    is_long: bool = False
    """Whether the last step took so long, or so much data, that it is reported by itself."""
    sampled_rows: int | None = None
    """How many rows estimate the norm of the mean in each step, where it is not computed as a
    whole.
    """
    several: Several | None = None
    """Takes steps on arrays in the place of `trace`, `set_step_sizes` and `run`, many in one call,
    where a step is small.
    """

    @property
    def variables(self) -> Sequence[tf.Variable]:
        """Everything that a step writes, the state of the optimizers included."""
        ...

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        """What a checkpoint saves beside the model, by name."""
        return {}

    @property
    def settings(self) -> dict[str, object]:
        """What must be the same for a resumed run to go on to the same trace, by name."""
        return {}

    def trace(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        """Compile the step for batches like this one; no variable changes."""
        return None

    def set_step_sizes(self, sizes: StepSizes) -> None:
        """Take the step sizes of the next step."""
        return None

    def refresh(self) -> bool:
        """Bring up to date what stays as it is for many steps; whether there was anything to do.

        :raises NumericalError: if that fails; the loop then undoes it and stops.
        """
        return False

    def run(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> StepOutput:
        """Take one step.

        :param X: the inputs [B, D] of the batch.
        :param Y: the observations [B, P] of the batch.
        :param seed: [2], the seed of the run and the number 0, 1, ... of the step.
        :raises NumericalError: if the step fails and knows why; else `StepOutput.ok` is False.
        """
        ...

    def finish(self) -> bool:
        """Do what remains after the last step; whether there was anything to do.

        :raises NumericalError: if that fails; the loop then undoes it.
        """
        return False

    def bound(self, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor | None:
        """The bound at the Parameters as they are, in nats, on all data X [N, D], Y [N, P]; None if
        only estimates exist.
        """
        return None

    def probe(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """A number that is finite where the bound is, at the Parameters as they are; nothing that a
        run draws is used up.

        :param X: the inputs [B, D] of a batch.
        :param Y: the observations [B, P] of a batch.
        :param seed: [2], as for `run`.
        """
        bound = self.bound(X, Y)
        return tf.zeros([]) if bound is None else bound

    def matrices(self) -> dict[str, tf.Tensor]:
        """The matrices that a step factorises, by name, to find out which one made it fail."""
        return {}


def all_finite(tensors: Iterable[tf.Tensor | None]) -> tf.Tensor:
    """Whether all entries of all tensors are finite, a scalar; None stands for a gradient that does
    not exist.
    """
    checks = [tf.reduce_all(tf.math.is_finite(tensor)) for tensor in tensors if tensor is not None]
    return tf.reduce_all(tf.stack(checks))
