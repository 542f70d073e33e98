"""A posterior as a SavedModel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf


def module_of(posterior: tf.Module, columns: int) -> Any:
    """A module with `predict`, the `predict_f` of any number of rows."""
    module = tf.Module()
    module.posterior = posterior
    module.predict = tf.function(
        posterior.predict_f,
        input_signature=[tf.TensorSpec([None, columns], tf.float64)],
        autograph=False,
    )
    return module


def loaded(module: tf.Module, path: Path) -> Any:
    """The module, saved and loaded; keep it, as its variables go with it."""
    tf.saved_model.save(module, str(path))
    return tf.saved_model.load(str(path))
