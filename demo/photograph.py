"""Learn a photograph: 273,280 pixels, a regression from place to brightness.

Two models have inducing points and share those of the covariance; one has further points of the
mean. A third conditions each pixel on its nearest neighbours, and so learns
from all pixels. All get the same seconds. The rival is the mean of the four nearest training
pixels. Run with::

    python -m demo.photograph --seconds 20 --output demo_output
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow reads it when it is imported

import gpflow
import numpy as np

import gpflow_decoupled
from gpflow_decoupled.bases import CoupledBasis
from gpflow_decoupled.inducing import select
from gpflow_decoupled.models import ODVGP, BasisGP
from gpflow_decoupled.training import Evaluation, FitResult, MeanSolver, Schedule

from .judging import judge
from .neighbours import learn_neighbours, nearest_pixels
from .outcomes import Outcome, format_table, write_results
from .pictures import draw_reconstructions, draw_training
from .pixels import Pixels, load_pixels


@dataclass(frozen=True)
class Size:
    """How large the problem is."""

    shape: tuple[int, int] | None
    """Rows and columns around the flower; None is the whole photograph."""
    beta: int
    gamma: int
    subsample: int
    """Rows of the estimate of the mean's norm, (D25)."""
    batch: int
    pool: int
    """Training pixels that points are chosen from."""
    elbo_rows: int
    """Training pixels from which the bound is estimated at the end."""
    watched: int
    """Held-out pixels that are scored while a model trains."""
    evaluate_every: int


SIZES = {
    "full": Size(None, 300, 3000, 256, 2048, 10_000, 50_000, 4000, 25),
    "small": Size((64, 96), 30, 120, 32, 256, 1000, 2000, 500, 10),
}


def make_kernel() -> gpflow.kernels.Kernel:
    """A start for models with inducing points: rough, as edges are, over half of the picture."""
    return gpflow.kernels.Matern12(lengthscales=2.0)


def choose_points(pixels: Pixels, size: Size, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Covariance points and mean points: dense where neighbouring training pixels differ."""
    X, contrast = pixels.training[0], pixels.training_contrast()
    rng = np.random.default_rng(seed)
    pool = X[rng.choice(len(X), min(size.pool, len(X)), replace=False, p=contrast / contrast.sum())]
    beta = select(pool, size.beta, method="kmeans", seed=seed)
    return beta, select(pool, size.gamma, method="kmeans", given=beta, seed=seed)


def make_models(size: Size, points: tuple) -> dict[str, tuple[int, Callable[[], BasisGP]]]:
    """Name -> number of mean points, and how to build the model; all share beta."""
    beta, gamma = points

    def common() -> tuple:
        return make_kernel(), gpflow.likelihoods.Gaussian(0.1)

    sampled = {"mean_subsample": size.subsample}
    return {
        "coupled": (len(beta), lambda: BasisGP(*common(), CoupledBasis(beta))),
        "orthogonal": (
            len(beta) + len(gamma),
            lambda: ODVGP(*common(), gamma, beta, **sampled),
        ),
    }


def train(model: BasisGP, pixels: Pixels, size: Size, seconds: float, seed: int) -> FitResult:
    """Train for so many seconds, with the same settings for every model with inducing points."""
    has_mean_points = model.basis.kernel_mean is not None
    has_natural_parameters = len(model.basis.gaussian_parameters()) > 0
    return gpflow_decoupled.fit(
        model,
        pixels.training,
        seconds=seconds,
        batch_size=size.batch,
        natural_gradient=0.3 if has_natural_parameters else None,
        learning_rate=0.01,  # moves an inducing point by two pixels per step at most
        mean_solver=MeanSolver(learning_rate=0.3) if has_mean_points else None,
        schedule=Schedule(anneal=0.5),
        evaluation=Evaluation(pixels.some_held_out(size.watched, seed), size.evaluate_every),
        seed=seed,
    )


def estimate_elbo(model: BasisGP, pixels: Pixels, rows: int, seed: int, chunk: int = 2000) -> float:
    """The bound on all training pixels in nats of grey levels, from `rows` of them, the same for
    each model.
    """
    X, Y = pixels.training
    chosen = np.random.default_rng(seed).choice(len(X), min(rows, len(X)), replace=False)
    chunks = np.array_split(chosen, max(1, len(chosen) // chunk))
    values = [float(model.elbo((X[part], Y[part]))) for part in chunks]
    return float(np.average(values, weights=[len(part) for part in chunks])) - len(X) * np.log(
        pixels.std
    )


def learn_bases(size: Size, pixels: Pixels, seconds: float, seed: int) -> list[Outcome]:
    """Train and judge the models with inducing points."""
    outcomes = []
    for name, (points, build) in make_models(size, choose_points(pixels, size, seed)).items():
        sees = f"{points} / {size.beta} points"
        print(f"\n{name}: {sees} of mean / covariance, {seconds:g} s", flush=True)
        model = build()
        result = train(model, pixels, size, seconds, seed)
        elbo = estimate_elbo(model, pixels, size.elbo_rows, seed)
        outcomes.append(judge(name, sees, model, result, pixels, elbo=elbo))
    return outcomes


def run(size_name: str, seconds: float, output: Path, seed: int = 0) -> list[Outcome]:
    """The whole demo: train, predict, print the table, write pictures and results."""
    began = time.perf_counter()
    size, pixels = SIZES[size_name], load_pixels(SIZES[size_name].shape, seed)
    output.mkdir(parents=True, exist_ok=True)
    training = int(np.sum(~pixels.held_out))
    print(
        f"{pixels.grey.size:,} pixels, {pixels.grey.size - training:,} of them held out", flush=True
    )
    outcomes = learn_bases(size, pixels, seconds, seed)
    print(f"\nneighbours: all {training:,} training pixels, {seconds:g} s", flush=True)
    outcomes += [learn_neighbours(pixels, seconds, size.watched, seed), nearest_pixels(pixels)]
    print(f"\n{format_table([outcome.row for outcome in outcomes])}\n")
    print(
        "Points are those of mean / covariance. RMSE in grey levels from 0 (black) to 1 (white);"
        " log density in nats per held-out pixel;"
    )
    rows = min(size.elbo_rows, training)
    print(
        f"ELBO in nats of all {training:,} training pixels, estimated from the same {rows:,} for"
        " each model that has one."
    )
    draw_reconstructions(pixels, outcomes, output / "photograph.png")
    draw_training(outcomes, training, output / "training.png")
    total = time.perf_counter() - began
    settings = {
        "size": asdict(size),
        "seconds_a_model": seconds,
        "seconds_in_all": total,
        "seed": seed,
    }
    write_results(outcomes, settings, output / "results.json")
    print(f"\n{total:.0f} s in all. In {output}: photograph.png, training.png, results.json")
    return outcomes


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of training for each model (20)"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("demo_output"), help="folder (demo_output)"
    )
    parser.add_argument(
        "--size", choices=sorted(SIZES), default="full", help="small: a crop, for a quick look"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of held-out pixels, points and minibatches (0)"
    )
    arguments = parser.parse_args()
    run(arguments.size, arguments.seconds, arguments.output, arguments.seed)


if __name__ == "__main__":
    main()
