"""Mean-field conjugate computation on factor graphs, by messages (Khan & Lin 2017, section 5).

Begin with `mean_field_cvi`, which has `MeanFieldCVI`. `messages` computes one step as a pure
function, `message_runs` repeats steps. The model is `models.FactorGraph`; `distributions.families`
has the variables' families.
"""

__all__: list[str] = []
