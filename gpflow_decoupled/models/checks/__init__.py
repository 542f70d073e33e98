"""Checks of models: `data`, `densities`, `construction` (kernels, likelihoods), `predictions`."""

__all__ = [
    "CheckedPredictions", "as_observations", "check_densities", "check_kernel", "check_likelihood",
    "check_mean_function", "check_new_sites", "check_num_data", "check_parts", "check_reach",
    "check_shapes_of_data", "check_values", "infer_num_latent_gps", "refuse_gradient",
    "refuse_replicas", "refuse_variables",
    "warn_of_values",
]  # fmt: skip

from .construction import (
    check_kernel,
    check_likelihood,
    check_mean_function,
    check_parts,
    refuse_gradient,
    refuse_replicas,
    refuse_variables,
)
from .data import (
    as_observations,
    check_new_sites,
    check_num_data,
    check_reach,
    check_shapes_of_data,
    check_values,
    infer_num_latent_gps,
    warn_of_values,
)
from .densities import check_densities
from .predictions import CheckedPredictions
