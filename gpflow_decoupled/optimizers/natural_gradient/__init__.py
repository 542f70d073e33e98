"""Natural gradients in closed form for sparse models (Salimbeni, Eleftheriadis & Hensman 2018).

Read `natural_gradient` first: `NaturalGradient` evaluates the bound (`bound_gradients`), computes a
step (`moves`) and writes it. `natural_parameters` steps a Gaussian part, `mean_steps` the mean
coefficients; `precision_memory` keeps precisions; `held_sites` adapts q when the kernel moves;
`in_turn` moves q first.
"""

__all__: list[str] = []
