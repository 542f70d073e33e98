"""Every test starts from the same seeds and from GPflow's default configuration.

TensorFlow is imported in the fixture: the process that hands out tests to the workers then never loads it,
and what it logs when loaded does not end up below pytest's closing line.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    """Seed NumPy and TensorFlow, and undo what a test does to GPflow's configuration."""
    import gpflow
    import tensorflow as tf

    np.random.seed(0)
    tf.random.set_seed(0)
    with gpflow.config.as_context(gpflow.config.Config()):
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator of random numbers that is the same in every run of a test."""
    return np.random.default_rng(0)
