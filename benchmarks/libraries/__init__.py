"""The models that are compared, and how each library trains them.

- `models` declares models as data: `orthogonal-300+1000` is a family and its sizes;
- `training` trains a declared model with its library, and says which libraries are missing here;
- `ours` is this package, `neighbours` its nearest-neighbour GP; `gpflow_svgp`, `gpytorch_svgp`,
  `gpytorch_vnngp`, `gpjax` and `gpboost_vecchia` are Gaussian processes of others; `boosted_trees`
  and `lightgbm_trees` are trees for regression, `scikit_learn` and `selu_network`
  have classifiers that are no Gaussian processes; `tensorflow_tools` is what `ours` and GPflow
  share.

Read `models` first, then `training`, then `ours` beside `gpflow_svgp`.
"""

__all__: list[str] = []
