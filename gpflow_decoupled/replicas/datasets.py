"""A worker's dataset, from the user's data."""

from __future__ import annotations

__all__ = ["dataset_of", "starts_passes"]

import inspect
from typing import TypeVar

import tensorflow as tf

from ..errors import DataError
from .group import Group

Data = TypeVar("Data")


def dataset_of(data: Data, group: Group) -> Data | tf.data.Dataset:
    """Return this worker's data: the argument, or the result of a function of an `InputContext`."""
    if isinstance(data, tf.data.Dataset) and group.workers > 1:
        raise DataError(
            f"Each of {group.workers} workers would read all of this dataset: pass a function of a"
            " tf.distribute.InputContext that returns the shard of one, as lambda context:"
            " dataset.shard(context.num_input_pipelines, context.input_pipeline_id)."
        )
    if (
        isinstance(data, tf.data.Dataset)
        or not callable(data)
        or (group.workers == 1 and starts_passes(data))
    ):
        return data
    if group.strategy is None:
        raise DataError(
            "A function of one argument is for several workers: pass strategy, or the dataset"
            " itself, or a function without arguments that returns an iterator of batches."
        )
    if starts_passes(data):
        raise DataError(
            f"Each of {group.workers} workers would read all batches of this function: pass a"
            " function of a tf.distribute.InputContext that returns the dataset of one."
        )
    dataset = data(group.input_context())
    if not isinstance(dataset, tf.data.Dataset):
        raise DataError(
            f"The function of the data returned a {type(dataset).__name__}; it must return the"
            " tf.data.Dataset of one worker."
        )
    return dataset


def starts_passes(data: object) -> bool:
    """Return True if data are a function without arguments, which starts a pass over batches."""
    if not callable(data):
        return False
    try:
        inspect.signature(data).bind()
    except TypeError:
        return False
    except ValueError:  # functions of C do not tell their arguments
        return True
    return True
