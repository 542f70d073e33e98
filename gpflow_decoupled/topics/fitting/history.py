"""The record of a fit."""

from __future__ import annotations

__all__ = ["History"]

import time
from types import TracebackType

import numpy as np
from tqdm.auto import tqdm


class History:
    """Passes, seconds and bounds of a fit; a context manager that closes the progress bar."""

    def __init__(self, passes: int, show: bool) -> None:
        self._rows: list[tuple[float, float, float]] = []
        self._began = time.perf_counter()
        self._bar = tqdm(total=passes, disable=not show, unit="pass")

    def append(self, passes: float, bound: float) -> None:
        """Record the passes so far and the bound in nats."""
        self._rows.append((passes, time.perf_counter() - self._began, bound))
        self._bar.update(passes - self._bar.n)
        self._bar.set_postfix(bound=f"{bound:.6g}")

    def has_settled(self, tolerance: float) -> bool:
        """True if the last pass raised the bound by less than `tolerance` times its size."""
        if len(self._rows) < 2:
            return False
        before, now = self._rows[-2][2], self._rows[-1][2]
        return now - before < tolerance * abs(now)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays "pass", "seconds" (wall clock) and "bound" (nats), one entry per pass."""
        columns = np.array(self._rows, dtype=float).reshape(-1, 3).T
        return dict(zip(("pass", "seconds", "bound"), columns))

    def __enter__(self) -> History:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()
