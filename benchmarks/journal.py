"""Results on disk as they come: an interrupted run goes on where it stopped."""

from __future__ import annotations

__all__ = ["Journal", "setting_of"]

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .report import machine

_REPORT_EVERY = 20.0
"""Seconds: pieces may be shorter than the drawing of a report."""


def setting_of(options: argparse.Namespace, *pieces: str) -> dict[str, Any]:
    """The options that a result depends on: all but those of the run itself, and `pieces`, which say what is worked on.

    Of the folder of data, its name.
    """
    left_out = {"verb", "suite", "data", "out", "threads", "resume", "open", *pieces}
    named = {name: value for name, value in vars(options).items() if name not in left_out}
    return {**named, "data": Path(options.data).name if options.data else None}


class Journal:
    """The finished pieces of a suite, one line of JSON each, in NAME.jsonl.

    A line is used again by a run with `resume`, the same setting, machine and versions; lines of other settings stay. A run
    without `resume` starts the file afresh. Files of runs on different pieces may be concatenated.

    :param setting: all that a result depends on besides its piece, as JSON can hold it.
    """

    def __init__(self, folder: Path, name: str, setting: dict[str, Any], resume: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{name}.jsonl"
        self._setting = _plain({**setting, "machine": machine()})
        entries = list(self._read()) if resume and self._path.exists() else []
        self._done = {one["piece"]: one["result"] for one in entries if one["setting"] == self._setting}
        self._path.write_text("".join(map(_line, entries)))  # without the half line of an interruption

    def collect(
        self,
        pieces: Sequence[tuple],
        work: Callable[..., Any],
        report: Callable[[list[Any]], Any],
    ) -> list[Any]:
        """`work(*piece)` for each piece that is not there yet, with a progress line; `report(results)` now and then, and last.

        :return: the results of all pieces, in their order, as JSON gives them back: a NamedTuple would be a list, so let
            `work` return its `_asdict()`. NaN stays NaN.
        """
        left = [piece for piece in pieces if _key(piece) not in self._done]
        bar = tqdm(left, initial=len(pieces) - len(left), total=len(pieces), unit="piece", dynamic_ncols=True)
        reported = time.monotonic()
        for piece in bar:
            bar.set_description(" ".join(map(str, piece)))
            result = _plain(work(*piece))
            self._done[_key(piece)] = result
            with self._path.open("a") as file:
                file.write(_line({"setting": self._setting, "piece": _key(piece), "result": result}))
                file.flush()
                os.fsync(file.fileno())
            if time.monotonic() - reported >= _REPORT_EVERY and piece != left[-1]:
                report(self.finished(pieces))
                reported = time.monotonic()
        report(self.finished(pieces))
        return self.finished(pieces)

    def finished(self, pieces: Sequence[tuple]) -> list[Any]:
        """The results of those pieces that are there, in their order."""
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
    """As it comes back from JSON: tuples are lists, keys are strings."""
    return json.loads(json.dumps(value, default=_scalar))


def _scalar(value: Any) -> Any:
    """A NumPy number or array as Python has it."""
    return value.tolist()
