"""E log sum_k exp(f_k), bounded, and E softmax(f), for independent Gaussian f_k."""

__all__: list[str] = []
