"""Factor graphs: joint densities as products of factors, and a mean-field q of exponential
families.

Read `factors.py` first: a factor is an expected log density as a function of beliefs about its
variables, known in closed form or estimated from draws. `graph.py` has the model, `FactorGraph`:
variables, factors, and the messages between them, whose sums are the natural parameters of q. The
families are in `distributions.families`, the optimizer is `optimizers.MeanFieldCVI`.
"""

__all__: list[str] = []
