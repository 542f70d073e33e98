"""The contract of bases on inducing variables."""

# Optimizers ask a basis for its properties, never for its class.
#
# | property | True if | asked by |
# |---|---|---|
# | `whiten` | the Gaussian parts' Parameters are whitened | natural gradients |
# | `holds_sites` | sites can stay fixed while kernel and points change, (C28) | `fit` |
# | `replaces_gaussians` | `with_gaussians` replaces a state's Gaussian parts | `fit` |
# | `ties_sites` | q(u) is the prior times one Gaussian site, (C22) | `sweep`, `SparseCVIGP` |
# | `steps_mean` | mean coefficients have natural steps, (D41), (D42) | `mean="natural"` |
# | `solves_mean` | the Newton system (D49) for all means applies | `mean="newton"` |
# | `data_mean` is not None | the mean is on all training inputs | `fit`, `ConjugateGradients` |
# | `keeps_conditional` | f given the points has the prior's covariance, (N6) | `bound="tight"` |
# | `mixes_precision` | products with rows may be in float32 | `fit(precision="mixed")` |

from __future__ import annotations

__all__ = ["InducingBasis", "norm_of"]

import tensorflow as tf
from gpflow import Parameter
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..errors import ModelError
from ..inducing.variables import count_points
from ..linalg.whitening import Whitener
from .base import Basis, Features, GaussianPart, State
from .parts.atomic import all_or_nothing
from .parts.data_mean import DataMean
from .parts.kernel_mean import KernelMean
from .parts.mean_operator import MeanOperator
from .parts.optimum import OptimalParameters, Regression, check_optimum, project


class InducingBasis(Basis):
    """A basis on inducing variables `beta`, for `BasisGP` and its optimizers.

    Define the methods of `Basis` and set `beta` and `num_latent_gps`, to train by gradients. Add

    * natural gradients: `gaussians`, `assign_gaussians` and `gaussian_parameters`;
    * sites fixed while the kernel changes: also `whiteners`, with `holds_sites` True;
    * streams: also `frame_points` and `moved_to`;
    * the best q in closed form for Gaussian noise: `optimal_parameters`.

    Example::

        class DiagonalBasis(InducingBasis):
            state_type = DiagonalState

            def __init__(self, beta, num_latent_gps=1):
                super().__init__()
                self.beta = as_inducing(beta, "beta")
                self.num_latent_gps = num_latent_gps
    """

    beta: InducingVariables
    """The inducing variables [M_beta] of the covariance of q(f)."""
    kernel_mean: KernelMean | None = None
    """The mean on extra points, or None."""
    data_mean: DataMean | None = None
    """The mean on all training inputs, or None."""
    keeps_conditional: bool = False
    """True if f given the values at all points has the prior's covariance; see `whitened_rows`."""
    whiten: bool = False
    """True if the Parameters of `gaussians` are whitened, and so independent of the kernel."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = vars(cls).keys()
        if "weights_of_rows" not in own and not own.isdisjoint(("features", "variance")):
            type.__setattr__(cls, "weights_of_rows", InducingBasis.weights_of_rows)

    @property
    def sizes(self) -> dict[str, int | str]:
        mean = {} if self.kernel_mean is None else {"gamma": self.kernel_mean.size}
        return {"beta": count_points(self.beta), **mean}

    acts_on_rows: tuple[str, ...] = ()
    """Fields of the state that multiply rows' features, perhaps in lower precision."""

    # --- what the basis can do

    @property
    def holds_sites(self) -> bool:
        """True if sites can stay fixed while kernel and points move: whitened, with `whiteners`."""
        return False

    @property
    def replaces_gaussians(self) -> bool:
        """True if `with_gaussians` is defined."""
        return type(self).with_gaussians is not InducingBasis.with_gaussians

    @property
    def ties_sites(self) -> bool:
        """True if q(u) is one Gaussian with a mean: the prior times one site tied to beta."""
        return False

    @property
    def steps_mean(self) -> bool:
        """True if a gradient step of the mean coefficients is a natural-gradient step."""
        return self.kernel_mean is not None

    @property
    def solves_mean(self) -> bool:
        """True if there is a joint Newton system of mean coefficients and mean of q(u)."""
        return False

    @property
    def mixes_precision(self) -> bool:
        """True if products with rows may have lower precision than factorisations."""
        return bool(self.acts_on_rows)

    def lowered(self, state: State, dtype: tf.DType) -> State:
        """The state with the fields `acts_on_rows`, and so its features, in another precision."""
        return state._replace(
            **{name: tf.cast(getattr(state, name), dtype) for name in self.acts_on_rows}
        )

    # --- the parts of q that have natural parameters

    def gaussians(self, state: State) -> tuple[GaussianPart, ...]:
        """The parts of q with natural parameters, whitened; empty if none."""
        return ()

    def assign_gaussians(self, state: State, new: tuple[GaussianPart, ...]) -> None:
        """Write whitened parts, derived from `state`, to the Parameters."""
        raise NotImplementedError(
            f"{type(self).__name__} has no natural parameters to assign; train it with fit(...,"
            " natural_gradient=None)."
        )

    def with_gaussians(self, state: State, new: tuple[GaussianPart, ...]) -> State:
        """The state with other whitened parts, as after `assign_gaussians`."""
        raise NotImplementedError(
            f"{type(self).__name__} does not replace the Gaussian parts of a state."
        )

    def gaussian_parameters(self) -> tuple[Parameter, ...]:
        """The Parameters that `assign_gaussians` writes, which other optimizers leave alone."""
        return ()

    def whiteners(self, state: State) -> tuple[Whitener, ...]:
        """The whitening factor of each part of `gaussians`, for bases that keep their sites."""
        raise NotImplementedError(
            f"{type(self).__name__} cannot keep its sites while the kernel changes: holds_sites is"
            " False."
        )

    def weights_of_rows(self, state: State) -> tf.Tensor | None:
        """The factor w [M, L] of A = L^-1 k(beta, x) in the mean of q(f), given `state.tangent`.

        For cheaper gradients at fixed sites of one Gaussian part; None where A enters q(f)
        otherwise, or a subclass redefines `features` or `variance`.
        """
        return None

    # --- the mean on further points

    def mean_coefficients(self, state: State) -> tf.Tensor:
        """The raw coefficients [M, L] of the mean points, in no scaled coordinates."""
        raise NotImplementedError(
            f"{type(self).__name__} has no mean points of its own, and so no coefficients."
        )

    def mean_operator(
        self, state: State, kernel: Kernel, X: tf.Tensor, features: Features
    ) -> MeanOperator:
        """Maps between mean coefficients and the mean at X [N, D]; forms K_gamma."""
        raise NotImplementedError(
            f"{type(self).__name__} has no mean points of its own, and so no coefficients."
        )

    def without_mean_points(self) -> InducingBasis:
        """The basis of the same q(u), with shared Parameters, without the mean points."""
        raise NotImplementedError(
            f"{type(self).__name__} has no mean points that could be left out."
        )

    def draw_rows(self, seed: tf.Tensor | None = None) -> tf.Tensor | None:
        """Indices [m] for the estimate of the mean's norm, or None for the full norm."""
        # (D25)
        return None if self.kernel_mean is None else self.kernel_mean.draw_rows(seed)

    def refresh(self, kernel: Kernel, floor: float = 0.0) -> None:
        """Recompute frozen preconditioners at the current kernel; q(f) does not change.

        :param floor: as in `OrthogonalBasis.refresh`.
        """

    # --- streams

    @property
    def frame_points(self) -> tuple[InducingVariables, ...]:
        """All points of q, beta first, for earlier data; raises `ModelError` by default."""
        raise ModelError(
            f"{type(self).__name__} cannot take in a stream: what is to be held of earlier data is"
            " known for CoupledBasis, OrthogonalBasis, HybridBasis and SolveBasis. Use one of"
            " these, or fit the model to all data."
        )

    def moved_to(self, *points: InducingVariables) -> InducingBasis:
        """A new basis with the same options at the prior, on points ordered as `frame_points`."""
        raise NotImplementedError(
            f"{type(self).__name__} cannot be moved to other points; build a new model."
        )

    # --- the best q for Gaussian noise

    def optimal_parameters(self, kernel: Kernel, data: Regression) -> OptimalParameters:
        """The best q(f) for Gaussian noise in closed form, and the bound there.

        :param data: inputs, observations less the mean function, and the noise variance.
        :raises ModelError: unless the basis defines it.
        """
        raise ModelError(
            f"{type(self).__name__} has no closed-form optimum: train the model with fit(model,"
            " data), or define optimal_parameters in the basis."
        )

    def collapsed_elbo(self, kernel: Kernel, data: Regression) -> tf.Tensor:
        """The bound at the best q(f), nats [], differentiable in kernel, points and noise.

        Arguments and errors as in `optimal_parameters`.
        """
        return self.optimal_parameters(kernel, data).elbo

    def whitened_rows(
        self, kernel: Kernel, X: tf.Tensor, features: Features | None = None
    ) -> tuple[tf.Tensor, ...]:
        """Parts [G, M, N] whose squares add up to the prior variances that all points explain.

        Where `keeps_conditional`. By default A of beta, the first of `Features.minus`.

        :param X: inputs [N, D].
        :param features: at X, if known; else N M^2 + M^3 / 3.
        """
        return (project(kernel, self.beta, X)[1] if features is None else features.minus[0],)

    def collapsed_elbo_and_left(
        self, kernel: Kernel, data: Regression
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """`collapsed_elbo`, and the prior variances [N, L] or [N, 1] that the points leave at X.

        None for the variances where the basis does not share their cost.
        """
        return self.collapsed_elbo(kernel, data), None

    def assign_optimum(self, kernel: Kernel, optimum: OptimalParameters) -> None:
        """Write `optimal_parameters` at the same kernel to all Parameters, or to none.

        :raises NumericalError: for an optimum that is not finite; nothing changes.
        """
        check_optimum(optimum)
        with all_or_nothing(self.variables):
            self.write_optimum(kernel, optimum)

    def write_optimum(self, kernel: Kernel, optimum: OptimalParameters) -> None:
        """Write an optimum's coefficients and Gaussian parts; subclasses add other Parameters."""
        if optimum.coefficients is not None and self.kernel_mean is not None:
            self.kernel_mean.coefficients.assign(
                self.kernel_mean.scaling.scaled(optimum.coefficients)
            )
        if optimum.gaussians:  # after the coefficients, since the state may depend on them
            self.assign_gaussians(self.factor(kernel, with_kl=False), optimum.gaussians)


def norm_of(state: State) -> tf.Tensor:
    """The mean's squared norm, a scalar, from `factor`'s state; raises `ValueError` if left out."""
    if state.norm is None:
        raise ValueError(
            "This state was made for predictions (with_kl=False); call factor(kernel) for the"
            " divergence."
        )
    return state.norm
