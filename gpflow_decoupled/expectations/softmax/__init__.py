"""Expectations of log sum_k exp(f_k), by a bound, and of a softmax, for independent Gaussian
f_k.
"""

__all__: list[str] = []
