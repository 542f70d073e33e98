"""Mean-field conjugate computation on factor graphs, by messages (Khan & Lin 2017, section 5).

Begin with `mean_field_cvi`. `messages` computes one step, `message_runs` repeats steps.
`distributions.families` has the variables' families.
"""

__all__: list[str] = []
