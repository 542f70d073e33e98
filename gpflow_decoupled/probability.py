"""TensorFlow Probability (TFP): the only module that imports it.

TFP's last release is of Keras 2, so that what replaces it one day is chosen here.
"""

from __future__ import annotations

__all__ = ["tfb", "tfd", "tfm", "tfp", "tfu"]

import tensorflow_probability as tfp
from tensorflow_probability import bijectors as tfb
from tensorflow_probability import distributions as tfd
from tensorflow_probability import math as tfm
from tensorflow_probability import util as tfu
