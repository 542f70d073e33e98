"""Natural gradients in closed form for sparse models (Salimbeni, Eleftheriadis & Hensman 2018).

Read `natural_gradient` first: `NaturalGradient` evaluates the bound (`bound_gradients`), computes a
step (`moves`) and writes it. `natural_parameters` has the natural parameters of a Gaussian part,
`mean_steps` the steps of the mean coefficients; `precision_memory` keeps precisions between steps;
`held_sites` adapts q when the kernel moves; `in_turn` moves q first and then all else.
"""

__all__: list[str] = []
