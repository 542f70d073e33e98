"""How `fit` trains a model with a mean on all data: `parts` makes the step and its batches, `step` orders what a run does, and
`collapsed` climbs the bound of the coupled model on all rows in between.
"""

__all__: list[str] = []
