"""What became of one case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

HELD, REFUSED, WRONG = "held", "refused", "wrong"
"""Everything that must hold did; an error of the package that says what to change; anything
else.
"""


@dataclass
class Outcome:
    """What was tried and what became of it.

    :param title: of the case: what was tried, in words.
    :param complaints: what did not hold, empty where everything did.
    :param refusal: the message with which the package refused it, or empty.
    :param figures: numbers for the report, such as megabytes a fit.
    """

    title: str
    complaints: list[str] = field(default_factory=list)
    refusal: str = ""
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """`WRONG` where something did not hold, else `REFUSED` or `HELD`."""
        return WRONG if self.complaints else REFUSED if self.refusal else HELD


@dataclass(frozen=True)
class Case:
    """One attempt: its number, the seed of the campaign, and a generator that depends on both and
    on the part.
    """

    part: str
    number: int
    seed: int

    def generator(self) -> np.random.Generator:
        """A new generator, the same whenever and wherever the case is run."""
        return np.random.default_rng([self.seed, self.number, *self.part.encode()])

    @property
    def command(self) -> str:
        """The line that runs this case again."""
        seed = f" --seed {self.seed}" if self.seed else ""
        return f"python -m tests.campaign --part {self.part} --case {self.number}{seed}"


@dataclass(frozen=True)
class Part:
    """A kind of attempts.

    :param name: on the command line.
    :param words: what is tried, for the table.
    :param cases: how many there are by default.
    :param run: tries one.
    :param seconds: after which a case counts as one that does not end.
    :param alone: whether each case has a new process.
    """

    name: str
    words: str
    cases: int
    run: Callable[[Case], Outcome]
    seconds: int = 240
    alone: bool = False
