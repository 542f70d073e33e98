"""The dataset of a worker, from what a user passes as data."""

from __future__ import annotations

__all__ = ["dataset_of"]

from typing import TypeVar

import tensorflow as tf

from ..errors import DataError
from .group import Group

Data = TypeVar("Data")


def dataset_of(data: Data, group: Group) -> Data | tf.data.Dataset:
    """The data of this worker: what was passed, or what a function of `tf.distribute.InputContext` returns.

    :param data: as a user has passed them: arrays, a dataset, or a function.
    :param group: the workers of the run.
    :raises DataError: for a dataset that each of several workers would read in full, and for what the function must not be.

    Example::

        dataset = dataset_of(lambda context: rows.shard(2, context.input_pipeline_id).batch(100), group)
    """
    if isinstance(data, tf.data.Dataset) and group.workers > 1:
        raise DataError(
            f"Each of {group.workers} workers would read all of this dataset: pass a function of a tf.distribute.InputContext "
            "that returns the shard of one, as lambda context: "
            "dataset.shard(context.num_input_pipelines, context.input_pipeline_id)."
        )
    if isinstance(data, tf.data.Dataset) or not callable(data):
        return data
    if group.strategy is None:
        raise DataError(
            "A function that returns a dataset is for several workers: pass strategy, or the dataset itself."
        )
    dataset = data(group.input_context())
    if not isinstance(dataset, tf.data.Dataset):
        raise DataError(
            f"The function of the data returned a {type(dataset).__name__}; it must return the tf.data.Dataset of one worker."
        )
    return dataset
