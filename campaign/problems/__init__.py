"""Random problems: models, likelihoods, kernels, mean functions and data of every size and scale.

`problem.py` draws one and builds its model, from the tables of `kernels.py`, `likelihoods.py`,
`means.py`, `models.py` and `data.py`."""

from .problem import Problem, draw_problem

__all__ = ["Problem", "draw_problem"]
