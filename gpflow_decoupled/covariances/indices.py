"""Columns that are indices: neither scaled nor rounded."""

from __future__ import annotations

__all__ = ["Index", "check_indices", "indices_of"]

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from gpflow.base import TensorType
from gpflow.functions import Function, SwitchedFunction
from gpflow.kernels import ChangePoints, Combination, Coregion, Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood

from ..errors import DataError
from ..inputs import known


class Index(NamedTuple):
    """A column that is read as an index."""

    column: int
    """Of X; -1 is the last one."""
    size: int
    """Values are 0, 1, ..., size - 1."""
    reader: str
    """The class that reads it."""


def indices_of(*parts: Kernel | Function | Likelihood | None) -> list[Index]:
    """Return the columns of X that parts of a model read as indices.

    These are the columns of `Coregion`, and the last one of `Categorical` and `SwitchedFunction`,
    in compositions too.

    :param parts: kernels, mean functions, likelihoods; None is skipped.
    """
    return [index for part in parts for index in _read_by(part)]


def check_indices(X: TensorType, name: str, *parts: Kernel | Function | Likelihood | None) -> None:
    """Refuse entries that are no index where one is read, as far as known when tracing.

    :param X: inputs [..., N, D].
    :param parts: of the model, see `indices_of`.
    """
    # TensorFlow reads 0.5 as 0, and out of range gives zeros on some devices.
    found = indices_of(*parts)
    values = known(X) if found else None
    if not found or values is None or values.ndim < 2:
        return
    for column, size, reader in found:
        if not -values.shape[-1] <= column < values.shape[-1]:
            continue  # the kernel's check of its columns says so
        entries = values[..., column].reshape(-1)
        bad = (entries != np.round(entries)) | (entries < 0) | (entries >= size)
        if np.any(bad):
            row, place = int(np.flatnonzero(bad)[0]), column % values.shape[-1]
            raise DataError(
                f"{name}[{row}, {place}] is {entries[row]:g}, and {reader} reads this column as an"
                f" index: it must be a whole number from 0 to {size - 1}. Do not scale it; number"
                " the categories by np.unique(column, return_inverse=True)[1]."
            )


def _read_by(part: object) -> Iterator[Index]:
    if isinstance(part, Coregion):
        dims = part.active_dims
        column = int((dims.start or 0) if isinstance(dims, slice) else dims[0])
        yield Index(column, int(part.output_dim), "Coregion")
    elif type(part).__name__ == "Categorical" and isinstance(part, Kernel):
        # by its name, as GPflow does not export it
        yield Index(-1, int(part._Z_deltas.shape[0]) + 1, "Categorical")
    elif isinstance(part, SwitchedFunction):
        yield Index(-1, len(part.functions), type(part).__name__)
    else:
        for inner in _inside(part):
            yield from _read_by(inner)


def _inside(part: object) -> Iterable[object]:
    if isinstance(part, MultioutputKernel):
        return part.latent_kernels
    if isinstance(part, (Combination, ChangePoints)):
        return part.kernels
    if isinstance(part, (Function, Likelihood)):
        return [own for own in vars(part).values() if isinstance(own, Function)]
    return ()
