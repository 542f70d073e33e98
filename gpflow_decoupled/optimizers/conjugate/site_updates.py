"""Checked rows, written sites."""

from __future__ import annotations

__all__ = ["all_finite", "checked_rows", "write_sites"]

import numpy.typing as npt
import tensorflow as tf

from ...bases import SiteBasis
from ...errors import DataError
from ...models import CVIGP
from ..steps import StepReport


def all_finite(values: tf.Tensor) -> tf.Tensor:
    """True if all entries are finite, a scalar."""
    return tf.reduce_all(tf.math.is_finite(values))


def checked_rows(model: CVIGP, rows: npt.ArrayLike) -> tf.Tensor:
    """Indices of observations [B] as a tensor; `DataError` for invalid ones."""
    given = tf.convert_to_tensor(rows)
    shape = tuple(given.shape)
    if len(shape) != 1 or shape[0] == 0:
        raise DataError(
            f"rows has shape {shape}; it must be [B], the indices of at least one observation."
        )
    if not given.dtype.is_integer:
        raise DataError(
            f"rows are {given.dtype.name} and must be whole numbers; of a mask pass"
            " np.flatnonzero(mask)."
        )
    # int32 would wrap numbers beyond it to rows that exist
    indices: tf.Tensor = tf.cast(given, tf.int64)
    if tf.executing_eagerly() and not tf.reduce_all(
        (indices >= 0) & (indices < model.basis.num_data)
    ):
        raise DataError(
            f"rows must be indices from 0 to {model.basis.num_data - 1}; the model has no other"
            " data."
        )
    return tf.cast(indices, tf.int32)


def write_sites(
    basis: SiteBasis, new: list[tf.Tensor], ok: tf.Tensor, shortened: tf.Tensor, clipped: tf.Tensor
) -> StepReport:
    """Write new sites [N, L] if all is well, and report."""
    ok = ok & tf.reduce_all([all_finite(value) for value in new])

    def assign() -> tf.Tensor:
        basis.nu.assign(new[0])
        basis.tau.assign(new[1])
        return ok

    tf.cond(ok, assign, lambda: ok)
    return StepReport(ok, shortened, clipped)
