"""Command line: `python -m tests.campaign`; `--help` lists the options.

It ends with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from .outcome import WRONG
from .runner import Record, markdown, run_cases, write
from .trials import NAMES, part


def arguments(words: list[str]) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign", description="Try the package at random; count what held."
    )
    parser.add_argument(
        "--part",
        choices=NAMES,
        action="append",
        help="run this part alone; may be given several times",
    )
    parser.add_argument(
        "--case", type=int, help="run one case of one part, and say what became of it"
    )
    parser.add_argument(
        "--cases", type=int, help="how many cases of each part; each has its own number by default"
    )
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other cases")
    parser.add_argument("--workers", type=int, default=2, help="processes, of one thread each")
    parser.add_argument("--seconds", type=float, help="begin no part after so many seconds")
    parser.add_argument(
        "--output", type=Path, default=Path("campaign_output"), help="folder of the report"
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep the cases that the folder's journal has"
    )
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Run what the command line says; 1 if anything was wrong."""
    options = arguments(words)
    names, began = options.part or list(NAMES), time.perf_counter()
    journal = options.output / "journal.jsonl"
    if not options.resume:
        journal.unlink(missing_ok=True)
    records: list[Record] = []
    for name in names:
        if options.seconds is not None and time.perf_counter() - began > options.seconds:
            print(f"no time is left for {name}")
            continue
        count = part(name).cases if options.cases is None else options.cases
        numbers = list(range(count)) if options.case is None else [options.case]
        records += run_cases(name, numbers, options.seed, options.workers, journal)
    if options.case is not None:
        for record in records:
            print(record.verdict, record.title, record.refusal, record.figures or "", sep="\n")
    print(markdown(records))
    print(f"wrote {write(records, options.output)}")
    return int(any(record.verdict == WRONG for record in records))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
