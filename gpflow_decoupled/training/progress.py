"""The progress line and the callbacks."""

from __future__ import annotations

__all__ = ["Callback", "Callbacks", "ProgressLine", "TensorBoard"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpflow.models import GPModel
from gpflow.monitor import Monitor
from tqdm.auto import tqdm

from ..errors import DataError
from ..inputs import check_whole
from ..models import FactorGraph

Callback = Callable[[int, dict[str, float], GPModel | FactorGraph], object]


@dataclass(frozen=True)
class Callbacks:
    """Functions that `fit` calls during training, and how often.

    :param functions: each is called with (step, metrics, model); `metrics` has "elbo", the mean
        bound since the last call, and after an evaluation "rmse" and "log_density". A
        `gpflow.monitor.Monitor` may be one.
    :param every: steps between two calls, and updates of the progress line.

    Example::

        show = Callbacks([lambda step, metrics, model: print(step, metrics)], every=100)
        fit(model, (X, Y), callbacks=show)
    """

    functions: Sequence[Callback | Monitor] = ()
    every: int = 20

    def __post_init__(self) -> None:
        check_whole(1, every=self.every)
        if not isinstance(self.functions, (list, tuple)) or not all(
            callable(one) for one in self.functions
        ):
            raise DataError(
                "callbacks must be a list of functions of (step, metrics, model), or of"
                " gpflow.monitor.Monitor."
            )

    def __call__(self, step: int, metrics: dict[str, float], model: GPModel | FactorGraph) -> None:
        for function in self.functions:
            if isinstance(function, Monitor):
                function(step)
            else:
                function(step, metrics, model)


_LONG = "{n:.0f} of at most {total:.0f} steps{postfix}"
"""Where a step is a whole climb, which tells nothing of the time of the next one."""


class ProgressLine:
    """Steps (or seconds), time left and a running mean of the bound, on one line."""

    def __init__(
        self, show: bool, steps: int | None, seconds: float | None, objective: str = "ELBO"
    ) -> None:
        self._objective = objective
        self._by_seconds = steps is None
        total = steps if seconds is None or steps is not None else round(seconds, 1)
        layout = (
            "{l_bar}{bar}| {n:.0f}/{total:.0f} "
            + ("s" if self._by_seconds else "steps")
            + ", {remaining} left{postfix}"
        )
        self._bar = tqdm(total=total, disable=not show, bar_format=layout, leave=True)

    def update(self, step: int, seconds: float, elbo: float, **metrics: float) -> None:
        """Show where the run is."""
        if self._bar.disable:
            return
        self._bar.n = min(seconds if self._by_seconds else step, self._bar.total)
        shown = {
            "step": step,
            self._objective: f"{elbo:.5g}",
            **{name: f"{value:.4f}" for name, value in metrics.items()},
        }
        self._bar.set_postfix(shown)

    def show(self, text: str) -> None:
        """Show the present part of a long step, until the next update."""
        if self._bar.disable:
            return
        if not self._by_seconds:
            self._bar.bar_format = _LONG
        self._bar.set_postfix_str(text)

    def close(self) -> None:
        """End the line."""
        self._bar.close()


class TensorBoard:
    """A callback of `fit` that writes all metrics to TensorBoard.

    :param folder: of the event files.
    :raises ImportError: with the fix, if TensorBoard is not installed.

    Example::

        fit(model, (X, Y), callbacks=[TensorBoard("logs")])
    """

    def __init__(self, folder: str) -> None:
        try:
            import tensorboard  # noqa: F401  (TensorFlow's summaries need it, and do not bring it)
        except ImportError as error:
            raise ImportError("TensorBoard is not installed: pip install tensorboard.") from error
        import tensorflow as tf

        self._summary, self._writer = tf.summary, tf.summary.create_file_writer(folder)

    def __call__(self, step: int, metrics: dict[str, float], model: GPModel | FactorGraph) -> None:
        with self._writer.as_default():
            for name, value in metrics.items():
                self._summary.scalar(name, value, step=step)
        self._writer.flush()
