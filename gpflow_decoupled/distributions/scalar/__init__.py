"""Distributions in the form of TensorFlow Probability, with characteristic functions: what two
families of bases are made of.

`skew_normal` has `SkewNormal`, which that library lacks; `generalized_normal` has
`GeneralizedNormal`, with an exact gradient of the cdf; `generalized_transform` has the
characteristic function of the latter, for any power.
"""

__all__: list[str] = []
