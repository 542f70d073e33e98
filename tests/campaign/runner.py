"""Runs cases in processes with one thread each, with a journal from which a broken-off run goes on,
and writes the table of counts.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .outcome import HELD, REFUSED, WRONG, Case, Outcome
from .trials import NAMES, part

ONE_THREAD = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
CASES_A_PROCESS = 60
"""Then its worker is replaced: TensorFlow keeps some megabytes of each compiled optimizer."""


@dataclass
class Record:
    """One case as it is written: what was tried, what became of it, and the line that runs it
    again.
    """

    part: str
    case: int
    seed: int
    verdict: str
    title: str
    complaints: list[str]
    refusal: str
    command: str
    seconds: float
    figures: dict[str, float] = field(default_factory=dict)


class _Late(Exception):
    pass


def attempt(name: str, number: int, seed: int) -> Record:
    """Try one case; whatever it raises, or that it does not end, makes it wrong."""
    case, chosen, began = Case(name, number, seed), part(name), time.perf_counter()

    def ring(*_: object) -> None:
        raise _Late

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(chosen.seconds)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = chosen.run(case)
    except _Late:
        outcome = Outcome(f"case {number}", [f"did not end within {chosen.seconds} seconds"])
    except Exception as error:  # of the campaign itself
        outcome = Outcome(f"case {number}", [f"{type(error).__name__}: {error}"])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    seconds = time.perf_counter() - began
    return Record(
        name,
        number,
        seed,
        outcome.verdict,
        outcome.title,
        outcome.complaints,
        outcome.refusal,
        case.command,
        seconds,
        outcome.figures,
    )


def run_cases(
    name: str, numbers: list[int], seed: int, workers: int, journal: Path
) -> list[Record]:
    """Try cases of a part; those that the journal has with this seed are read and not tried again.

    :param name: of the part.
    :param numbers: of the cases.
    :param seed: of the campaign.
    :param workers: processes.
    :param journal: a file of one line a case, to which new ones are added.
    """
    done = {
        r.case: r
        for r in read(journal)
        if r.part == name and r.seed == seed and r.case in set(numbers)
    }
    left = [number for number in numbers if number not in done]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, TextColumn("{task.fields[wrong]} wrong")) as progress:
        wrong = sum(r.verdict == WRONG for r in done.values())
        task = progress.add_task(name, total=len(numbers), completed=len(done), wrong=wrong)
        for record in _tried(name, left, seed, workers):
            done[record.case] = record
            journal.parent.mkdir(parents=True, exist_ok=True)
            with journal.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(record)) + "\n")
            wrong += record.verdict == WRONG
            if record.verdict == WRONG:
                progress.console.print(
                    f"wrong: {record.command}\n  {record.title}", markup=False, soft_wrap=True
                )
                for complaint in record.complaints:
                    progress.console.print(f"  {complaint}", markup=False, soft_wrap=True)
            progress.update(task, advance=1, wrong=wrong)
    return [done[number] for number in numbers if number in done]


def read(journal: Path) -> list[Record]:
    """The records of a journal; none if there is no file."""
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.is_file() else []
    return [Record(**json.loads(line)) for line in lines if line.endswith("}")]


def _tried(name: str, numbers: list[int], seed: int, workers: int) -> Iterator[Record]:
    """The records of cases, as they come; a case whose process dies is wrong, and the others go on
    in a new one.
    """
    size = 1 if part(name).alone else CASES_A_PROCESS
    waiting = list(numbers)
    while waiting:
        block, seen = waiting[: size * workers], set[int]()
        with _pool(min(workers, len(block))) as pool:
            running = {pool.submit(attempt, name, number, seed): number for number in block}
            try:
                for future in as_completed(running):
                    seen.add(running[future])
                    yield future.result()
            except BrokenProcessPool:
                seen.discard(running[future])
        dead = [number for number in block if number not in seen]
        if dead:  # one of them ended the process: one by one the culprit shows
            yield from _one_by_one(name, dead, seed)
        waiting = waiting[len(block) :]


def _pool(workers: int) -> ProcessPoolExecutor:
    """Processes that read `ONE_THREAD` before they import TensorFlow."""
    return ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_begin, initargs=(os.getpid(),)
    )


def _begin(parent: int) -> None:
    """Take one thread, and end when the parent does, also where that is killed and cannot say
    so.
    """
    os.environ.update(ONE_THREAD)

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()


def _one_by_one(name: str, numbers: list[int], seed: int) -> Iterator[Record]:
    for number in numbers:
        with _pool(1) as pool:
            try:
                yield pool.submit(attempt, name, number, seed).result()
            except BrokenProcessPool:
                command = Case(name, number, seed).command
                died = ["the process died"]
                yield Record(name, number, seed, WRONG, f"case {number}", died, "", command, 0.0)


def markdown(records: list[Record]) -> str:
    """A table with one row a part, the figures of the parts, and the cases that were wrong with the
    lines that rerun them.
    """
    rows = [
        "| part | what is tried | tried | held | refused | wrong |",
        "|---|---|---|---|---|---|",
    ]
    names = [name for name in NAMES if any(record.part == name for record in records)]
    for name in names:
        rows.append(
            _row(
                f"`{name}`", part(name).words, [record for record in records if record.part == name]
            )
        )
    rows.append(_row("all", "", records))
    figures = _figures(records)
    if figures:
        rows += ["", "| figure | cases | mean | largest |", "|---|---|---|---|"]
        rows += [
            f"| {name} | {len(v)} | {sum(v) / len(v):.3g} | {max(v):.3g} |"
            for name, v in figures.items()
        ]
    wrong = [record for record in records if record.verdict == WRONG]
    for record in wrong:
        rows += [
            "",
            f"- `{record.command}`: {record.title}",
            *[f"  - {complaint}" for complaint in record.complaints],
        ]
    return "\n".join([*rows, ""])


def write(records: list[Record], folder: Path) -> Path:
    """Write `report.json`, with every case, and `report.md`; return the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(
        json.dumps([asdict(record) for record in records], indent=1), encoding="utf-8"
    )
    page = folder / "report.md"
    page.write_text(markdown(records), encoding="utf-8")
    return page


def _row(name: str, words: str, records: list[Record]) -> str:
    counts = [
        sum(record.verdict == verdict for record in records) for verdict in (HELD, REFUSED, WRONG)
    ]
    return f"| {name} | {words} | {len(records)} | {' | '.join(map(str, counts))} |"


def _figures(records: list[Record]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for record in records:
        for name, value in record.figures.items():
            found.setdefault(name, []).append(value)
    return found
