"""Mean-field conjugate computation on factor graphs, by messages between factors and variables
(Khan & Lin 2017, section 5).

`mean_field_cvi` has `MeanFieldCVI` and is where to begin; `messages` computes one step as a pure
function of the messages; `message_runs` repeats steps on all data, where the bound is watched, and
on minibatches. The model is `models.FactorGraph`, and the families of its variables are in
`distributions.families`.
"""

__all__: list[str] = []
