"""A photograph as a regression problem: where a pixel is, how bright it is, and which pixels are
held out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_sample_image

CENTRE = (150, 315)
"""Row and column of the middle of the flower."""
HELD_OUT = 0.1


@dataclass(frozen=True)
class Pixels:
    """The grey photograph [H, W], means of three colours in [0, 1], and its pixels as inputs X
    [H W, 2] and outputs Y [H W, 1].
    """

    grey: np.ndarray
    held_out: np.ndarray
    """[H W], bool."""

    @property
    def X(self) -> np.ndarray:
        """Column and row of each pixel, centred and in units that give the columns variance one."""
        rows, columns = np.indices(self.grey.shape)
        X = np.stack([columns.ravel(), rows.ravel()], axis=1).astype(float)
        return (X - X.mean(axis=0)) / X[:, 0].std()

    @property
    def mean(self) -> float:
        """Mean brightness of the training pixels."""
        return float(self.grey.ravel()[~self.held_out].mean())

    @property
    def std(self) -> float:
        """Standard deviation of the brightness of the training pixels."""
        return float(self.grey.ravel()[~self.held_out].std())

    @property
    def Y(self) -> np.ndarray:
        """Brightness less the training pixels' mean, in units of their standard deviation."""
        return (self.grey.reshape(-1, 1) - self.mean) / self.std

    @property
    def training(self) -> tuple[np.ndarray, np.ndarray]:
        """X [N, 2] and Y [N, 1] of the pixels that may be learned from."""
        return self.X[~self.held_out], self.Y[~self.held_out]

    @property
    def test(self) -> tuple[np.ndarray, np.ndarray]:
        """X and Y of the pixels held out."""
        return self.X[self.held_out], self.Y[self.held_out]

    def some_held_out(self, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """X and Y of at most `count` random pixels of those held out, to watch while training."""
        X, Y = self.test
        watched = np.random.default_rng(seed).permutation(len(X))[:count]
        return X[watched], Y[watched]

    def picture(self, Y: np.ndarray) -> np.ndarray:
        """Grey levels [H, W] of standardised brightness [H W, 1]."""
        return (self.mean + self.std * Y).reshape(self.grey.shape)

    def training_contrast(self, block: int = 8) -> np.ndarray:
        """Standard deviation [N] of brightness among the training pixels of the same square of
        `block` pixels.
        """
        rows, columns = np.indices(self.grey.shape) // block
        square = (rows * (columns.max() + 1) + columns).ravel()[~self.held_out]
        grey = self.grey.ravel()[~self.held_out]
        count = np.maximum(np.bincount(square), 1)
        first, second = (np.bincount(square, grey**power) / count for power in (1, 2))
        return np.sqrt(np.maximum(second - first**2, 0.0))[square]


def load_pixels(shape: tuple[int, int] | None, seed: int) -> Pixels:
    """scikit-learn's photograph of a flower; all of it, or `shape` = (rows, columns) around the
    flower.
    """
    grey = load_sample_image("flower.jpg").mean(axis=2) / 255.0
    if shape is not None:
        top, left = (middle - size // 2 for middle, size in zip(CENTRE, shape))
        grey = grey[top : top + shape[0], left : left + shape[1]]
    held_out = np.zeros(grey.size, bool)
    chosen = np.random.default_rng(seed).choice(
        grey.size, round(HELD_OUT * grey.size), replace=False
    )
    held_out[chosen] = True
    return Pixels(grey, held_out)
