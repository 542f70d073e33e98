"""TensorFlow Probability, which no other module imports: its replacement is chosen here."""

from __future__ import annotations

__all__ = ["tfb", "tfd", "tfm", "tfp", "tfu"]

import tensorflow_probability as tfp
from tensorflow_probability import bijectors as tfb
from tensorflow_probability import distributions as tfd
from tensorflow_probability import math as tfm
from tensorflow_probability import util as tfu
