"""Results on disk as they come, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

__all__ = ["Journal", "setting_of"]

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from .machine import machine

_REPORT_EVERY = 20.0
"""Seconds between two reports, since a piece of work may be shorter than the drawing of a
report.
"""
_OF_THE_RUN = {"verb", "suite", "data", "out", "threads", "resume", "open", "gpjax_python"}
"""Options that do not change a result, and `data`, of which the setting has the folder's name."""


def setting_of(options: argparse.Namespace, *selecting: str) -> dict[str, Any]:
    """The options that a result depends on.

    These are all options but those of the run itself and those in `selecting`, which say which
    pieces are worked on. The folder of data is named without its path."""
    left_out = {*_OF_THE_RUN, *selecting}
    named = {name: value for name, value in vars(options).items() if name not in left_out}
    return {**named, "data": Path(options.data).name if options.data else None}


class Journal:
    """The finished pieces of a suite in NAME.jsonl, one line of JSON per piece.

    A run with `resume` uses a line again if setting, machine and versions are the same; it keeps
    lines of other settings. A run without `resume` starts the file afresh. Files of runs on
    different pieces may be concatenated.

    :param folder: where the file is or will be.
    :param name: that of the file, without suffix.
    :param setting: all that a result depends on besides its piece, as JSON can hold it.
    :param resume: whether to go on with what an earlier run left in the file.
    """

    def __init__(self, folder: Path, name: str, setting: dict[str, Any], resume: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{name}.jsonl"
        self._setting = _plain({**setting, "machine": machine()})
        entries = list(self._read()) if resume and self._path.exists() else []
        self._done = {
            one["piece"]: one["result"] for one in entries if one["setting"] == self._setting
        }
        self._path.write_text(
            "".join(map(_line, entries))
        )  # leaves out the half line of an interruption

    def collect(
        self,
        pieces: Sequence[tuple],
        work: Callable[..., Any],
        report: Callable[[list[Any]], Any],
    ) -> list[Any]:
        """Work on every piece that is not in the journal yet, with a progress line.

        :param pieces: tuples of numbers and strings.
        :param work: called as `work(*piece)`; its result is written to the journal at once.
        :param report: called with the results so far, now and then and at the end.
        :return: the results of all pieces, in their order, as JSON gives them back: a NamedTuple
            would come back as a list, so that `work` returns dictionaries. NaN stays NaN.
        """
        left = [piece for piece in pieces if _key(piece) not in self._done]
        bar = tqdm(
            left,
            initial=len(pieces) - len(left),
            total=len(pieces),
            unit="piece",
            dynamic_ncols=True,
        )
        reported = time.monotonic()
        for piece in bar:
            bar.set_description(" ".join(map(str, piece)))
            result = _plain(work(*piece))
            self._done[_key(piece)] = result
            with self._path.open("a") as file:
                file.write(
                    _line({"setting": self._setting, "piece": _key(piece), "result": result})
                )
                file.flush()
                os.fsync(file.fileno())
            if time.monotonic() - reported >= _REPORT_EVERY and piece != left[-1]:
                report(self.finished(pieces))
                reported = time.monotonic()
        report(self.finished(pieces))
        return self.finished(pieces)

    def finished(self, pieces: Sequence[tuple]) -> list[Any]:
        """The results of those of the pieces that are done, in their order."""
        return [self._done[_key(piece)] for piece in pieces if _key(piece) in self._done]

    def _read(self) -> Iterator[dict[str, Any]]:
        for line in self._path.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:  # cut off in the middle
                continue


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry) + "\n"


def _key(piece: tuple) -> str:
    return json.dumps(piece)


def _plain(value: Any) -> Any:
    """The value as it comes back from JSON: tuples as lists, keys as strings."""
    return json.loads(json.dumps(value, default=_python_number))


def _python_number(value: np.generic | np.ndarray) -> Any:
    """A NumPy number or array as Python's numbers."""
    return value.tolist()
