"""Natural gradients in closed form for sparse models (Salimbeni, Eleftheriadis & Hensman 2018).

Read `natural_gradient` first: it evaluates the bound (`bound_gradients`), then computes and writes
`moves`. `natural_parameters` steps a Gaussian part, `mean_steps` the mean; `precision_memory` keeps
precisions, `held_sites` adapts q when the kernel moves, `in_turn` moves q first.
"""

__all__: list[str] = []
