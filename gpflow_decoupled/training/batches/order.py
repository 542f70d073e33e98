"""Which rows a minibatch has."""

from __future__ import annotations

__all__ = ["DEFAULT_BATCH", "RowOrder"]

import numpy as np

from ...errors import DataError
from ...inputs import is_whole
from ...summaries import short_repr

DEFAULT_BATCH = 1024
_OF_MANY_LATENTS = 256
"""With `_MANY` latents or more: each costs M^2 operations per row, and more steps on fewer rows
train faster per second.
"""
_MANY = 4


class RowOrder:
    """Rows of minibatches, without replacement within an epoch, a function of (seed, step) alone.

    :param batch_size: rows of a batch; None takes all rows, "auto" at most 1024, or 256 with four
        latents or more.
    :param latents: L, the latent functions of the model.
    """

    def __init__(
        self, num_data: int, batch_size: int | None | str, seed: int, latents: int = 1
    ) -> None:
        if batch_size == "auto":
            batch_size = min(_OF_MANY_LATENTS if latents >= _MANY else DEFAULT_BATCH, num_data)
        elif batch_size is not None and (
            isinstance(batch_size, str) or not is_whole(batch_size, 1)
        ):
            raise DataError(
                f"batch_size={short_repr(batch_size)} must be a whole number of at least 1, None"
                ' for all rows, or "auto".'
            )
        if batch_size is not None and batch_size > num_data:
            raise DataError(
                f"batch_size={batch_size} is larger than the data, which have {num_data} rows; use"
                " None."
            )
        self.num_data, self.seed = num_data, seed
        self.batch_size = num_data if batch_size is None else batch_size
        self._epoch: int | None = None
        self._order = np.arange(num_data)

    def __call__(self, step: int) -> np.ndarray:
        epoch, place = divmod(step, self.num_data // self.batch_size)
        if epoch != self._epoch:
            self._order = np.random.default_rng([self.seed, epoch]).permutation(self.num_data)
            self._epoch = epoch
        return self._order[place * self.batch_size : (place + 1) * self.batch_size]
