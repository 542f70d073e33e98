"""The pictures of the demo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from .outcomes import Outcome
from .pixels import CENTRE, Pixels

COLOURS = ["#4c72b0", "#dd8452", "#c44e52", "#555555"]
MISSING = "#d62728"


def draw_reconstructions(pixels: Pixels, outcomes: Sequence[Outcome], path: Path) -> None:
    """Original, training pixels and each model: all of it, a close-up, the predictive standard
    deviation.
    """
    height, width = pixels.grey.shape
    columns = 2 + len(outcomes)
    figure, axes = plt.subplots(
        3,
        columns,
        figsize=(3.3 * columns, 10.4 * height / width),
        layout="constrained",
        squeeze=False,
    )
    training = np.where(pixels.held_out.reshape(height, width), np.nan, pixels.grey)
    shown = [("original", pixels.grey), ("training pixels (held out: red)", training)]
    shown += [(f"{o.row.model}: RMSE {o.row.score.rmse:.4f}", o.mean) for o in outcomes]
    close = _close_up(height, width)
    for k, (title, image) in enumerate(shown):
        for axis, part in ((axes[0, k], image), (axes[1, k], image[close])):
            axis.set_facecolor(MISSING)
            axis.imshow(part, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes[0, k].set_title(title)
    top = max(float(np.quantile(o.std, 0.999)) for o in outcomes if o.std is not None)
    for axis, outcome in zip(axes[2, 2:], outcomes):
        axis.set_xlabel(f"noise {outcome.noise:.3f}")
        if outcome.std is None:
            for spine in axis.spines.values():
                spine.set_visible(False)
            continue
        picture = axis.imshow(outcome.std, cmap="magma", vmin=0, vmax=top)
    for axis in axes[2, :2]:
        axis.axis("off")
    scale = axes[2, 1].inset_axes((0.05, 0.45, 0.9, 0.1))
    figure.colorbar(picture, cax=scale, orientation="horizontal")
    scale.set_title(
        "predictive standard deviation of f\n(grey levels, without the noise)", fontsize=11
    )
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _close_up(height: int, width: int) -> tuple[slice, slice]:
    """The upper part of the flower, or the middle of a crop."""
    if height <= CENTRE[0] or width <= CENTRE[1]:
        return slice(height // 4, 3 * height // 4), slice(width // 4, 3 * width // 4)
    return slice(CENTRE[0] - 60, CENTRE[0] + 60), slice(CENTRE[1] - 90, CENTRE[1] + 90)


def draw_training(outcomes: Sequence[Outcome], num_data: int, path: Path) -> None:
    """Bound and held-out error against seconds of training, for models that have them."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    ends = []
    for colour, outcome in zip(COLOURS, outcomes):
        trace, style = outcome.trace, {"color": colour, "label": outcome.row.model}
        if "elbo" in trace:
            seconds, bound = _running_mean(trace["seconds"], trace["elbo"] / num_data)
            left.plot(seconds, bound, **style)
            ends += [float(np.quantile(bound, 0.2)), float(bound.max()) + 0.05]
        if "rmse" in trace:
            right.plot(trace["evaluation_seconds"], trace["rmse"], "o-", markersize=3, **style)
        else:
            right.axhline(outcome.row.score.rmse, linestyle="--", **style)
    right.set_ylim(bottom=0.0)
    left.set_ylim(min(ends), max(ends))  # the first steps would squeeze the rest
    left.set_ylabel("ELBO per training pixel (nats)")
    right.set_ylabel("RMSE on held-out pixels (grey levels)")
    for axis in (left, right):
        axis.set_xlabel("seconds of training")
        axis.grid(alpha=0.3)
    right.legend(frameon=False, loc="center right", bbox_to_anchor=(1.0, 0.62))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _running_mean(*arrays: np.ndarray, window: int = 20) -> list[np.ndarray]:
    window = max(1, min(window, len(arrays[0]) // 4))
    return [np.convolve(values, np.full(window, 1.0 / window), "valid") for values in arrays]
