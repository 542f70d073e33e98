"""Bases with one Gaussian at the inducing points."""

from __future__ import annotations

__all__ = [
    "InducingBasis", "OneGaussianBasis", "assign_whitened", "gaussian_parameters",
    "inverse_root", "norm_of", "root_parameter", "whiten_columns", "whitened",
]  # fmt: skip

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.utilities import triangular

from ..covariances.latents import gram_to_factor
from ..errors import DataError, ModelError
from ..inducing.variables import as_inducing, count_points
from ..inputs import as_values, check_whole
from ..interrupts import all_or_nothing
from ..linalg.triangular import lower_product, solve
from ..linalg.whitening import Whitener, apply_per_latent, whiten
from .base import Basis, Features, GaussianPart, State
from .kernel_mean import KernelMean, MeanOperator
from .optimum import DataMean, OptimalParameters, Regression, check_optimum, project

# ---
# The contract of bases on inducing variables.


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


# ---
# The root of B in the inverse form.


# With K_b = L L^T and S~^-1 = I + E, (D8) is B = L^-T E L^-1, which may lose positivity to
# round-off. So E = R R^T by its eigenvalues, and the triangular factor of (L^-T R)^T is C^T.


def inverse_root(chol: tf.Tensor, excess: tf.Tensor) -> tf.Tensor:
    """C [L, M, M], lower triangular, with C C^T = L^-T E L^-1; about 10 M^3 per latent.

    :param chol: L [G, M, M]; no gradient, as coinciding eigenvalues have none.
    :param excess: E = S~^-1 - I [L, M, M], or [G, M, M]. Negative eigenvalues count as zero.
    """
    chol, excess = tf.stop_gradient(chol), tf.stop_gradient(excess)
    # else `eigh` would raise, and not be NaN as a Cholesky factor is
    finite = tf.reduce_all(tf.math.is_finite(excess))
    values, vectors = tf.linalg.eigh(tf.where(finite, excess, tf.zeros_like(excess)))
    root = vectors * tf.sqrt(tf.where(finite, tf.maximum(values, 0.0), np.nan))[..., None, :]
    chol = tf.broadcast_to(chol, tf.shape(root))
    upper = tf.linalg.qr(tf.linalg.matrix_transpose(solve(chol, root, adjoint=True))).r
    return tf.linalg.band_part(tf.linalg.matrix_transpose(upper), -1, 0)  # (D8)


# ---
# q(u) = N(m, S): its Parameters, and whitening u = L u~, L = chol K_beta.


# q_mu and q_sqrt describe u~ if `whiten=True`, else u; the package works with u~.


def gaussian_parameters(
    size: int,
    num_latent_gps: int,
    mean: TensorType | None = None,
    root: TensorType | None = None,
    names: tuple[str, str] = ("q_mu", "q_sqrt"),
) -> tuple[Parameter, Parameter]:
    """Return Parameters q_mu [M, L] and q_sqrt [L, M, M]; given Parameters are shared."""
    root = root_parameter(size, num_latent_gps, root, names[1])
    if mean is None:
        mean = np.zeros((size, num_latent_gps))
    mean = _checked(mean, names[0], "M, L", (int(size), num_latent_gps))
    return mean if isinstance(mean, Parameter) else Parameter(mean, dtype=default_float()), root


def root_parameter(
    size: int, num_latent_gps: int, root: TensorType | None = None, name: str = "q_sqrt"
) -> Parameter:
    """Return a lower triangular Parameter [L, M, M]; arguments as for `gaussian_parameters`."""
    check_whole(1, num_latent_gps=num_latent_gps)
    size = int(size)
    if root is None:
        root = np.tile(np.eye(size), (num_latent_gps, 1, 1))
    root = _checked(root, name, "L, M, M", (num_latent_gps, size, size))
    if isinstance(root, Parameter):
        return root
    return Parameter(np.tril(root), transform=triangular(), dtype=default_float())


def _checked(
    value: TensorType, name: str, letters: str, shape: tuple[int, ...]
) -> np.ndarray | Parameter:
    array = value if isinstance(value, Parameter) else as_values(value, name)
    if tuple(array.shape) != shape:
        raise DataError(
            f"{name} has shape {tuple(array.shape)}; it must be [{letters}] = {list(shape)}."
        )
    if isinstance(array, np.ndarray) and not np.all(np.isfinite(array)):
        raise DataError(
            f"{name} has entries that are not finite; pass finite ones, or leave {name} out."
        )
    return array


def whiten_columns(
    chol: tf.Tensor, tangent: tf.Tensor | None, columns: tf.Tensor, adjoint: bool = False
) -> tf.Tensor:
    """L^-1 (or L^-T if `adjoint`) times a column per latent: [G, M, M], [M, L] -> [M, L]; M^2 L."""
    if chol.shape[0] == 1:
        return tf.squeeze(whiten(chol, tangent, columns[None], adjoint), 0)
    return tf.transpose(whiten(chol, tangent, tf.transpose(columns)[..., None], adjoint)[..., 0])


def whitened(
    chol: tf.Tensor,
    tangent: tf.Tensor | None,
    mean: Parameter | None,
    root: Parameter,
    whitened_already: bool,
) -> GaussianPart:
    """Whitened q(u), L^-1 m (or None) and L^-1 root, for chol [G, M, M]; M^3 unless already."""
    value, lower = mean, tf.linalg.band_part(tf.convert_to_tensor(root), -1, 0)
    if mean is not None:
        value = tf.convert_to_tensor(mean)
    if whitened_already:
        return GaussianPart(value, lower)
    lower = tf.linalg.band_part(whiten(chol, tangent, lower), -1, 0)
    return GaussianPart(None if value is None else whiten_columns(chol, tangent, value), lower)


def assign_whitened(
    chol: tf.Tensor,
    new: GaussianPart,
    mean: Parameter | None,
    root: Parameter,
    whitened_already: bool,
) -> None:
    """Write a whitened Gaussian, [M, L] and [L, M, M], to its Parameters, inverse to `whitened`."""
    if mean is not None:
        mean.assign(new.mean if whitened_already else apply_per_latent(chol, new.mean))
    value = new.root if whitened_already else lower_product(chol, new.root)
    # FillTriangular would scramble entries above the diagonal
    root.assign(tf.linalg.band_part(value, -1, 0))


# ---


class OneGaussianBasis(InducingBasis):
    """Base class of bases with the Parameters `q_mu` and `q_sqrt` of one Gaussian at beta.

    Their states have `chol`, `mean`, `root`, `ok` and `tangent`, see `CoupledState`. Parameters as
    in `CoupledBasis`, beta [M_beta, D].
    """

    keeps_conditional = True

    def __init__(
        self,
        beta: InducingVariables | TensorType,
        num_latent_gps: int,
        whiten: bool,
        q_mu: TensorType | None,
        q_sqrt: TensorType | None,
    ) -> None:
        super().__init__()
        self.beta = as_inducing(beta, "beta")
        self.num_latent_gps = num_latent_gps
        self.whiten = whiten
        self.q_mu, self.q_sqrt = gaussian_parameters(
            count_points(self.beta), num_latent_gps, q_mu, q_sqrt
        )

    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        return {"K_beta": gram_to_factor(kernel, self.beta)}

    @property
    def holds_sites(self) -> bool:
        return self.whiten

    @property
    def ties_sites(self) -> bool:
        return True

    def whiteners(self, state: State) -> tuple[Whitener, ...]:
        return (Whitener(state.chol, state.ok, state.tangent),)

    def gaussians(self, state: State) -> tuple[GaussianPart, ...]:
        return (GaussianPart(state.mean, state.root),)

    def with_gaussians(self, state: State, new: tuple[GaussianPart, ...]) -> State:
        return state._replace(mean=new[0].mean, root=new[0].root)

    def gaussian_parameters(self) -> tuple[Parameter, ...]:
        return (self.q_mu, self.q_sqrt)

    def assign_gaussians(self, state: State, new: tuple[GaussianPart, ...]) -> None:
        assign_whitened(state.chol, new[0], self.q_mu, self.q_sqrt, self.whiten)
