"""Natural gradients in closed form for sparse models (Salimbeni, Eleftheriadis & Hensman 2018).

Read `natural_gradient` first, then `bound_gradients` and `moves`. `natural_parameters` steps a
Gaussian, `mean_steps` the mean; `precision_memory` keeps precisions, `held_sites` fixes sites,
`in_turn` moves q first.
"""

__all__: list[str] = []
