"""Learn a photograph: 273,280 pixels, a regression from place to brightness, with each basis.

Every model gets the same pixels, covariance points, initial kernel, step sizes and seconds. What
differs is where its mean may live. Run with::

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
from tqdm.auto import tqdm

import gpflow_decoupled
from gpflow_decoupled.bases import CoupledBasis
from gpflow_decoupled.inducing import select
from gpflow_decoupled.models import DVGP, HDVGP, ODVGP, BasisGP
from gpflow_decoupled.training import Evaluation, FitResult, MeanSolver, Schedule

from .outcomes import Outcome, Row, format_table, write_results
from .pictures import draw_reconstructions, draw_training
from .pixels import Pixels, load_pixels


@dataclass(frozen=True)
class Size:
    """How large the problem is."""

    shape: tuple[int, int] | None
    """Rows and columns around the flower; None is the whole photograph."""
    beta: int
    gamma: int
    many: int
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
    "full": Size(None, 300, 1000, 3000, 256, 2048, 10_000, 50_000, 4000, 25),
    "small": Size((64, 96), 30, 60, 120, 32, 256, 1000, 2000, 500, 10),
}


def make_kernel() -> gpflow.kernels.Kernel:
    """What every model starts from: rough, as edges are, over half of the picture."""
    return gpflow.kernels.Matern12(lengthscales=2.0)


def choose_points(
    pixels: Pixels, size: Size, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Covariance points, mean points, many mean points: dense where neighbouring training pixels
    differ.
    """
    X, contrast = pixels.training[0], pixels.training_contrast()
    rng = np.random.default_rng(seed)
    pool = X[rng.choice(len(X), min(size.pool, len(X)), replace=False, p=contrast / contrast.sum())]
    beta = select(pool, size.beta, method="kmeans", seed=seed)
    gamma, many = (
        select(pool, M, method="kmeans", given=beta, seed=seed) for M in (size.gamma, size.many)
    )
    return beta, gamma, many


def make_models(size: Size, points: tuple) -> dict[str, tuple[int, Callable[[], BasisGP]]]:
    """Name -> number of mean points, and how to build the model; all share beta."""
    beta, gamma, many = points
    alpha = np.concatenate([beta, gamma])  # so that its mean has as many points as the others have

    def common() -> tuple:
        return make_kernel(), gpflow.likelihoods.Gaussian(0.1)

    sampled = {"mean_subsample": size.subsample}
    return {
        "coupled": (len(beta), lambda: BasisGP(*common(), CoupledBasis(beta))),
        "decoupled": (len(alpha), lambda: DVGP(*common(), alpha, beta, **sampled)),
        "hybrid": (len(alpha), lambda: HDVGP(*common(), gamma, beta, **sampled)),
        "orthogonal": (len(alpha), lambda: ODVGP(*common(), gamma, beta, **sampled)),
        "orthogonal, many": (
            len(beta) + len(many),
            lambda: ODVGP(*common(), many, beta, **sampled),
        ),
    }


def train(model: BasisGP, pixels: Pixels, size: Size, seconds: float, seed: int) -> FitResult:
    """Train for so many seconds, with the same settings for every model."""
    X, Y = pixels.test
    watched = np.random.default_rng(seed).permutation(len(X))[: size.watched]
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
        evaluation=Evaluation((X[watched], Y[watched]), every=size.evaluate_every),
        seed=seed,
    )


def predict_all(model: BasisGP, X: np.ndarray, chunk: int = 8192) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance [N, 1] of the latent function at X [N, 2], through the cached posterior."""
    posterior = model.posterior()
    starts = tqdm(range(0, len(X), chunk), desc="predicting", leave=False)
    parts = [posterior.predict_f(X[start : start + chunk]) for start in starts]
    return tuple(np.concatenate([part[k].numpy() for part in parts]) for k in (0, 1))


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


def judge(
    name: str, points: int, model: BasisGP, result: FitResult, pixels: Pixels, elbo: float
) -> Outcome:
    """Predict every pixel and score those held out."""
    mean, variance = predict_all(model, pixels.X)
    X, Y = pixels.test
    mine = mean[pixels.held_out], variance[pixels.held_out]
    history = result.history
    return Outcome(
        Row(
            model=name,
            mean_points=points,
            rmse=pixels.std * float(np.sqrt(np.mean((mine[0] - Y) ** 2))),
            log_density=float(
                np.mean(model.likelihood.predict_log_density(X, *mine, Y)) - np.log(pixels.std)
            ),
            elbo=elbo,
            steps=result.steps,
            ms_a_step=1e3 * result.seconds / max(1, result.steps),
        ),
        mean=(pixels.mean + pixels.std * mean).reshape(pixels.grey.shape),
        std=pixels.std * np.sqrt(variance).reshape(pixels.grey.shape),
        noise=pixels.std * float(np.sqrt(model.likelihood.variance)),
        trace={
            "seconds": history["seconds"],
            "elbo": history["elbo"] - model.num_data * np.log(pixels.std),
            "evaluation_seconds": history["evaluation_seconds"],
            "rmse": pixels.std * history["rmse"],
        },
    )


def run(size_name: str, seconds: float, output: Path, seed: int = 0) -> list[Outcome]:
    """The whole demo: train, predict, print the table, write pictures and results."""
    began = time.perf_counter()
    size, pixels = SIZES[size_name], load_pixels(SIZES[size_name].shape, seed)
    output.mkdir(parents=True, exist_ok=True)
    training = int(np.sum(~pixels.held_out))
    print(
        f"{pixels.grey.size:,} pixels, {pixels.grey.size - training:,} of them held out", flush=True
    )
    outcomes = []
    for name, (points, build) in make_models(size, choose_points(pixels, size, seed)).items():
        print(
            f"\n{name}: {points} mean points, {size.beta} covariance points, {seconds:g} s",
            flush=True,
        )
        model = build()
        result = train(model, pixels, size, seconds, seed)
        elbo = estimate_elbo(model, pixels, size.elbo_rows, seed)
        outcomes.append(judge(name, points, model, result, pixels, elbo))
    print(f"\n{format_table([outcome.row for outcome in outcomes], size.beta)}\n")
    print(
        "RMSE in grey levels from 0 (black) to 1 (white); log density in nats per held-out pixel;"
    )
    rows = min(size.elbo_rows, training)
    print(
        f"ELBO in nats of all {training:,} training pixels, estimated from the same {rows:,} for"
        " each model."
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
