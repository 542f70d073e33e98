"""TensorFlow's seed, set before each test without the price of setting it."""

from __future__ import annotations

import random


def seed_tensorflow(seed: int) -> None:
    """Call `tf.random.set_seed`, unless nothing was drawn since it was called with this seed.

    It throws away all compiled operations, and making them again takes a quarter of the time of
    the tests, few of which draw from TensorFlow's global seed. TensorFlow keeps the generator of
    the operations' seeds in its context; that generator's state tells whether it was used.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context

    now = context.context()
    untouched = random.Random(seed).getstate()
    if now._seed != seed or now._rng is None or now._rng.getstate() != untouched:
        tf.random.set_seed(seed)
