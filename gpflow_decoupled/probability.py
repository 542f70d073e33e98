"""TensorFlow Probability (TFP): the only module that imports it.

TFP's last release is of Keras 2, so that what replaces it one day is chosen here. The package uses
its base classes of distributions and bijectors, which GPflow's Parameters and priors are made of;
a dozen distributions, bijectors of intervals and of positive numbers; and of `math` and `random`
root finding, special functions, triangles of vectors, interpolation, and seeds that split.
"""

from __future__ import annotations

__all__ = ["tfb", "tfd", "tfm", "tfp", "tfu"]

import tensorflow_probability as tfp
from tensorflow_probability import bijectors as tfb
from tensorflow_probability import distributions as tfd
from tensorflow_probability import math as tfm
from tensorflow_probability import util as tfu
