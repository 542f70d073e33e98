"""What a training step costs: its time beside GPflow's, memory with very many mean points, and how
both scale.

- `speed`: milliseconds of a step, in turn with GPflow's;
- `memory`: time and peak memory of `ODVGP` against the number of mean points;
- `scaling`: both against M_beta, M_gamma, N, D and the number of latents L, beside the `SVGP` of
  GPflow and GPyTorch;
- `products`: seconds of a product with a kernel matrix that is never stored;
- `collapsed`: milliseconds of the collapsed bound and its gradient on all rows, in turn with those
  of GPflow's `SGPR`;
- `solves`: seconds and peak memory of a solve for a mean on all rows;
- `small`: the step and the loop of `fit` at small sizes and with several latents, in turn with
GPflow's."""

from __future__ import annotations

__all__ = ["SUITE"]

import argparse

from ...harness.runner import Suite
from . import collapsed, memory, products, scaling, small, solves, speed


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks", nargs=1, help="of speed; default: kin40k, or synthetic where no --data is given"
    )
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[100, 300, 500, 1000], help="M of speed"
    )
    parser.add_argument(
        "--float32", action="store_true", help="speed in float32 and in mixed precision too"
    )
    parser.add_argument(
        "--mean-points", nargs="+", type=int, default=[1_000, 10_000, 100_000], help="of memory"
    )
    parser.add_argument(
        "--num-beta", type=int, default=300, help="of memory, and of scaling where it does not vary"
    )
    parser.add_argument(
        "--subsample", type=int, default=100, help="mean_subsample: rows of the sampled divergence"
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=7,
        help="that memory and scaling take in a process of their own",
    )
    parser.add_argument(
        "--dimensions",
        nargs="+",
        default=list(scaling.FACTORS),
        choices=list(scaling.FACTORS),
        help="of scaling",
    )
    parser.add_argument("--points", type=int, help="at most so many sizes of each dimension")
    parser.add_argument(
        "--models",
        nargs="+",
        default=list(scaling.MODELS),
        choices=list(scaling.MODELS),
        help="of scaling",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=1,
        help="0: no memory in scaling, which takes a process each",
    )
    parser.add_argument(
        "--num-gamma", type=int, default=1000, help="of scaling where it does not vary"
    )
    parser.add_argument(
        "--num-data", type=int, default=100_000, help="of scaling where it does not vary"
    )
    parser.add_argument(
        "--product-rows", nargs="+", type=int, default=[9_000, 18_000, 36_000], help="N of products"
    )
    parser.add_argument("--product-inputs", nargs="+", type=int, default=[8], help="D of products")
    parser.add_argument(
        "--right-hand-sides", nargs="+", type=int, default=[1, 4, 16], help="of products"
    )
    parser.add_argument(
        "--solve-rows", nargs="+", type=int, default=[9_000, 36_000], help="N of solves"
    )
    parser.add_argument(
        "--collapsed-rows", nargs="+", type=int, default=[7_500, 18_000], help="N of collapsed"
    )
    parser.add_argument(
        "--rank", type=int, default=1000, help="of solves: points of the preconditioner"
    )
    parser.add_argument("--max-products", type=int, default=200, help="of solves")
    parser.add_argument(
        "--small-sizes", nargs="+", type=int, default=[30, 90, 150], help="M of small"
    )
    parser.add_argument("--batches", nargs="+", type=int, default=[64, 256, 1024], help="of small")
    parser.add_argument("--latents", nargs="+", type=int, default=[1, 2, 3, 10], help="L of small")
    parser.add_argument(
        "--loop-steps",
        type=int,
        default=0,
        help="of small: steps of a turn of the loops; 0: no loops",
    )
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument(
        "--rounds", type=int, default=7, help="how often every step is timed, in turn"
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="length of one timing")


SUITE = Suite(
    "Cost of a training step",
    {
        "speed": speed.PART,
        "memory": memory.PART,
        "scaling": scaling.PART,
        "products": products.PART,
        "collapsed": collapsed.PART,
        "solves": solves.PART,
        "small": small.PART,
    },
    _add_arguments,
    selecting=(
        "sizes",
        "mean_points",
        "dimensions",
        "points",
        "product_rows",
        "product_inputs",
        "right_hand_sides",
        "collapsed_rows",
        "solve_rows",
        "small_sizes",
        "batches",
        "latents",
    ),
)
