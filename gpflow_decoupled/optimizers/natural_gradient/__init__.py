"""Natural gradients in closed form for models on inducing points (Salimbeni, Eleftheriadis &
Hensman 2018).

Read `natural_gradient` first: `NaturalGradient`, which evaluates the bound (`bound_gradients`),
asks `moves` where q goes, and writes it. `natural_parameters` has the natural parameters of one
Gaussian part, `mean_steps` the steps of the mean coefficients, `precision_memory` keeps precisions
from one step to the next, and `held_sites` carries q along while the kernel moves. `in_turn` is for
training: q moves first, and all else by its gradient at where q went.
"""

__all__: list[str] = []
