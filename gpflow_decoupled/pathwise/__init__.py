"""Draws from a posterior as functions, for Thompson sampling and for whatever needs one sample at many inputs."""

from .prior import PriorDraws, draw_prior
from .projection import prior_coordinates
from .samples import PathwiseSamples, pathwise_samples

__all__ = ["PathwiseSamples", "PriorDraws", "draw_prior", "pathwise_samples", "prior_coordinates"]
