"""The stages of a run of `fit`.

Read the contract `stage`, then `full_gps`. Inducing points: `minibatches`, `climbs` by L-BFGS, and
`mean_on_data`. Full GPs by L-BFGS: `sites`. Nearest-neighbour GPs: `neighbours`, `neighbour_labels`
and `neighbour_sites`.
"""

__all__: list[str] = []
