"""How `fit` trains a model with a mean on all data: `parts` makes the step and its batches, `step`
orders what a run does.
"""

__all__: list[str] = []
