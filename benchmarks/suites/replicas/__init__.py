"""Training by several worker processes on one machine: what a step costs, what more workers would
gain, and memory.

- `scaling`: seconds of the processor and bytes of a step, by processes, points and rows;
  `scaling_worker.py` is the process, and `prediction.py` a plain model of many workers. Seconds of
  the processor, because the workers share the cores.
- `memory`: a file of rows larger than what the system lets a worker have, in shards, beside one
  process that holds all of it; `memory_worker.py` is the process.
- `products`: products with the kernel matrix of all rows, as a mean on all data needs them, of
  which each worker has a part; `product_worker.py` is the process.
- `neighbours`: search, terms and judgements of a round of `NeighbourRounds`, by one process, and a
  model of many workers from them; `neighbours.py` has both.
- `workers.py` starts the processes.
"""

from __future__ import annotations

__all__ = ["SUITE"]

import argparse
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part, Suite
from . import neighbours
from .prediction import Cost, Network, efficiency, fitted, least_rows
from .workers import run_workers

_MANY = (8, 32, 64, 256)
_NETWORKS = {"10 Gbit/s": Network(10.0), "100 Gbit/s": Network(100.0)}
_CORES = 16
_SHOWN_ROWS = (512, 2048, 8192)


class StepCost(NamedTuple):
    """Steps of one size, by so many processes."""

    processes: int
    num_beta: int
    rows: int
    """of a worker"""
    seconds: float
    """of the processor, a worker; the median over steps and workers"""
    size: int
    """bytes that a worker puts into all messages of a step"""
    messages: int


class Swept(NamedTuple):
    """What one process or worker found."""

    who: str
    rows: int
    megabytes: float
    """of all rows"""
    limit: float | None
    """megabytes of data that the system allows it"""
    peak: float
    """megabytes, the program and its libraries included"""
    all_fits: bool
    shard_fits: bool
    elbo: float
    q_mu: list[float]


class ProductCost(NamedTuple):
    """A product with a kernel matrix, by so many processes."""

    processes: int
    rows: int
    what: str
    seconds: float
    """of the processor, of the worker that takes most; the median over repeats"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--sizes", type=int, nargs="+", default=[300, 1000], help="points of beta")
    parser.add_argument("--mean-points", type=int, default=1000)
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[512, 2048, 8192], help="of a worker"
    )
    parser.add_argument("--product-rows", type=int, default=8000, help="N of a product")
    parser.add_argument(
        "--repeats", type=int, default=3, help="steps of each size, beside the first"
    )
    parser.add_argument("--data-rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--round-rows", type=int, nargs="+", default=[375, 1500, 6000])
    parser.add_argument("--megabytes", type=float, default=2000.0, help="of the file of rows")
    parser.add_argument(
        "--limit", type=int, default=1800, help="MiB of data that a worker may have"
    )


def _scaling_pieces(options: argparse.Namespace) -> list[tuple]:
    return [(count, size) for size in options.sizes for count in options.processes]


def _scale(options: argparse.Namespace, count: int, size: int) -> list[StepCost]:
    """Steps of all sizes by so many processes."""
    rows = ",".join(map(str, options.rows))
    arguments = [size, options.mean_points, rows, options.repeats, options.seed]
    found = run_workers(Path(__file__).with_name("scaling_worker.py"), arguments, count)
    messages, costs = found[0]["messages"], []
    for n in options.rows:
        seconds = [s for one in found for s, mine in zip(one["seconds"], one["rows"]) if mine == n]
        costs.append(
            StepCost(count, size, n, float(np.median(seconds)), sum(messages), len(messages))
        )
    return costs


def _scaling_section(costs: list[StepCost], options: argparse.Namespace) -> Section:
    measured = [
        [
            f"{c.num_beta:,}",
            f"{c.rows:,}",
            str(c.processes),
            f"{c.seconds:.3f}",
            f"{c.size / 1e6:.2f}",
            str(c.messages),
        ]
        for c in costs
    ]
    header = ["M", "rows a worker", "processes", "processor s a worker", "MB a step", "messages"]
    tables, panels, fits = [Table("A step, measured", header, measured)], [], []
    for size in dict.fromkeys(c.num_beta for c in costs):
        cost = _cost([c for c in costs if c.num_beta == size])
        fits.append(
            [
                f"{size:,}",
                f"{cost.fixed:.3f}",
                f"{1e6 * cost.per_row:.0f}",
                f"{cost.size / 1e6:.2f}",
            ]
        )
        panels += [_panel(size, cores, cost) for cores in (1, _CORES)]
        tables.append(_predicted(size, cost))
    tables.insert(1, Table("Fitted", ["M", "a, s", "b, microseconds", "V, MB"], fits))
    note = (
        "Predicted: the share of R-fold speed on a batch of R n rows, by T = a + b n + ring. The"
        " rows with 16 cores divide a and b by 16, which is an assumption, as are 50 microseconds a"
        " hop. At the end of each line are the rows a worker at which half of the R-fold speed is"
        " reached with 256 workers."
    )
    return Section(tables, [Figure("replicas", "Predicted efficiency.", panels, columns=2)], [note])


def _cost(costs: list[StepCost]) -> Cost:
    """The fit to what several processes have measured of one size, whose seconds have those of the
    messages in them.
    """
    several = [c for c in costs if c.processes > 1] or costs
    return fitted(
        [c.rows for c in several],
        [c.seconds for c in several],
        several[0].size,
        several[0].messages,
    )


def _on_cores(cost: Cost, cores: int) -> Cost:
    return cost._replace(fixed=cost.fixed / cores, per_row=cost.per_row / cores)


def _predicted(size: int, cost: Cost) -> Table:
    """Efficiencies for many workers."""
    rows = []
    for cores in (1, _CORES):
        own = _on_cores(cost, cores)
        for name, network in _NETWORKS.items():
            for n in _SHOWN_ROWS:
                shares = [
                    f"{100 * efficiency(own, n, workers, network):.0f} %" for workers in _MANY
                ]
                half = least_rows(own, _MANY[-1], network)
                rows.append([str(cores), name, f"{n:,}", *shares, f"{half:,.0f}"])
    header = [
        "cores",
        "network",
        "rows a worker",
        *(f"{workers} workers" for workers in _MANY),
        "half at",
    ]
    return Table(f"Predicted efficiency, M = {size:,}", header, rows)


def _panel(size: int, cores: int, cost: Cost) -> Panel:
    own, series = _on_cores(cost, cores), []
    for name, network in _NETWORKS.items():
        for n in (_SHOWN_ROWS[0], _SHOWN_ROWS[-1]):
            shares = [efficiency(own, n, workers, network) for workers in _MANY]
            series.append(
                Series(f"{n:,} rows, {name}", _MANY, shares, dashed=name.startswith("10 "))
            )
    return Panel(f"M = {size:,}, {cores} cores a worker", "workers", "efficiency", series, log="x")


def _multiply(options: argparse.Namespace, processes: int) -> list[ProductCost]:
    """Products of one size by so many processes."""
    arguments = [options.product_rows, options.repeats, options.seed]
    found = run_workers(Path(__file__).with_name("product_worker.py"), arguments, processes)
    return [
        ProductCost(
            processes, options.product_rows, what, max(float(np.median(one[what])) for one in found)
        )
        for what in found[0]
    ]


def _products_section(costs: list[ProductCost], options: argparse.Namespace) -> Section:
    rows = [[one.what, f"{one.rows:,}", str(one.processes), f"{one.seconds:.3f}"] for one in costs]
    header = ["", "N", "processes", "processor s of the busiest worker"]
    note = "Seconds of the processor, those of the messages included."
    return Section([Table("Products with a kernel matrix", header, rows)], [], [note])


_COLUMNS, _BLOCK, _POINTS = 1000, 1024, 10


def _sweep_file(options: argparse.Namespace, processes: int) -> list[Swept]:
    """Write the file, and sweep over it by one process that holds it, or by workers that read their
    shards.
    """
    blocks = max(2, 2 * round(options.megabytes * 1e6 / (16 * _COLUMNS * _BLOCK)))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows"
        rng = np.random.default_rng(options.seed)
        with file.open("wb") as stream:
            for _ in range(blocks):
                X = rng.standard_normal((_BLOCK, _COLUMNS - 1))
                y = np.sin(X[:, :2].sum(1)) + 0.3 * rng.standard_normal(_BLOCK)
                stream.write(np.column_stack([X, y]).tobytes())
        rows = blocks * _BLOCK
        arguments = [file, rows, _COLUMNS, _BLOCK, _POINTS, options.limit]
        found = run_workers(Path(__file__).with_name("memory_worker.py"), arguments, processes)
    size = 8e-6 * rows * _COLUMNS
    limit = None if processes == 1 else options.limit * 2**20 / 1e6
    names = (
        ["one process, all rows in memory"]
        if processes == 1
        else [f"worker {k}" for k in range(processes)]
    )
    keys = ("peak", "all_fits", "shard_fits", "elbo", "q_mu")
    return [
        Swept(name, rows, size, limit, *(one[key] for key in keys))
        for name, one in zip(names, found)
    ]


def _memory_section(found: list[Swept], options: argparse.Namespace) -> Section:
    alone = found[0]
    rows = []
    for one in found:
        off = max(abs(a - b) for a, b in zip(one.q_mu, alone.q_mu))
        limit = "none" if one.limit is None else f"{one.limit:,.0f}"
        fits = [
            ("yes" if there else "no") if one.limit else ""
            for there in (one.all_fits, one.shard_fits)
        ]
        elbo = f"{one.elbo:.9g}", f"{abs(one.elbo / alone.elbo - 1.0):.1e}"
        rows.append(
            [
                one.who,
                f"{one.megabytes:,.0f}",
                limit,
                *fits,
                f"{one.peak:,.0f}",
                *elbo,
                f"{off:.1e}",
            ]
        )
    header = [
        "",
        "MB of rows",
        "limit, MB",
        "all fits",
        "its shard fits",
        "peak, MB",
        "bound",
        "off",
        "q_mu off",
    ]
    note = (
        f"A sweep over {alone.rows:,} rows. The limit is that of the system on the writable memory"
        " of a worker (RLIMIT_DATA). The peak is resident memory, of which the program and its"
        " libraries are some 800 MB."
    )
    return Section([Table("A file that no worker can hold", header, rows)], [], [note])


SUITE = Suite(
    "Several workers",
    {
        "scaling": Part(StepCost, _scaling_pieces, _scale, _scaling_section),
        "products": Part(
            ProductCost,
            lambda options: [(count,) for count in options.processes],
            _multiply,
            _products_section,
        ),
        "neighbours": Part(
            neighbours.PartCost,
            lambda options: [(rows,) for rows in options.data_rows],
            neighbours.measure,
            neighbours.section,
        ),
        "memory": Part(Swept, lambda options: [(1,), (2,)], _sweep_file, _memory_section),
    },
    _add_arguments,
)
