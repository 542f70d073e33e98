"""The interval of a log evidence, and its settings."""

from __future__ import annotations

__all__ = ["LEVEL", "Evidence", "EvidenceSettings"]

from dataclasses import dataclass, replace

from ...errors import DataError
from ...inputs import check_rate, check_whole

LEVEL = 0.975
"""Of an estimated upper end: its chance to be above the evidence."""


@dataclass(frozen=True)
class Evidence:
    """An interval for the log evidence log p(y) of a model with Gaussian noise, in nats.

    Of two models of the same data, one has the higher evidence if its `lower` is above the other's
    `upper`. Example::

        smooth, rough = (model.evidence() for model in (smooth_model, rough_model))
        print(smooth, rough, rough.lower > smooth.upper)
    """

    lower: float
    """A certified lower bound; round-off is taken off, to first order."""
    upper: float
    """An upper bound: certified, or estimated at the level of 97.5 % if not `certain`."""
    lower_by: str
    """"exact", or "neighbours" for (N4)."""
    upper_by: str
    """"exact", "inducing points" or "Lanczos"."""
    num_data: int
    """N, the rows of the data."""
    products: int
    """Products with the kernel matrix that were computed."""

    @property
    def certain(self) -> bool:
        """True if `upper` is a bound rather than an estimate."""
        return self.upper_by != "Lanczos"

    def shifted(self, nats: float) -> Evidence:
        """The interval in other units of Y: both ends `nats` higher."""
        return replace(self, lower=self.lower + nats, upper=self.upper + nats)

    def __str__(self) -> str:
        """One line: the number if it is exact, else both ends, and how they were had."""
        if self.lower_by == "exact":
            low, high = (f"{end:.6g}" for end in (self.lower, self.upper))
            if low == high:
                return f"log evidence {low} nats (exact)"
            return f"log evidence between {low} and {high} nats (exact but for round-off)"
        upper = self.upper_by if self.certain else f"an estimate at {LEVEL:.1%}, Lanczos"
        width = (self.upper - self.lower) / self.num_data
        return (
            f"log evidence between {self.lower:.6g} (certified, {self.lower_by}) and"
            f" {self.upper:.6g} ({upper}) nats, {width:.2g} nats per row apart"
        )


@dataclass(frozen=True)
class EvidenceSettings:
    """Neighbours, tolerance and probes of the bounds; see `CVIGP.evidence`."""

    num_neighbours: int
    tolerance: float
    probes: int
    seed: int

    def __post_init__(self) -> None:
        check_whole(1, num_neighbours=self.num_neighbours)
        check_rate(tolerance=self.tolerance)
        check_whole(0, probes=self.probes, seed=self.seed)
        if self.probes == 1:
            raise DataError("probes=1 has no standard error: pass 0, or at least 2.")
