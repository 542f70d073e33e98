"""The progress line and the callbacks."""

from __future__ import annotations

__all__ = ["ProgressLine", "TensorBoard", "call_back"]

from collections.abc import Callable, Sequence
from typing import Any

from gpflow.monitor import Monitor
from tqdm.auto import tqdm


class ProgressLine:
    """Steps (or seconds), time left and a running mean of the bound, on one line."""

    def __init__(self, show: bool, steps: int | None, seconds: float | None) -> None:
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
            "ELBO": f"{elbo:.5g}",
            **{name: f"{value:.4f}" for name, value in metrics.items()},
        }
        self._bar.set_postfix(shown)

    def close(self) -> None:
        """End the line."""
        self._bar.close()


class TensorBoard:
    """A callback that writes every reported metric to TensorBoard.

    :param folder: where the event files go. Raises `ImportError`, with the fix, if TensorBoard is not installed.
    """

    def __init__(self, folder: str) -> None:
        try:
            import tensorboard  # noqa: F401  (TensorFlow's summaries need it, and do not bring it)
        except ImportError as error:
            raise ImportError("TensorBoard is not installed: pip install tensorboard.") from error
        import tensorflow as tf

        self._summary, self._writer = tf.summary, tf.summary.create_file_writer(folder)

    def __call__(self, step: int, metrics: dict[str, float], model: Any) -> None:
        """Write the metrics of one step."""
        with self._writer.as_default():
            for name, value in metrics.items():
                self._summary.scalar(name, value, step=step)
        self._writer.flush()


def call_back(callbacks: Sequence[Callable], step: int, metrics: dict[str, float], model: Any) -> None:
    """Call each with (step, metrics, model); a `gpflow.monitor.Monitor` as it wants to be called."""
    for callback in callbacks:
        if isinstance(callback, Monitor):
            callback(step)
        else:
            callback(step, metrics, model)
