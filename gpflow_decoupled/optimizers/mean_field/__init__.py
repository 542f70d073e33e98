"""Mean-field conjugate computation on factor graphs, by messages (Khan & Lin 2017, section 5).

Begin with `mean_field_cvi`, which has `MeanFieldCVI`. `messages` computes one step as a pure
function of the messages; `message_runs` repeats steps, on all data, where the bound is watched, or
on minibatches. The model is `models.FactorGraph`, with variables' families in
`distributions.families`.
"""

__all__: list[str] = []
