"""Special functions that TensorFlow, TensorFlow Probability and SciPy lack, or compute with too few digits."""

__all__: list[str] = []
