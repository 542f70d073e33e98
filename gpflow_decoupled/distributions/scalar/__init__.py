"""TFP distributions with characteristic functions, behind two base distributions.

`skew_normal` has `SkewNormal`; `generalized_normal` has `GeneralizedNormal`, with an exact gradient
of the cdf, and `generalized_transform` its characteristic function.
"""

__all__: list[str] = []
